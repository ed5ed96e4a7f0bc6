use proptest::prelude::*;

use super::*;

fn all(text: &str) -> Vec<Claim> {
    claims(text).into_iter().collect()
}

/// Whether the two texts state the same: each supports what the other claims, and there is something.
fn same(a: &str, b: &str) -> bool {
    let holds = |known: &str, said: &str| claims(said).iter().all(|c| Known::of(known).supports(c));
    !claims(a).is_empty() && !claims(b).is_empty() && holds(a, b) && holds(b, a)
}

#[test]
fn amounts_percents_dates_identifiers_and_numbers_are_found() {
    assert_eq!(
        all("It is $1,250.50, up 12%, for CP-48213 on March 14, with 90 days and 20 mg at 8:30."),
        [
            Claim::Money(125_050),
            Claim::Percent(1_200),
            Claim::Dose(2_000, "milligrams"),
            Claim::Date(3, 14),
            Claim::Time(510),
            Claim::Identifier("CP48213".into()),
            Claim::Number(9_000),
        ]
    );
}

#[test]
fn what_is_written_and_what_is_spoken_are_the_same_claim() {
    for (written, said) in [
        ("$13,100", "thirteen thousand one hundred dollars"),
        ("$13,100", "thirteen thousand and one hundred dollars"),
        ("$12.50", "twelve dollars and fifty cents"),
        ("$12.50", "twelve fifty"),
        ("$0.85", "eighty-five cents"),
        ("$1.2 million", "one million two hundred thousand dollars"),
        ("$13.1k", "$13,100"),
        ("42%", "forty-two percent"),
        ("42%", "forty two per cent"),
        ("7%", "seven percent"),
        ("12.5%", "twelve point five percent"),
        ("12.5%", "twelve and a half percent"),
        ("March 14", "the fourteenth of March"),
        ("March 14th", "March fourteenth"),
        ("March 14", "3/14"),
        ("May 21", "May twenty-first"),
        ("May 21", "the twenty first of May"),
        ("September 30, 1961", "September thirtieth, nineteen sixty-one"),
        ("2009", "two thousand nine"),
        ("2026-03-14", "March 14, 2026"),
        ("CP-48213", "C P four eight two one three"),
        ("CP-48213", "CP 48213"),
        ("AE-90417", "A E nine oh four one seven"),
        ("500 milligrams", "five hundred mg"),
        ("20mg", "twenty milligrams"),
        ("90 day supply", "a ninety day supply"),
        ("90-day", "ninety-day supply of ninety days"),
        ("8:30", "eight thirty"),
        ("6 PM", "six p.m."),
        ("6 PM", "6:00 pm"),
        ("105", "one hundred and five"),
        ("$250,000", "two hundred fifty thousand dollars"),
        ("2,100", "twenty-one hundred"),
    ] {
        assert!(same(written, said), "{written:?} {:?} / {said:?} {:?}", all(written), all(said));
    }
}

#[test]
fn values_and_units_that_differ_are_different_claims() {
    for (a, b) in [
        ("$13,100", "thirteen thousand ten dollars"),
        ("42%", "$42"),
        ("20 mg", "twenty micrograms"),
        ("March 14", "March fifteenth"),
        ("March 14", "May 14"),
        ("CP-48213", "C P four eight two one four"),
        ("6 PM", "7 PM"),
        ("$12.50", "twelve fifteen"),
        ("90 days", "nineteen days"),
    ] {
        assert!(!same(a, b), "{a:?} {:?} / {b:?} {:?}", all(a), all(b));
    }
}

#[test]
fn figures_of_speech_and_names_with_a_digit_or_two_are_no_claims() {
    for text in [
        "One moment, two of us, and a second",
        "vitamin B12 and the A1C",
        "24/7",
        "first things first",
        "May I?",
    ] {
        assert_eq!(all(text), [], "{text}");
    }
}

#[test]
fn a_number_supports_an_amount_of_the_same_value_and_nothing_supports_another_date() {
    let known = Known::of("premium 1250, renewal on April 2");
    assert!(known.supports(&Claim::Money(125_000)));
    assert!(!known.supports(&Claim::Money(125_100)));
    assert!(!known.supports(&Claim::Date(4, 3)));
    assert!(known.supports(&Claim::Day(2)));
}

#[test]
fn odd_texts_do_no_harm() {
    for text in [
        "",
        "$",
        "%",
        "$%",
        "-",
        "1-2-3",
        "99999999999999999999",
        "$99999999999999999 million",
        "9:99",
        "hundred",
        "and a half",
        "point five",
    ] {
        let _ = claims(text);
    }
}

proptest! {
    /// The words of the one normaliser that speech is made with.
    #[test]
    fn money_percents_days_and_numbers_survive_being_spoken(cents in 100u64..200_000_000, percent in 1u64..100, month in 0usize..12, day in 1u8..29, count in 10u64..5_000) {
        let group = |n: u64| {
            let digits = n.to_string();
            let cut: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|c| std::str::from_utf8(c).unwrap_or("")).collect();
            cut.join(",")
        };
        let money = if cents % 100 == 0 { format!("${}", group(cents / 100)) } else { format!("${}.{:02}", group(cents / 100), cents % 100) };
        let mut name = MONTHS[month].to_owned();
        name[..1].make_ascii_uppercase();
        for written in [money, format!("{percent}%"), format!("{name} {day}"), format!("{count} milligrams"), count.to_string()] {
            let said = spoken::normalise(&written).text();
            prop_assert!(same(&written, &said), "{written:?} {:?} / {said:?} {:?}", all(&written), all(&said));
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}", figures in "[0-9$%.,:/a-z -]{0,60}") {
        let _ = (claims(&text), claims(&figures));
    }
}
