//! One written token without its outer punctuation: which kind is it, and how is it said.

use crate::numbers::{cardinal, decimal, digits, is_decimal, ordinal, year};
use crate::tables::{MONTHS, currency, is_spelt_acronym, plain_abbreviation, scale, symbol, unit};

type Words = Vec<String>;

fn said(text: &str) -> Words {
    text.split(' ').map(str::to_owned).collect()
}

/// Money, percent, time, date, ordinal, range, identifier, unit or number; none for ordinary words.
pub(crate) fn numeric(core: &str) -> Option<Words> {
    if let Some(rest) =
        core.strip_prefix('-').filter(|r| r.starts_with(|c: char| c.is_ascii_digit() || c == '$'))
    {
        return Some([said("minus"), numeric(rest)?].concat());
    }
    let bound = [('~', "about"), ('<', "less than"), ('>', "more than")];
    if let Some((rest, name)) = bound.into_iter().find_map(|(c, name)| Some((core.strip_prefix(c)?, name))) {
        return Some([said(name), numeric(rest)?].concat());
    }
    if let Some(rest) = core.strip_suffix('+') {
        return Some([numeric(rest)?, said("plus")].concat());
    }
    if !core.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    money(core)
        .or_else(|| percent(core))
        .or_else(|| time(core))
        .or_else(|| date(core))
        .or_else(|| feet_and_inches(core))
        .or_else(|| ordinal_number(core))
        .or_else(|| fraction(core))
        .or_else(|| digit_groups(core))
        .or_else(|| range(core))
        .or_else(|| plain_number(core))
        .or_else(|| decade(core))
        .or_else(|| with_unit(core))
        .or_else(|| numbered(core))
        .or_else(|| version(core))
        .or_else(|| compound(core))
        .or_else(|| identifier(core))
}

fn money(core: &str) -> Option<Words> {
    let sign = core.chars().next()?;
    let [one, many, small_one, small_many] = currency(sign)?;
    let amount = &core[sign.len_utf8()..];
    if let Some((amount, per)) = amount.split_once('/') {
        let money = money(&format!("{sign}{amount}"))?;
        return Some([money, said("per"), said(&per_word(per)?)].concat());
    }
    let letters = amount.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c == '.');
    let number = &amount[..amount.len() - letters.len()];
    if let Some(scale) = scale(letters).filter(|_| is_decimal(number)) {
        return Some([decimal(number), said(scale), said(many)].concat());
    }
    if !is_decimal(amount) {
        return None;
    }
    let (whole, cents) = amount.split_once('.').map_or((amount, ""), |(w, c)| (w, c));
    let cents: u64 = if cents.len() == 2 { cents.parse().ok()? } else { 0 };
    if amount.contains('.') && cents == 0 && !amount.ends_with(".00") {
        return Some([decimal(amount), said(many)].concat());
    }
    let big = [decimal(whole), said(if whole == "1" { one } else { many })].concat();
    let small = [cardinal(cents), said(if cents == 1 { small_one } else { small_many })].concat();
    Some(match (whole, cents) {
        (_, 0) => big,
        ("0" | "", _) => small,
        _ => [big, said("and"), small].concat(),
    })
}

fn per_word(per: &str) -> Option<String> {
    match unit(per) {
        Some((one, _)) => Some(one.into()),
        None => (!per.is_empty() && per.chars().all(char::is_alphabetic)).then(|| per.to_lowercase()),
    }
}

fn percent(core: &str) -> Option<Words> {
    let number = core.strip_suffix('%')?;
    let words = if is_decimal(number) { decimal(number) } else { range(number)? };
    Some([words, said("percent")].concat())
}

