//! What becomes tokens, and how live tokens become text.

mod common;

use common::{TestResult, tokenizer};
use streams::tokenizer::{TextDecoder, Tokenizer, check_context, wrap_system};
use streams::{StreamsError, tokens};

#[test]
fn a_system_prompt_is_wrapped_once_and_on_one_line() -> TestResult {
    let tokenizer = tokenizer()?;
    let wrapped = wrap_system("  ROLE: broker\r\n\nGOAL: renew \n");
    assert_eq!(wrapped, "<system> ROLE: broker GOAL: renew <system>");
    assert_eq!(wrap_system(&wrapped), wrapped);
    assert_eq!(wrap_system("<system> you are June </system>"), "<system> you are June <system>");
    assert_eq!(tokenizer.system_tokens(&wrapped)?, tokenizer.encode(&wrapped)?);
    assert_eq!(tokenizer.system_tokens("line\nbreak")?, tokenizer.encode("<system> line break <system>")?);
    assert_eq!(tokenizer.system_tokens(" \n ")?, Vec::<i32>::new());
    Ok(())
}

#[test]
fn a_context_may_not_be_empty_or_carry_tags_or_control_characters() -> TestResult {
    assert_eq!(check_context(" \n "), Err(StreamsError::EmptyContext));
    for tag in ["<context>", "</context>", "<system>", "</SYSTEM>"] {
        assert_eq!(
            check_context(&format!("quote {tag} now")),
            Err(StreamsError::TagInContext(tag.to_lowercase())),
        );
    }
    assert_eq!(check_context("a\u{7}b"), Err(StreamsError::ControlInContext(7)));
    assert_eq!(check_context(" two\nlines ")?, "two lines");
    let tokenizer = tokenizer()?;
    assert_eq!(
        tokenizer.context_tokens(" quote the renewal ")?,
        tokenizer.encode("<context> quote the renewal </context>")?,
    );
    Ok(())
}

#[test]
fn bytes_that_are_no_model_are_refused() {
    for bytes in [&b""[..], b"version https://git-lfs", &[0xff; 64]] {
        assert!(matches!(Tokenizer::from_bytes(bytes), Err(StreamsError::BadTokenizer(_))));
    }
}

#[test]
fn live_decoding_equals_decoding_at_once_and_never_splits_a_character() -> TestResult {
    let tokenizer = tokenizer()?;
    let text = "Ünïcode—dash costs 13 € or 日本 🙂 okay";
    let mut ids = tokenizer.encode(text)?;
    ids.insert(3, tokens::PAD);
    ids.insert(9, tokens::EPAD);
    let mut decoder = TextDecoder::new();
    let mut live = String::new();
    for &id in &ids {
        let part = decoder.push(&tokenizer, id);
        assert!(!part.contains(char::REPLACEMENT_CHARACTER), "half a character was sent at id {id}");
        live.push_str(&part);
    }
    live.push_str(&decoder.finish());
    assert_eq!(live.trim(), text);
    assert_eq!(tokenizer.decode(&ids), live);
    Ok(())
}

#[test]
fn an_unfinished_character_becomes_a_replacement_and_does_not_swallow_the_next() -> TestResult {
    let tokenizer = tokenizer()?;
    let ids = tokenizer.encode("日")?;
    let bytes: Vec<i32> = ids.iter().copied().filter(|&id| tokenizer.piece(id).is_none()).collect();
    assert_eq!(bytes.len(), 3, "the character is spelt in three byte pieces");
    let mut decoder = TextDecoder::new();
    let mut sent = decoder.push(&tokenizer, bytes[0]);
    for &id in &bytes {
        sent.push_str(&decoder.push(&tokenizer, id));
    }
    assert_eq!(sent, "\u{fffd}日");
    assert_eq!(decoder.push(&tokenizer, 9_999), "");
    assert_eq!(decoder.push(&tokenizer, -1), "");
    Ok(())
}
