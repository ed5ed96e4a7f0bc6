//! Bytes to text: UTF-8 with or without a byte order mark; everything else is refused with the place and a guess.

use super::finding::{Fault, Findings};

/// Why bytes are not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadText {
    /// First byte that is wrong.
    pub offset: usize,
    /// What it looks like.
    pub guess: String,
}

/// UTF-8 text without its byte order mark.
///
/// # Errors
/// `BadText` at the first byte that is not UTF-8, at the first NUL, and at the first JSON escape of half a character.
pub fn decode(bytes: &[u8]) -> Result<&str, BadText> {
    if let Some(guess) = foreign_mark(bytes) {
        return Err(BadText { offset: 0, guess: format!("{guess} with a byte order mark") });
    }
    let skipped = if bytes.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let body = &bytes[skipped..];
    let nul = body.iter().position(|&b| b == 0);
    match std::str::from_utf8(body) {
        Err(error) if nul.is_none_or(|n| error.valid_up_to() < n) => {
            let guess = guess_single_byte(body, &error);
            Err(BadText { offset: skipped + error.valid_up_to(), guess })
        }
        _ if let Some(at) = nul => Err(BadText { offset: skipped + at, guess: guess_of_nul(body, at) }),
        Ok(text) => match half_escape(body) {
            Some(at) => Err(BadText {
                offset: skipped + at,
                guess: format!(
                    "a JSON escape of half a character ({}): the text was cut inside a UTF-16 pair",
                    &text[at..text.len().min(at + 6)]
                ),
            }),
            None => Ok(text),
        },
        Err(error) => Err(BadText { offset: skipped + error.valid_up_to(), guess: "binary data".into() }),
    }
}

/// As [`decode`], with the refusal as a fault of `file` and tolerated oddities counted.
pub fn read_text<'b>(file: &str, bytes: &'b [u8], findings: &mut Findings) -> Option<&'b str> {
    match decode(bytes) {
        Ok(text) => {
            findings.repaired("byte_order_mark", u64::from(bytes.starts_with(b"\xEF\xBB\xBF")), file);
            findings.repaired("crlf_line_ends", u64::from(text.contains("\r\n")), file);
            Some(text)
        }
        Err(bad) => {
            let line = 1 + bytes[..bad.offset].iter().filter(|&&b| b == b'\n').count() as u64;
            let detail = format!("not UTF-8 text at byte {}: {}", bad.offset, bad.guess);
            findings.fault(Fault::new(file, "encoding", detail).at(line));
            None
        }
    }
}

/// Lines with their numbers from 1; blank ones are left out and counted.
pub fn lines<'t>(file: &str, text: &'t str, findings: &mut Findings) -> Vec<(u64, &'t str)> {
    let all: Vec<(u64, &str)> = (1..).zip(text.lines()).collect();
    let blank = all.iter().filter(|(_, line)| line.trim().is_empty()).count() as u64;
    findings.repaired("blank_lines", blank, file);
    all.into_iter().filter(|(_, line)| !line.trim().is_empty()).collect()
}

fn foreign_mark(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] => Some("UTF-32LE"),
        [0, 0, 0xFE, 0xFF, ..] => Some("UTF-32BE"),
        [0xFF, 0xFE, ..] => Some("UTF-16LE"),
        [0xFE, 0xFF, ..] => Some("UTF-16BE"),
        _ => None,
    }
}

fn guess_of_nul(bytes: &[u8], at: usize) -> String {
    let nuls = |parity: usize| bytes.iter().skip(parity).step_by(2).filter(|&&b| b == 0).count();
    let (even, odd, half) = (nuls(0), nuls(1), bytes.len() / 4);
    let guess = if odd > half && odd > 2 * even {
        "UTF-16LE without a byte order mark"
    } else if even > half && even > 2 * odd {
        "UTF-16BE without a byte order mark"
    } else if at == 0 {
        "binary data"
    } else {
        "a NUL byte: a damaged file or binary data"
    };
    guess.to_owned()
}

