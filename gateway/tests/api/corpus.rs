//! Junk into every operation: always a problem of the 4xx kind, never a failure of ours.

use anyhow::Result;
use reqwest::Method;
use rest::contract::Contract;

use crate::access::example_path;
use crate::support::{Answer, Gateway};

const SEGMENTS: &[&str] = &[
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "%00",
    "%ff%fe",
    "'%20OR%201=1--",
    "%3Cscript%3E",
    "-1",
    "0",
    "9999999999999999999999",
    "null",
    "undefined",
    "ds_ZZZZ",
    "job_01938F6E0C3B7A54B1F2A0C4D5E6F708",
    "%F0%9F%92%A9",
    "a%0d%0aSet-Cookie:x=1",
    "*",
    "%25",
    "{id}",
    "~",
    ";x=1",
];
const QUERIES: &[&str] = &[
    "limit=%00",
    "limit=1e3",
    "limit=99999999999999999999",
    "limit=%ff",
    "after=%00",
    "after='",
    "order=%00",
    "=",
    "&&&",
    "limit[]=1",
    "%zz",
    "limit",
    "after_seq=-1",
    "after_seq=x",
    "stream=maybe",
    "path=..%2f..%2fx",
    "path=%00",
    "name=%00",
    "dataset_id=x",
    "kind=%00",
    "state=",
    "subject=%00",
    "ticket=%00",
    "seed=x",
    "text_topk=zz",
    "model=..%2f..",
    "voice_prompt=..%2f..%2fetc%2fpasswd",
];
const BODIES: &[&str] = &[
    "",
    " ",
    "null",
    "true",
    "0",
    "\"x\"",
    "[]",
    "{}",
    "{",
    "[[[[",
    "{\"name\":null}",
    "{\"name\":[]}",
    "{\"name\":{}}",
    "{\"name\":\"\\u0000\"}",
    "{\"name\":\"\\ud800\"}",
    "{\"name\":1e999}",
    "{\"name\":\"a\",\"name\":\"b\"}",
    "{\"name\":\"a\",\"dialogues\":1e400}",
    "{\"__proto__\":{}}",
    "{\"name\":\"a\",\"scopes\":[\"root\"]}",
    "{\"name\":\"a\",\"path\":\"../../etc\"}",
    "{\"name\":\"a\",\"path\":\"/etc\"}",
    "{\"name\":\"a\",\"path\":\"\\u0000\"}",
    "{\"model\":\"\\u0000\"}",
    "{\"model\":\"x\",\"sampling\":{\"text_temperature\":-1}}",
    "{\"model\":\"x\",\"text_prompt\":\"\\u0000\"}",
    "{\"model\":\"' OR 1=1 --\",\"voice\":\"../x\"}",
    "{\"name\":\"a\",\"domain\":\"insurance_brokerage\",\"dialogues\":4294967296}",
    "{\"name\":\"a\",\"domain\":\"insurance_brokerage\",\"dialogues\":4,\"seed\":-1}",
    "{\"name\":\"a\",\"domain\":\"insurance_brokerage\",\"dialogues\":4,\"eval_fraction\":1e308}",
    "{\"name\":\"a\",\"dataset_id\":\"ds_01938f6e0c3b7a54b1f2a0c4d5e6f708\",\"base_model\":\"\\u0000\"}",
    "{\"name\":\"a\",\"dataset_id\":\"ds_01938f6e0c3b7a54b1f2a0c4d5e6f708\",\"base_model\":\"x\",\"spec\":{\"max_steps\":0}}",
    "{\"name\":\"a\",\"baseline_id\":\"x\",\"candidate_id\":\"y\"}",
    "\u{feff}{}",
    "{'name':'a'}",
    "{\"a\":1,}",
    "NaN",
];

fn judge(what: &str, answer: &Answer, may_succeed: bool) {
    if may_succeed && (200..400).contains(&answer.status) {
        return;
    }
    assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{what}: {answer:?}");
    let told = &answer.text;
    assert!(!told.contains("SELECT") && !told.contains("sqlx") && !told.contains(".rs"), "{what}: {told}");
}

#[tokio::test]
async fn junk_is_always_answered_with_a_client_problem() -> Result<()> {
    let gateway = Gateway::start().await?;
    let mut sent = 0;
    for operation in Contract::read(gateway::openapi::document()).operations() {
        let method: Method = operation.method.as_str().parse()?;
        let path = example_path(operation);
        let send = async |path: &str, body: Option<&str>| {
            let mut request = gateway.request(method.clone(), path);
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_owned());
            }
            let what = format!("{method} {path} {body:?}");
            anyhow::Ok((what, Answer::read(request.send().await?).await?))
        };
        let has_parameter = operation.path.contains('{');
        for segment in SEGMENTS.iter().filter(|_| has_parameter) {
            let path = operation.path.replace("{id}", segment).replace("{ticket}", segment);
            let (what, answer) = send(&path, None).await?;
            judge(&what, &answer, false);
            sent += 1;
        }
        // Readings may be right by chance: `&&&` is an empty query.
        for query in QUERIES {
            let (what, answer) = send(&format!("{path}?{query}"), None).await?;
            judge(&what, &answer, method == Method::GET);
            sent += 1;
        }
        for body in BODIES.iter().filter(|_| method == Method::POST) {
            let (what, answer) = send(&path, Some(body)).await?;
            judge(&what, &answer, false);
            sent += 1;
        }
    }
    assert!(sent > 1_500, "{sent} requests");
    assert_eq!(gateway.get("/health/ready").await?.status, 200);
    Ok(())
}
