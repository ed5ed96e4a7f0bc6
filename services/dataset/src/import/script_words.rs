//! The script's words in the place of recognised ones, at their times: names, amounts and numbers as written, not as heard.

use domain::alignment::{AlignedTurn, AlignedWord};
use spoken::matching::common_words;

use super::finding::Findings;

/// Replaces the words inside each turn by those of the turn's text.
///
/// Words that both sides have keep their time. Between two such words, as many script words as the script has share the
/// time of what was heard there, in proportion to their letters, and are flagged when their number differs. A turn whose
/// text or words are missing, or of which under half was heard, stays as it is.
pub(super) fn replace(
    words: &mut Vec<AlignedWord>,
    turns: &[AlignedTurn],
    file: &str,
    findings: &mut Findings,
) {
    let mut out: Vec<AlignedWord> = Vec::with_capacity(words.len());
    let mut taken = vec![false; words.len()];
    let mut replaced = 0;
    for turn in turns {
        let heard: Vec<usize> = (0..words.len())
            .filter(|&i| {
                let (w, middle) = (&words[i], (words[i].start_ms + words[i].end_ms) / 2);
                !taken[i] && w.speaker == turn.speaker && (turn.start_ms..=turn.end_ms).contains(&middle)
            })
            .collect();
        let script: Vec<&str> = turn.text.split_whitespace().collect();
        let plain = |text: &str| -> String {
            text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        let ours: Vec<String> = script.iter().map(|w| plain(w)).collect();
        let theirs: Vec<String> = heard.iter().map(|&i| plain(&words[i].word)).collect();
        let (a, b): (Vec<&str>, Vec<&str>) =
            (ours.iter().map(String::as_str).collect(), theirs.iter().map(String::as_str).collect());
        let pairs = common_words(&a, &b);
        if heard.is_empty() || pairs.len() * 2 < script.len() {
            if !script.is_empty() {
                findings.warn("script_not_heard", format!("{file} turn {}", turn.index));
            }
            continue;
        }
        heard.iter().for_each(|&i| taken[i] = true);
        let found: Vec<AlignedWord> = heard.iter().map(|&i| words[i].clone()).collect();
        let new = lay(&script, &found, &pairs);
        replaced += new.iter().zip(&found).filter(|(n, f)| n.word != f.word).count() as u64
            + new.len().abs_diff(found.len()) as u64;
        out.extend(new);
    }
    out.extend(words.iter().zip(&taken).filter(|(_, taken)| !**taken).map(|(w, _)| w.clone()));
    out.sort_by_key(|w| w.start_ms);
    findings.repaired("word_from_script", replaced, file);
    *words = out;
}

fn lay(script: &[&str], heard: &[AlignedWord], pairs: &[(usize, usize)]) -> Vec<AlignedWord> {
    let mut out = Vec::with_capacity(script.len());
    let (mut s, mut h) = (0, 0);
    let ends = [(script.len(), heard.len())];
    for &(next_s, next_h) in pairs.iter().chain(&ends) {
        let (lost, there) = (&script[s..next_s], &heard[h..next_h]);
        if !lost.is_empty() {
            let from =
                there.first().map(|w| w.start_ms).or_else(|| heard.get(h.wrapping_sub(1)).map(|w| w.end_ms));
            let from = from.unwrap_or(heard[0].start_ms);
            let to = there.last().map(|w| w.end_ms).or_else(|| heard.get(next_h).map(|w| w.start_ms));
            let to = to.unwrap_or(from).max(from + 80 * lost.len() as u64);
            out.extend(spread(lost, from, to, heard[0].speaker, lost.len() != there.len()));
        }
        if let (Some(word), Some(time)) = (script.get(next_s), heard.get(next_h)) {
            out.push(AlignedWord { word: (*word).to_owned(), ..time.clone() });
        }
        (s, h) = (next_s + 1, next_h + 1);
    }
    out
}

fn spread(
    words: &[&str],
    from: u64,
    to: u64,
    speaker: domain::dialogue::Speaker,
    estimated: bool,
) -> impl Iterator<Item = AlignedWord> {
    let letters: Vec<u64> = words.iter().map(|w| (w.chars().count() as u64).max(1)).collect();
    let total: u64 = letters.iter().sum();
    let mut done = 0;
    words.iter().zip(letters).map(move |(word, count)| {
        let start_ms = from + (to - from) * done / total;
        done += count;
        let end_ms = from + (to - from) * done / total;
        AlignedWord { word: (*word).to_owned(), start_ms, end_ms, speaker, estimated }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::dialogue::Speaker;

    #[test]
    fn amounts_and_names_are_written_as_in_the_script_at_the_time_they_were_heard() {
        let word = |text: &str, start_ms| AlignedWord {
            word: text.into(),
            start_ms,
            end_ms: start_ms + 300,
            speaker: Speaker::Agent,
            estimated: false,
        };
        let mut words: Vec<AlignedWord> = ["it", "is", "thirteen", "thousand", "for", "miss", "no", "vac"]
            .iter()
            .zip(0..)
            .map(|(text, i)| word(text, 400 * i))
            .collect();
        let turns = [AlignedTurn {
            index: 0,
            speaker: Speaker::Agent,
            start_ms: 0,
            end_ms: 3_200,
            text: "It is $13,000 for Miss Novak.".into(),
        }];
        let mut findings = Findings::default();
        replace(&mut words, &turns, "a.json", &mut findings);
        let got: Vec<(&str, u64, u64, bool)> =
            words.iter().map(|w| (w.word.as_str(), w.start_ms, w.end_ms, w.estimated)).collect();
        assert_eq!(
            got,
            [
                ("It", 0, 300, false),
                ("is", 400, 700, false),
                ("$13,000", 800, 1500, true),
                ("for", 1600, 1900, false),
                ("Miss", 2000, 2300, false),
                ("Novak.", 2400, 3100, true)
            ]
        );
        assert!(findings.repairs_of("word_from_script") > 0);
    }
}