fn time(core: &str) -> Option<Words> {
    let lower = core.to_ascii_lowercase();
    let half = ["am", "pm", "a.m", "p.m"].into_iter().find(|h| lower.ends_with(h));
    let clock = lower.strip_suffix(half.unwrap_or("")).unwrap_or(&lower);
    let tail = half.map_or_else(Vec::new, |h| said(if h.starts_with('a') { "a m" } else { "p m" }));
    if let (Some(_), Ok(hour @ 1..=12)) = (half, clock.parse::<u64>()) {
        return Some([cardinal(hour), tail].concat());
    }
    let (hour, minute) = clock.split_once(':').filter(|(h, m)| h.len() <= 2 && m.len() == 2)?;
    let (hour, minute) =
        (hour.parse::<u64>().ok().filter(|&h| h < 25)?, minute.parse::<u64>().ok().filter(|&m| m < 60)?);
    let minutes = match minute {
        0 if half.is_some() => Vec::new(),
        0 if hour <= 12 => said("o'clock"),
        0 => said("hundred"),
        1..10 => [said("oh"), cardinal(minute)].concat(),
        _ => cardinal(minute),
    };
    Some([cardinal(hour), minutes, tail].concat())
}

fn date(core: &str) -> Option<Words> {
    let separator = ['-', '/', '.'].into_iter().find(|&c| core.matches(c).count() == 2)?;
    let parts: Vec<&str> = core.split(separator).collect();
    let numbers: Vec<u64> = parts.iter().map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let (year_at, month, day) = match (parts[0].len(), parts[2].len(), separator) {
        (4, 1..=2, '-' | '/' | '.') => (0, numbers[1], numbers[2]),
        (1..=2, 2 | 4, '/') => (2, numbers[0], numbers[1]),
        (1..=2, 4, '-') => (2, numbers[0], numbers[1]),
        (1..=2, 4, '.') => (2, numbers[1], numbers[0]),
        _ => return None,
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let full_year = if parts[year_at].len() == 2 { 2_000 + numbers[year_at] } else { numbers[year_at] };
    Some([said(month_name(month)), ordinal(day), year(full_year)].concat())
}

fn month_name(month: u64) -> &'static str {
    MONTHS[usize::try_from(month - 1).unwrap_or(0)]
}

fn ordinal_number(core: &str) -> Option<Words> {
    let number = ["st", "nd", "rd", "th"].into_iter().find_map(|s| core.strip_suffix(s))?.replace(',', "");
    Some(ordinal(number.parse().ok()?))
}

fn fraction(core: &str) -> Option<Words> {
    let (a, b) = core.split_once('/')?;
    let (top, bottom) = (a.parse::<u64>().ok()?, b.parse::<u64>().ok()?);
    Some(match (top, bottom) {
        (1, 2) => said("one half"),
        (1, 3) => said("one third"),
        (2, 3) => said("two thirds"),
        (1, 4) => said("one quarter"),
        (3, 4) => said("three quarters"),
        (24, 7) => said("twenty four seven"),
        (1..=12, 1..=31) => [said(month_name(top)), ordinal(bottom)].concat(),
        _ => [decimal(a), said("slash"), decimal(b)].concat(),
    })
}

/// Telephone numbers and other long digit strings: digit by digit.
fn digit_groups(core: &str) -> Option<Words> {
    let inner = core.strip_prefix('+').unwrap_or(core);
    let groups: Vec<&str> = inner.split(['-', '.']).collect();
    let all_digits = groups.iter().all(|g| !g.is_empty() && g.bytes().all(|b| b.is_ascii_digit()));
    let count: usize = groups.iter().map(|g| g.len()).sum();
    let long = (groups.len() > 2 && count >= 7) || (groups.len() == 2 && inner.contains('-') && count >= 7);
    let single = groups.len() == 1 && (count >= 7 || (count > 1 && inner.starts_with('0')));
    (all_digits && (long || single || core.starts_with('+'))).then(|| digits(inner))
}

fn feet_and_inches(core: &str) -> Option<Words> {
    let (feet, inches) = core.split_once('\'').filter(|(f, i)| is_decimal(f) && is_decimal(i))?;
    Some([decimal(feet), said("foot"), decimal(inches)].concat())
}

