//! Numbers as words.

/// Zero to nineteen.
pub const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
/// Twenty to ninety at two to nine; zero and one have none.
pub const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [(u64, &str); 5] = [
    (1_000_000_000_000_000, "quadrillion"),
    (1_000_000_000_000, "trillion"),
    (1_000_000_000, "billion"),
    (1_000_000, "million"),
    (1_000, "thousand"),
];

fn one(n: u64) -> &'static str {
    ONES[usize::try_from(n % 20).unwrap_or(0)]
}

/// `1234` as "one thousand two hundred thirty four".
pub(crate) fn cardinal(n: u64) -> Vec<String> {
    let mut out = Vec::new();
    push_cardinal(n, &mut out);
    out
}

fn push_cardinal(mut n: u64, out: &mut Vec<String>) {
    if n == 0 {
        out.push(ONES[0].into());
        return;
    }
    for (scale, name) in SCALES {
        if n >= scale {
            push_cardinal(n / scale, out);
            out.push(name.into());
            n %= scale;
        }
    }
    if n >= 100 {
        out.push(one(n / 100).into());
        out.push("hundred".into());
        n %= 100;
    }
    if n >= 20 {
        out.push(TENS[usize::try_from(n / 10).unwrap_or(0)].into());
        n %= 10;
    }
    if n > 0 {
        out.push(one(n).into());
    }
}

/// `21` as "twenty first".
pub(crate) fn ordinal(n: u64) -> Vec<String> {
    let mut words = cardinal(n);
    if let Some(last) = words.last_mut() {
        *last = match last.as_str() {
            "one" => "first".into(),
            "two" => "second".into(),
            "three" => "third".into(),
            "five" => "fifth".into(),
            "eight" => "eighth".into(),
            "nine" => "ninth".into(),
            "twelve" => "twelfth".into(),
            w if w.ends_with('y') => format!("{}ieth", &w[..w.len() - 1]),
            w => format!("{w}th"),
        };
    }
    words
}

/// `1985` as "nineteen eighty five", `2005` as "two thousand five".
pub(crate) fn year(n: u64) -> Vec<String> {
    let (century, rest) = (n / 100, n % 100);
    if !(1_000..10_000).contains(&n) || (2_000..2_010).contains(&n) || century.is_multiple_of(10) && rest < 10
    {
        return cardinal(n);
    }
    let mut words = cardinal(century);
    match rest {
        0 => words.push("hundred".into()),
        1..10 => words.extend(["oh".into(), one(rest).into()]),
        _ => words.extend(cardinal(rest)),
    }
    words
}

/// Digits one by one; other characters are skipped.
pub(crate) fn digits(text: &str) -> Vec<String> {
    text.chars().filter_map(|c| c.to_digit(10)).map(|d| one(d.into()).into()).collect()
}

/// `3.14` as "three point one four", `1,234` as a cardinal, `007` and very long numbers digit by digit.
pub(crate) fn decimal(text: &str) -> Vec<String> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let plain = whole.replace(',', "");
    let mut words = match plain.parse::<u64>() {
        _ if plain.is_empty() => Vec::new(),
        Ok(n) if plain.len() <= 18 && (plain.len() == 1 || !plain.starts_with('0')) => cardinal(n),
        _ => digits(&plain),
    };
    if let Some(fraction) = fraction.filter(|f| !f.is_empty()) {
        words.push("point".into());
        words.extend(digits(fraction));
    }
    words
}

/// Whether `text` is digits, optionally grouped by commas and with one fraction.
pub(crate) fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').map_or((text, "0"), |(w, f)| (w, f));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let grouped = |s: &str| {
        let mut groups = s.split(',');
        let first = groups.next().unwrap_or_default();
        all_digits(first) && (1..=3).contains(&first.len()) && groups.all(|g| g.len() == 3 && all_digits(g))
    };
    let whole_ok =
        (whole.is_empty() && text.len() > 1) || (!whole.is_empty() && all_digits(whole)) || grouped(whole);
    whole_ok && !fraction.is_empty() && all_digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[String]) -> String {
        words.join(" ")
    }

    #[test]
    fn numbers_are_said_as_people_say_them() {
        assert_eq!(said(&cardinal(13_100)), "thirteen thousand one hundred");
        assert_eq!(said(&cardinal(1_000_021)), "one million twenty one");
        assert_eq!(said(&ordinal(21)), "twenty first");
        assert_eq!(said(&ordinal(30)), "thirtieth");
        assert_eq!(said(&ordinal(112)), "one hundred twelfth");
        assert_eq!(said(&year(2024)), "twenty twenty four");
        assert_eq!(said(&year(1905)), "nineteen oh five");
        assert_eq!(said(&year(2005)), "two thousand five");
        assert_eq!(said(&year(1900)), "nineteen hundred");
        assert_eq!(said(&decimal("1,234.50")), "one thousand two hundred thirty four point five zero");
        assert_eq!(said(&decimal("007")), "zero zero seven");
        assert_eq!(said(&decimal("99999999999999999999")).split(' ').count(), 20);
    }

    #[test]
    fn only_well_formed_numbers_are_numbers() {
        for good in ["0", "12", "1,234", "12,345.6", ".5", "3.14"] {
            assert!(is_decimal(good), "{good}");
        }
        for bad in ["", ".", "1,23", "1,2345", "1.", "1.2.3", "12a", ","] {
            assert!(!is_decimal(bad), "{bad}");
        }
    }
}
