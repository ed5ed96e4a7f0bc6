//! What is said for what is written.

use proptest::prelude::*;
use spoken::normalise;

fn said(text: &str) -> String {
    normalise(text).words.join(" ")
}

#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (written, expected) in table {
        assert_eq!(said(written), *expected, "for {written:?}");
    }
}

#[test]
fn money_is_one_span_with_its_currency() {
    check(&[
        ("$13,100", "thirteen thousand one hundred dollars"),
        ("$4.50", "four dollars and fifty cents"),
        ("$1.01.", "one dollar and one cent"),
        ("$0.99", "ninety nine cents"),
        ("$43,000.00", "forty three thousand dollars"),
        ("$2.5M", "two point five million dollars"),
        ("$1.5 million", "one point five million dollars"),
        ("-$20", "minus twenty dollars"),
        ("$120/month", "one hundred twenty dollars per month"),
        ("$10-15", "ten to fifteen dollars"),
        ("€99", "ninety nine euros"),
    ]);
    let spoken = normalise("It costs $13,100, okay?");
    assert_eq!(spoken.tokens[2].text, "$13,100,");
    assert_eq!(spoken.tokens[2].span, 2..7);
    let text = normalise("On Jan. 3, at 9 a.m. Dr. Lee \"left.\" Ask the U.S.").text();
    assert_eq!(text, "on january third, at nine a m doctor lee left. ask the u s.");
    assert_eq!(spoken.text(), "it costs thirteen thousand one hundred dollars, okay?");
}

#[test]
fn percent_dates_and_times() {
    check(&[
        ("12.5%", "twelve point five percent"),
        ("5-10%", "five to ten percent"),
        ("2024-03-15", "march fifteenth twenty twenty four"),
        ("3/15/2024", "march fifteenth twenty twenty four"),
        ("15.09.2021", "september fifteenth twenty twenty one"),
        ("March 5, 2024", "march fifth twenty twenty four"),
        ("Sept. 22", "september twenty second"),
        ("May 3rd", "may third"),
        ("3:30 PM", "three thirty p m"),
        ("3:05pm", "three oh five p m"),
        ("9 a.m.", "nine a m"),
        ("9am", "nine a m"),
        ("5:00", "five o'clock"),
        ("15:45", "fifteen forty five"),
        ("the 1990s", "the nineteen nineties"),
        ("I am 30", "i am thirty"),
    ]);
}

#[test]
fn numbers_ordinals_and_fractions() {
    check(&[
        ("21st", "twenty first"),
        ("1,234,567", "one million two hundred thirty four thousand five hundred sixty seven"),
        ("3.14", "three point one four"),
        ("-5", "minus five"),
        ("1/2", "one half"),
        ("24/7", "twenty four seven"),
        ("10-15", "ten to fifteen"),
        ("30-year", "thirty year"),
        ("COVID-19", "covid nineteen"),
        ("2.0.1", "two point zero point one"),
        ("#4", "number four"),
        ("2024's", "twenty twenty four's"),
        ("9am-5pm", "nine a m to five p m"),
        ("3%-5%", "three percent to five percent"),
        ("$5-$10", "five to ten dollars"),
        ("1st-time", "first time"),
        ("5'10\" tall", "five foot ten tall"),
        ("~50 or <10 or 50+", "about fifty or less than ten or fifty plus"),
    ]);
}

#[test]
fn identifiers_and_phones_are_read_digit_by_digit() {
    check(&[
        ("Your policy number is 2266 okay,", "your policy number is two two six six okay"),
        ("2266 people", "two thousand two hundred sixty six people"),
        ("EM3985771", "e m three nine eight five seven seven one"),
        ("555-123-4567", "five five five one two three four five six seven"),
        ("(555) 123-4567", "five five five one two three four five six seven"),
        ("555 123 4567", "five five five one two three four five six seven"),
        ("+1-800-555-0199", "one eight zero zero five five five zero one nine nine"),
        ("00412", "zero zero four one two"),
        ("12345678", "one two three four five six seven eight"),
        ("401k", "four oh one k"),
        ("Q3", "q three"),
        ("Q4'23", "q four twenty three"),
        ("room 1204B", "room one two zero four b"),
        ("#12345", "number one two three four five"),
    ]);
}

#[test]
fn units_abbreviations_symbols_and_addresses() {
    check(&[
        ("10 mg", "ten milligrams"),
        ("10mg twice", "ten milligrams twice"),
        ("1 kg", "one kilogram"),
        ("65 mph", "sixty five miles per hour"),
        ("I was in MB", "i was in m b"),
        ("Dr. Smith", "doctor smith"),
        ("12 Main St.", "twelve main street"),
        ("St. Louis", "saint louis"),
        ("No. 5", "number five"),
        ("No. Never.", "no never"),
        ("cats & dogs", "cats and dogs"),
        ("AT&T", "at and t"),
        ("and/or", "and or"),
        ("the IRA's APR", "the i r a's a p r"),
        ("NO WAY", "no way"),
        ("john@acme.com", "john at acme dot com"),
        ("acme.com", "acme dot com"),
        ("wait...what", "wait what"),
        ("well-known", "well known"),
        ("can’t", "can't"),
        ("café", "café"),
        ("e.g. this", "for example this"),
    ]);
}

#[test]
fn punctuation_alone_has_an_empty_span_and_nothing_is_lost() {
    for text in ["!!!!!!!!", "…", "—", "🙂", "\"", "- -"] {
        let spoken = normalise(text);
        assert!(spoken.words.is_empty(), "{text:?} is {:?}", spoken.words);
        assert!(spoken.tokens.iter().all(|t| t.span.is_empty()));
        assert_eq!(spoken.tokens.len(), text.split_whitespace().count());
    }
    assert_eq!(normalise("").tokens, []);
    assert_eq!(said("yes—no"), "yes no");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_token_has_a_contiguous_span_and_the_spans_cover_the_words(
        parts in prop::collection::vec(
            prop_oneof![
                "[a-zA-Z']{1,8}[.,!?]{0,2}",
                "[$€#(+-]{0,2}[0-9]{1,9}([.,:/-][0-9]{1,4}){0,3}(%|st|mg|k|M|pm|s|'s)?[).,]?",
                "[A-Z]{1,4}[0-9]{0,6}",
                "\\PC{1,6}",
                Just("million".to_owned()),
                Just("is".to_owned()),
                Just("number".to_owned()),
                Just("St.".to_owned()),
            ],
            0..14,
        ),
    ) {
        let text = parts.join(" ");
        let spoken = normalise(&text);
        let written: Vec<&str> = text.split_whitespace().collect();
        prop_assert_eq!(spoken.tokens.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), written);
        let mut at = 0;
        for token in &spoken.tokens {
            prop_assert_eq!(token.span.start, at);
            prop_assert!(token.span.end >= at);
            at = token.span.end;
            if token.text.chars().any(|c| c.is_ascii_alphanumeric()) {
                prop_assert!(!token.span.is_empty(), "{:?} is silent in {:?}", token.text, text);
            }
        }
        prop_assert_eq!(at, spoken.words.len());
        for word in &spoken.words {
            prop_assert!(!word.is_empty());
            prop_assert!(word.chars().all(|c| c.is_alphabetic() || c == '\''), "{:?}", word);
        }
        // Saying what was said changes nothing.
        let again = normalise(&spoken.words.join(" "));
        prop_assert_eq!(&again.words, &spoken.words);
        prop_assert!(spoken.text().split_whitespace().count() == spoken.words.len());
    }
}
