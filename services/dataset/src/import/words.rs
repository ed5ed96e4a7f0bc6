//! Words of a sidecar: shapes checked, times put in order by stated rules, every repair counted.
//!
//! Rules, in this order. A word without text is dropped. A word without times is set between its neighbours of the same
//! speaker in proportion to its letters. A start up to 100 ms before the audio or an end up to 100 ms after it is set to the
//! edge; farther out is a fault. A word that ends where or before it starts lasts one frame (80 ms) from its start, at most
//! to the end of the audio. Words are sorted by start, those of equal start keep their order. Set times are flagged as
//! interpolated.

use serde_json::Value;

use super::finding::{Fault, Findings};

/// How far outside of the audio a word may reach, ms.
const OVERHANG_MS: i64 = 100;
/// Length given to a word without one, ms.
const SHORTEST_MS: i64 = 80;
/// Largest share of set times.
const MAX_SET_SHARE: f64 = 0.15;

/// A word with times in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedWord {
    /// As written.
    pub text: String,
    /// Label as found.
    pub label: String,
    /// Start, ms.
    pub start_ms: i64,
    /// End, ms.
    pub end_ms: i64,
    /// Whether a time was set by a rule.
    pub estimated: bool,
}

struct RawWord {
    text: String,
    label: String,
    times: Option<(f64, f64)>,
    flagged: bool,
}