fn guess_single_byte(bytes: &[u8], error: &std::str::Utf8Error) -> String {
    if error.error_len().is_none() {
        return "UTF-8 that ends inside a character: a truncated file".into();
    }
    let at = error.valid_up_to();
    let control = bytes.iter().filter(|b| **b < 9).count();
    if control > 0 {
        return "binary data".into();
    }
    let byte = bytes[at];
    let name = if bytes.iter().any(|b| (0x80..0xA0).contains(b)) { "Windows-1252" } else { "Latin-1" };
    format!("byte 0x{byte:02X}, probably {name} ({})", latin1_around(bytes, at))
}

/// The word around the byte, read as Latin-1.
fn latin1_around(bytes: &[u8], at: usize) -> String {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b >= 0xA0;
    let start = bytes[..at].iter().rposition(|b| !is_word(b)).map_or(0, |p| p + 1).max(at.saturating_sub(20));
    let end = bytes[at..].iter().position(|b| !is_word(b)).map_or(bytes.len(), |p| at + p).min(at + 20);
    let word: String = bytes[start..end.max(at + 1)].iter().map(|&b| char::from(b)).collect();
    format!("{word:?}")
}

/// Offset of a `\uD8xx` without its `\uDCxx`, or the reverse.
fn half_escape(bytes: &[u8]) -> Option<usize> {
    let escape = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match escape(at) {
            Some(0xD800..=0xDBFF) if matches!(escape(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => return Some(at),
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> (usize, String) {
        let bad = decode(bytes).expect_err("not text");
        (bad.offset, bad.guess)
    }

    fn utf16(text: &str, little: bool) -> Vec<u8> {
        text.encode_utf16().flat_map(|u| if little { u.to_le_bytes() } else { u.to_be_bytes() }).collect()
    }

    #[test]
    fn every_foreign_encoding_is_refused_with_its_place_and_name() {
        let json = r#"{"id":"dial-1"}"#;
        let marked = |mark: &[u8], body: Vec<u8>| [mark, &body].concat();
        assert_eq!(
            refused(&marked(b"\xFF\xFE", utf16(json, true))),
            (0, "UTF-16LE with a byte order mark".into())
        );
        assert_eq!(
            refused(&marked(b"\xFE\xFF", utf16(json, false))),
            (0, "UTF-16BE with a byte order mark".into())
        );
        assert_eq!(refused(&utf16(json, true)), (1, "UTF-16LE without a byte order mark".into()));
        assert_eq!(refused(&utf16(json, false)), (0, "UTF-16BE without a byte order mark".into()));
        assert_eq!(
            refused(b"{\"text\":\"a caf\xE9 \"}"),
            (14, "byte 0xE9, probably Latin-1 (\"caf\u{e9}\")".into())
        );
        assert!(refused(b"\x93quoted\x94").1.contains("Windows-1252"));
        assert_eq!(refused(b"{\"a\":\"x\0y\"}"), (7, "a NUL byte: a damaged file or binary data".into()));
        let (at, guess) = refused(br#"{"text":"x\ud800 y"}"#);
        assert!(at == 10 && guess.contains(r"\ud800"), "{at} {guess}");
        assert_eq!(refused(br#"{"text":"\udc00\ud800"}"#).0, 9);
        assert!(refused("caf\u{e9}".as_bytes().split_last().expect("bytes").1).1.contains("truncated"));
    }

    #[test]
    fn a_byte_order_mark_pairs_and_escaped_backslashes_are_fine() {
        assert_eq!(decode(b"\xEF\xBB\xBF{}"), Ok("{}"));
        for text in [r#""\ud83d\ude00""#, r#""C:\\udata\\ud8""#, r#""caf\u00e9 \n""#, "\u{1F600}", ""] {
            assert_eq!(decode(text.as_bytes()), Ok(text));
        }
    }

    #[test]
    fn a_refusal_names_the_line() {
        let mut findings = Findings::default();
        assert_eq!(read_text("a.jsonl", b"{}\n{}\ncaf\xE9\n", &mut findings), None);
        assert_eq!(
            findings.faults[0].to_string(),
            "a.jsonl:3: not UTF-8 text at byte 9: byte 0xE9, probably Latin-1 (\"caf\u{e9}\")"
        );
    }
}