fn range(core: &str) -> Option<Words> {
    let (from, to) = core.split_once('-').filter(|(f, t)| !f.is_empty() && !t.is_empty())?;
    if let Some(both) = time(from).zip(time(to)).or_else(|| percent(from).zip(percent(to))) {
        return Some([both.0, said("to"), both.1].concat());
    }
    let money_sign = from.chars().next().filter(|&c| currency(c).is_some());
    let low = money_sign.map_or(from, |c| &from[c.len_utf8()..]);
    if !is_decimal(low) || to.contains('-') {
        return None;
    }
    let high = match money_sign {
        Some(sign) if is_decimal(to) => money(&format!("{sign}{to}"))?,
        _ if is_decimal(to) => decimal(to),
        _ => money(to).or_else(|| percent(to)).or_else(|| with_unit(to))?,
    };
    Some([decimal(low), said("to"), high].concat())
}

fn plain_number(core: &str) -> Option<Words> {
    if !is_decimal(core) {
        return None;
    }
    match core.parse::<u64>() {
        Ok(n @ 1_900..=2_099) if core.len() == 4 => Some(year(n)),
        _ => Some(decimal(core)),
    }
}

fn decade(core: &str) -> Option<Words> {
    let number: u64 = core.strip_suffix('s')?.trim_end_matches('\'').parse().ok()?;
    if !number.is_multiple_of(10) || number < 10 {
        return None;
    }
    let mut words = if number >= 1_000 { year(number) } else { cardinal(number) };
    let last = words.last_mut()?;
    *last = match last.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{last}s"),
    };
    Some(words)
}

fn with_unit(core: &str) -> Option<Words> {
    let letters = core.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c == '.');
    let number = &core[..core.len() - letters.len()];
    if !is_decimal(number) {
        return None;
    }
    if let Some((letters, per)) = letters.split_once('/') {
        let (_, many) = unit(letters)?;
        return Some([decimal(number), said(many), said("per"), said(&per_word(per)?)].concat());
    }
    let tail = match (letters, unit(letters), scale(letters)) {
        ("k", ..) if number.len() == 3 && number.ends_with("01") => {
            return Some([digits(&number[..1]), said("oh"), digits(&number[2..]), said("k")].concat());
        }
        (_, Some((one, _)), _) if number == "1" => said(one),
        (_, Some((_, many)), _) => said(many),
        ("K" | "k" | "M", _, Some(scale)) => said(scale),
        ("\u{b0}" | "\u{b0}F" | "\u{b0}C", ..) => said("degrees"),
        ("x", ..) => said("times"),
        _ => return None,
    };
    Some([decimal(number), tail].concat())
}

fn numbered(core: &str) -> Option<Words> {
    let rest = core.strip_prefix('#')?;
    if rest.len() > 3 && rest.bytes().all(|b| b.is_ascii_digit()) {
        return Some([said("number"), digits(rest)].concat());
    }
    Some([said("number"), numeric(rest)?].concat())
}

fn version(core: &str) -> Option<Words> {
    let parts: Vec<&str> = core.split('.').collect();
    let numbers = parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    (parts.len() > 2 && numbers).then(|| {
        let said: Vec<Words> = parts.iter().map(|p| decimal(p)).collect();
        said.join(&"point".to_owned())
    })
}

/// `30-year`, `COVID-19`, `mid-2024`: words and numbers side by side.
fn compound(core: &str) -> Option<Words> {
    let parts: Vec<&str> = core.split('-').collect();
    let is_word = |p: &str| p.len() >= 3 && p.chars().all(char::is_alphabetic);
    if parts.len() < 2 {
        return None;
    }
    let say = |p: &&str| {
        plain_number(p).or_else(|| ordinal_number(p)).or_else(|| is_word(p).then(|| vec![p.to_lowercase()]))
    };
    parts.iter().map(say).collect::<Option<Vec<_>>>().map(|words| words.concat())
}