/// Reads and repairs `alignments`; none when something in them is a fault.
pub fn read(value: &Value, file: &str, duration_ms: i64, findings: &mut Findings) -> Option<Vec<TimedWord>> {
    let Value::Array(items) = &value["alignments"] else {
        findings.fault(Fault::new(file, "alignments", "the sidecar has no list `alignments`"));
        return None;
    };
    let flagged: Vec<u64> = value["alignment_flags"]["interp"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    let before = findings.faults.len();
    let mut raw = Vec::with_capacity(items.len());
    for (index, item) in (0u64..).zip(items) {
        match shape(item) {
            Ok(mut word) => {
                word.flagged = flagged.contains(&index);
                if word.text.trim().is_empty() {
                    findings.repaired("empty_word_dropped", 1, format!("{file} word {index}"));
                } else {
                    raw.push(word);
                }
            }
            Err(detail) => {
                findings.fault(Fault::new(file, "alignment_shape", format!("word {index} {detail}")))
            }
        }
    }
    if let Some(fault) = wrong_unit(&raw, file, duration_ms) {
        findings.fault(fault);
        return None;
    }
    let words = place(raw, file, duration_ms, findings);
    check_share(&words, file, findings);
    (findings.faults.len() == before).then_some(words)
}

fn shape(item: &Value) -> Result<RawWord, String> {
    let shown = || item.to_string().chars().take(80).collect::<String>();
    let parts = item.as_array().ok_or_else(|| format!("is {}, not [text, [start, end], label]", shown()))?;
    let text = parts.first().and_then(Value::as_str).ok_or_else(|| format!("has no text: {}", shown()))?;
    let label = parts.get(2).and_then(Value::as_str).ok_or_else(|| format!("has no label: {}", shown()))?;
    let times = match parts.get(1) {
        None | Some(Value::Null) => None,
        Some(Value::Array(pair)) => match pair.as_slice() {
            [Value::Null, _] | [_, Value::Null] => None,
            [start, end] => Some(
                start
                    .as_f64()
                    .zip(end.as_f64())
                    .ok_or_else(|| format!("has times that are no numbers: {}", shown()))?,
            ),
            _ => return Err(format!("has not two times: {}", shown())),
        },
        Some(_) => return Err(format!("has no [start, end]: {}", shown())),
    };
    Ok(RawWord { text: text.to_owned(), label: label.to_owned(), times, flagged: false })
}

/// Times in milliseconds or samples instead of seconds.
fn wrong_unit(words: &[RawWord], file: &str, duration_ms: i64) -> Option<Fault> {
    let last = words.iter().filter_map(|w| w.times).fold(0.0, |m: f64, (_, end)| m.max(end));
    let seconds = duration_ms as f64 / 1000.0;
    let fits = |scale: f64| last / scale <= seconds + 0.1;
    if last <= 20.0 * seconds || words.len() < 2 {
        return None;
    }
    let unit = if fits(1000.0) {
        "milliseconds"
    } else if fits(24_000.0) {
        "samples"
    } else {
        return None;
    };
    let detail =
        format!("the last word ends at {last} of {seconds:.3} s: the times look like {unit}, not seconds");
    Some(Fault::new(file, "time_unit", detail))
}

fn place(raw: Vec<RawWord>, file: &str, duration_ms: i64, findings: &mut Findings) -> Vec<TimedWord> {
    let missing = raw.iter().filter(|w| w.times.is_none()).count() as u64;
    findings.repaired("untimed_word_interpolated", missing, file);
    let times = interpolate(&raw, duration_ms);
    let mut words = Vec::with_capacity(raw.len());
    for (index, (word, (start, end))) in raw.into_iter().zip(times).enumerate() {
        let mut word = TimedWord {
            estimated: word.flagged || word.times.is_none(),
            text: word.text,
            label: word.label,
            start_ms: start,
            end_ms: end,
        };
        if start < -OVERHANG_MS || end > duration_ms + OVERHANG_MS || start >= duration_ms {
            let detail = format!(
                "word {index} {:?} [{:.3}, {:.3}] lies outside of the audio of {:.3} s",
                word.text,
                start as f64 / 1000.0,
                end as f64 / 1000.0,
                duration_ms as f64 / 1000.0
            );
            findings.fault(Fault::new(file, "word_times", detail));
            continue;
        }
        let place = || format!("{file} word {index} {:?}", word.text);
        if start < 0 || end > duration_ms {
            findings.repaired("word_clamped_to_audio", 1, place());
        }
        if end <= start {
            let code = if end == start { "zero_length_word_widened" } else { "negative_length_word_widened" };
            findings.repaired(code, 1, place());
            word.estimated = true;
        }
        word.start_ms = start.max(0);
        word.end_ms = if end <= start { word.start_ms + SHORTEST_MS } else { end }.min(duration_ms);
        words.push(word);
    }
    let unsorted = words.windows(2).filter(|pair| pair[0].start_ms > pair[1].start_ms).count() as u64;
    findings.repaired("words_sorted", unsorted, file);
    words.sort_by_key(|w| w.start_ms);
    words
}

/// Milliseconds of each word; words without times share the room between their timed neighbours of the same speaker.
fn interpolate(raw: &[RawWord], duration_ms: i64) -> Vec<(i64, i64)> {
    let ms = |seconds: f64| (seconds.clamp(-1e9, 1e9) * 1000.0).round() as i64;
    let mut out: Vec<Option<(i64, i64)>> = raw.iter().map(|w| w.times.map(|(s, e)| (ms(s), ms(e)))).collect();
    let mut index = 0;
    while index < raw.len() {
        if out[index].is_some() {
            index += 1;
            continue;
        }
        let label = &raw[index].label;
        let run_end = (index..raw.len())
            .find(|&i| raw[i].times.is_some() || raw[i].label != *label)
            .unwrap_or(raw.len());
        let from = out[..index].iter().rev().flatten().next().map_or(0, |&(_, end)| end);
        let to = raw[run_end..].iter().find_map(|w| w.times).map_or(duration_ms, |(start, _)| ms(start));
        let letters: Vec<i64> =
            raw[index..run_end].iter().map(|w| (w.text.chars().count() as i64).max(1)).collect();
        let (total, room) = (letters.iter().sum::<i64>().max(1), (to - from).max(0));
        let mut done = 0;
        for (slot, count) in out[index..run_end].iter_mut().zip(&letters) {
            let start = from + room * done / total;
            done += count;
            *slot = Some((start, from + room * done / total));
        }
        index = run_end;
    }
    out.into_iter().map(|t| t.unwrap_or((0, 0))).collect()
}

fn check_share(words: &[TimedWord], file: &str, findings: &mut Findings) {
    let set = words.iter().filter(|w| w.estimated).count();
    let share = set as f64 / words.len().max(1) as f64;
    if set > 3 && share > MAX_SET_SHARE {
        let detail = format!(
            "{set} of {} words ({:.0} %) have no time of their own; at most {:.0} % may",
            words.len(),
            100.0 * share,
            100.0 * MAX_SET_SHARE
        );
        findings.fault(Fault::new(file, "too_many_estimated", detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Text, start and end in ms, whether set.
    type Shown = (String, i64, i64, bool);

    fn run(alignments: Value) -> (Option<Vec<Shown>>, Findings) {
        let mut findings = Findings::default();
        let words = read(&json!({ "alignments": alignments }), "a.json", 10_000, &mut findings);
        let words =
            words.map(|list| list.into_iter().map(|w| (w.text, w.start_ms, w.end_ms, w.estimated)).collect());
        (words, findings)
    }

    fn word(text: &str, start: f64, end: f64) -> Value {
        json!([text, [start, end], "A"])
    }

    #[test]
    fn zero_negative_and_unsorted_words_are_repaired_and_counted() {
        let (words, findings) = run(json!([
            word("c", 5.0, 5.0),
            word("b", 3.0, 2.5),
            word("a", 1.0, 1.4),
            word(" ", 1.0, 2.0),
            word("d", 9.5, 10.05),
            word("e", 9.99, 9.99)
        ]));
        let expected = [
            ("a", 1000, 1400, false),
            ("b", 3000, 3080, true),
            ("c", 5000, 5080, true),
            ("d", 9500, 10_000, false),
            ("e", 9990, 10_000, true),
        ];
        assert_eq!(words.expect("repaired"), expected.map(|(t, s, e, f)| (t.to_owned(), s, e, f)));
        let counts: Vec<(&str, u64)> = findings.repairs.iter().map(|(k, v)| (k.as_str(), v.count)).collect();
        assert_eq!(
            counts,
            [
                ("empty_word_dropped", 1),
                ("negative_length_word_widened", 1),
                ("word_clamped_to_audio", 1),
                ("words_sorted", 2),
                ("zero_length_word_widened", 2)
            ]
        );
    }

    #[test]
    fn words_without_times_share_the_gap_by_letters() {
        let (words, _) = run(json!([
            word("a", 0.0, 1.0),
            ["bb", null, "A"],
            ["cccc", [null, null], "A"],
            word("d", 4.0, 4.2)
        ]));
        let words = words.expect("interpolated");
        assert_eq!(words[1], ("bb".into(), 1000, 2000, true));
        assert_eq!(words[2], ("cccc".into(), 2000, 4000, true));
    }

    #[test]
    fn what_no_rule_covers_is_a_fault() {
        let code = |alignments: Value| {
            let (words, findings) = run(alignments);
            assert_eq!(words, None);
            findings.faults[0].code.clone()
        };
        assert_eq!(code(json!([word("a", 9.0, 12.0)])), "word_times");
        assert_eq!(code(json!([word("a", -3.0, 1.0)])), "word_times");
        assert_eq!(code(json!([word("a", 100.0, 900.0), word("b", 1000.0, 9000.0)])), "time_unit");
        assert_eq!(code(json!([["a", [1.0], "A"]])), "alignment_shape");
        assert_eq!(code(json!([["a", ["x", 2], "A"]])), "alignment_shape");
        assert_eq!(code(json!([["a", [1.0, 2.0]]])), "alignment_shape");
        assert_eq!(code(json!("none")), "alignments");
        assert_eq!(
            code(Value::from_iter((0..10).map(|i| json!([
                "x",
                if i < 5 { json!(null) } else { json!([i, i + 1]) },
                "A"
            ])))),
            "too_many_estimated"
        );
    }
}
