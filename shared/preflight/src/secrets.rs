//! Values that look like keys have no place in a configuration: it is stored, shown and copied (finetune.md 9, 31).

use domain::preflight::Severity;
use serde_json::{Value, json};

use crate::Inputs;
use crate::findings::Findings;

/// How keys of well-known services, and of this one, begin.
const PREFIXES: [&str; 14] = [
    "sk-",
    "sk_live_",
    "rk_live_",
    "ppx_",
    "hf_",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "AIza",
    "xoxb-",
    "xoxp-",
];

/// Shortest text after a prefix that makes it a key.
const TAIL: usize = 16;

/// Whether a text holds something shaped like a key.
#[must_use]
pub fn looks_like_key(text: &str) -> bool {
    text.contains("-----BEGIN ") && text.contains("PRIVATE KEY")
        || text
            .split(|c: char| c.is_whitespace() || "\"'=,;:()".contains(c))
            .map(|w| w.trim_end_matches(['.', '!', '?']))
            .any(is_key)
}

fn is_key(word: &str) -> bool {
    let tail = |prefix: &&str| word.strip_prefix(*prefix);
    if PREFIXES.iter().filter_map(tail).any(|t| t.len() >= TAIL && dense(t)) {
        return true;
    }
    // Three base64url parts that begin with an encoded `{"`.
    word.starts_with("eyJ") && word.split('.').count() == 3 && word.len() > 40
}

/// Key material: letters and digits of one word, some of them digits.
fn dense(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        && text.bytes().any(|b| b.is_ascii_digit())
}

/// Looks at every text of the request. The value is never repeated.
pub fn check_request(inputs: &Inputs<'_>, findings: &mut Findings) {
    if looks_like_key(inputs.name) {
        refuse("/name", findings);
    }
    walk(&json!(inputs.spec), "/spec", findings);
}

fn walk(value: &Value, pointer: &str, findings: &mut Findings) {
    match value {
        Value::String(text) if looks_like_key(text) => refuse(pointer, findings),
        Value::Object(fields) => {
            fields.iter().for_each(|(k, v)| walk(v, &format!("{pointer}/{k}"), findings))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| walk(v, &format!("{pointer}/{i}"), findings));
        }
        _ => {}
    }
}

fn refuse(pointer: &str, findings: &mut Findings) {
    let detail =
        "looks like a key or password: a run's configuration is stored and shown; take it out and revoke it";
    findings.say(Severity::Error, "secret_in_request", pointer, detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_shape_and_names_are_not_keys() {
        for bad in [
            "sk-ant-api03-abcdefghijk12345678",
            "token=hf_abcdEFGH1234567890zz",
            "AKIAIOSFODNN7EXAMPLE1",
            "-----BEGIN RSA PRIVATE KEY-----",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3",
        ] {
            assert!(looks_like_key(bad), "{bad}");
        }
        for good in [
            "insurance-r1",
            "SPEAKER_BROKER",
            "eval/loss",
            "sk-fast",
            "hf_model",
            "run_01938f6e0c3b7a54b1f2a0c4",
        ] {
            assert!(!looks_like_key(good), "{good}");
        }
    }
}