/// Letters and digits mixed: letters spelt, digits one by one. Lower-case runs of letters stay words.
fn identifier(core: &str) -> Option<Words> {
    if core.contains(['@', '/']) || !core.chars().all(|c| c.is_ascii_alphanumeric() || "-._#".contains(c)) {
        return None;
    }
    let mut words = Vec::new();
    let mut rest = core;
    while let Some(first) = rest.chars().next() {
        let is_letter = first.is_ascii_alphabetic();
        let same =
            |c: char| c.is_ascii_alphabetic() == is_letter && c.is_ascii_digit() == first.is_ascii_digit();
        let end = rest.find(|c: char| !same(c)).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        if first.is_ascii_digit() {
            words.extend(if run.len() <= 2 && !run.starts_with('0') { decimal(run) } else { digits(run) });
        } else if is_letter && run.len() > 3 && run.chars().any(|c| c.is_ascii_lowercase()) {
            words.push(run.to_lowercase());
        } else if is_letter {
            words.extend(spell(run));
        }
        rest = tail;
    }
    Some(words)
}

/// Digits among signs that no rule knows: each digit is said, the rest stays as it is.
pub(crate) fn digit_by_digit(text: &str) -> Words {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let same = |c: char| c.is_ascii_digit() == first.is_ascii_digit();
        let (run, tail) = rest.split_at(rest.find(|c| !same(c)).unwrap_or(rest.len()));
        words.extend(if first.is_ascii_digit() { digits(run) } else { vec![run.to_lowercase()] });
        rest = tail;
    }
    words
}

fn spell(letters: &str) -> Words {
    letters.chars().filter(|c| c.is_alphabetic()).map(|c| c.to_lowercase().to_string()).collect()
}

/// Words without digits: abbreviations, acronyms, addresses, compounds.
pub(crate) fn lexical(core: &str) -> Words {
    if let Some(words) = plain_abbreviation(&core.to_lowercase()) {
        return said(words);
    }
    if core.contains('@') || core.starts_with("www.") || core.contains("://") {
        return address(core);
    }
    let mut words = Vec::new();
    for part in core.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '.' || symbol(c).is_some())) {
        push_part(part, &mut words);
    }
    words
}

fn push_part(part: &str, words: &mut Words) {
    if let Some(at) = part.find(|c: char| symbol(c).is_some() || c == '.') {
        let c = part[at..].chars().next().unwrap_or('.');
        let (left, right) = (&part[..at], &part[at + c.len_utf8()..]);
        push_part(left, words);
        match symbol(c) {
            Some(name) => words.push(name.into()),
            // acme.com, but not "wait...what" nor U.S.A.
            None if left.chars().count() > 1 && right.chars().count() > 1 && !right.starts_with('.') => {
                words.push("dot".into());
            }
            None => {}
        }
        push_part(right, words);
        return;
    }
    let word = part.trim_matches('\'');
    if word.is_empty() {
        return;
    }
    let (stem, possessive) = word.strip_suffix("'s").map_or((word, ""), |stem| (stem, "'s"));
    let capitals = stem.len() > 1 && stem.len() <= 5 && stem.bytes().all(|b| b.is_ascii_uppercase());
    let spelt = capitals && (is_spelt_acronym(stem) || !stem.contains(['A', 'E', 'I', 'O', 'U', 'Y']));
    if spelt {
        words.extend(spell(stem));
        if let Some(last) = words.last_mut() {
            last.push_str(possessive);
        }
    } else if word.contains(|c: char| c.is_ascii_digit()) {
        // Q4'23: what is left after every other reading is said piece by piece.
        let pieces = word.split('\'').filter(|p| !p.is_empty());
        words.extend(pieces.flat_map(|p| numeric(p).unwrap_or_else(|| digit_by_digit(p))));
    } else {
        let lower = word.to_lowercase();
        words.extend(plain_abbreviation(&lower).map_or_else(|| vec![lower], said));
    }
}

fn address(core: &str) -> Words {
    let core = core.split_once("://").map_or(core, |(_, rest)| rest);
    let mut words = Vec::new();
    let mut rest = core;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        if run == "www" {
            words.extend(spell(run));
        } else if !run.is_empty() {
            push_part(run, &mut words);
        }
        let mut chars = tail.chars();
        match chars.next() {
            Some('@') => words.push("at".into()),
            Some('.') => words.push("dot".into()),
            Some('/') if !chars.as_str().is_empty() => words.push("slash".into()),
            Some('-') => words.push("dash".into()),
            Some('_') => words.push("underscore".into()),
            _ => {}
        }
        rest = chars.as_str();
    }
    words
}
