//! What becomes tokens, and how live tokens become text.

mod common;

use common::{TestResult, tokenizer};
use streams::tokenizer::{TextDecoder, Tokenizer, check_context, check_system, wrap_system};
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
fn training_and_serving_see_the_same_tokens_of_a_prompt_however_it_is_written() -> TestResult {
    use streams::prompt::SystemPrompt;
    let tokenizer = tokenizer()?;
    let codes = tokens::PromptCodes::default();
    let plain = "ROLE: broker GOAL: renew";
    let spellings = [
        " ROLE: broker\nGOAL: renew ",
        "ROLE: broker\r\n\r\n GOAL: renew",
        "<system> ROLE: broker GOAL: renew <system>",
        "<system> ROLE: broker\nGOAL: renew </system>",
        "ROLE: broker\tGOAL: renew",
        "ROLE: broker\u{85}GOAL: renew\u{0}",
    ];
    let wanted = tokenizer.system_tokens(plain)?;
    for text in spellings {
        assert_eq!(tokenizer.system_tokens(text)?, wanted, "{text:?}");
    }
    // The trainer lays out a window, the server a prompt; both from the same text.
    let served = SystemPrompt::new(Vec::new(), wanted.clone()).frames(&codes);
    let trained: Vec<i32> = served.iter().map(|f| f[0]).filter(|t| *t != tokens::PAD).collect();
    assert_eq!(trained, wanted.iter().copied().filter(|t| *t != tokens::PAD).collect::<Vec<_>>());
    assert_eq!(served.len(), wanted.len() + 12);
    Ok(())
}

#[test]
fn the_part_after_the_voice_keeps_both_silences_without_text() {
    use streams::prompt::SystemPrompt;
    let codes = tokens::PromptCodes::default();
    let bare = SystemPrompt::new(Vec::new(), Vec::new());
    assert!(bare.frames(&codes).is_empty());
    assert_eq!(bare.after_voice(&codes).len(), 12);
    let voiced = SystemPrompt::new(vec![codes.sine; 3], vec![7, 9]);
    assert_eq!(voiced.frames(&codes)[3..], voiced.after_voice(&codes));
}

#[test]
fn tags_inside_a_prompt_are_refused_and_at_its_ends_are_not() {
    for good in ["be kind", "<system> be kind <system>", "<system> be kind </system>", "", " \n", "a < b > c"]
    {
        assert_eq!(check_system(good), Ok(()), "{good}");
    }
    for (bad, tag) in [
        ("be <system> kind", "<system>"),
        ("be kind <SYSTEM>", "<system>"),
        ("<system> a <system> b <system>", "<system>"),
        ("a <context> b", "<context>"),
        ("a\n</context>", "</context>"),
    ] {
        assert_eq!(check_system(bad), Err(StreamsError::TagInPrompt(tag.into())), "{bad}");
    }
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
