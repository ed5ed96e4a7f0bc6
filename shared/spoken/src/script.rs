//! `Speaker N: text` lines: one line a turn, none lost.

use domain::dialogue::{Speaker, Turn};

use crate::ascii::to_ascii_punctuation;
use crate::error::SpokenError;

/// One turn of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLine {
    /// 1 is the agent, 2 the user.
    pub speaker: u32,
    /// What is said, on one line.
    pub text: String,
}

impl ScriptLine {
    /// Who speaks; none for numbers without a voice.
    #[must_use]
    pub fn side(&self) -> Option<Speaker> {
        Speaker::from_script_number(self.speaker)
    }
}

/// Reads a script.
///
/// `speaker 1 :` in any case and spacing opens a turn, also when the same speaker had the turn before. Every other
/// line that is not blank continues the turn above it. When the numbering starts at 0, all numbers move up by one.
///
/// # Errors
/// When text precedes the first turn, a turn stays without text, or there is no turn.
pub fn parse_script(script: &str) -> Result<Vec<ScriptLine>, SpokenError> {
    let mut lines: Vec<ScriptLine> = Vec::new();
    for (number, raw) in script.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = to_ascii_punctuation(raw);
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Some((speaker, text)) = split_speaker(line) {
            let bad = || SpokenError::BadSpeaker { line: number + 1, number: speaker.into() };
            lines.push(ScriptLine { speaker: speaker.parse().map_err(|_| bad())?, text: text.into() });
        } else if let Some(open) = lines.last_mut() {
            if !open.text.is_empty() {
                open.text.push(' ');
            }
            open.text.push_str(line);
        } else {
            let text = line.chars().take(40).collect();
            return Err(SpokenError::NoSpeaker { line: number + 1, text });
        }
    }
    if lines.is_empty() {
        return Err(SpokenError::EmptyScript);
    }
    if let Some(turn) = lines.iter().position(|l| l.text.is_empty()) {
        return Err(SpokenError::EmptyTurn { turn });
    }
    if lines.iter().any(|l| l.speaker == 0) {
        lines.iter_mut().for_each(|l| l.speaker = l.speaker.saturating_add(1));
    }
    Ok(lines)
}

/// Splits `Speaker 12 : text`; none when the line does not open a turn.
fn split_speaker(line: &str) -> Option<(&str, &str)> {
    let head = line.get(..7).filter(|h| h.eq_ignore_ascii_case("speaker"))?;
    let rest = line[head.len()..].trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits);
    let text = rest.trim_start().strip_prefix(':')?;
    (digits > 0).then(|| (number, text.trim()))
}

/// Writes a script, one line a turn with `\n` at every end.
///
/// # Errors
/// When a turn has no text left after cleaning, or there is no turn.
pub fn format_script(lines: &[ScriptLine]) -> Result<String, SpokenError> {
    if lines.is_empty() {
        return Err(SpokenError::EmptyScript);
    }
    let mut out = String::new();
    for (turn, line) in lines.iter().enumerate() {
        let text = clean_turn(&line.text);
        if text.is_empty() {
            return Err(SpokenError::EmptyTurn { turn });
        }
        out.push_str(&format!("Speaker {}: {text}\n", line.speaker));
    }
    Ok(out)
}

/// Script of a dialogue; line `i` is turn `i`, since injections refer to turns by index.
///
/// # Errors
/// See [`format_script`].
pub fn script_from_turns(turns: &[Turn]) -> Result<String, SpokenError> {
    let lines: Vec<ScriptLine> = turns
        .iter()
        .map(|t| ScriptLine { speaker: t.speaker.script_number(), text: t.text.clone() })
        .collect();
    format_script(&lines)
}

/// Turns of a parsed script, numbered from 0.
///
/// # Errors
/// When a speaker is neither agent nor user.
pub fn turns_from_script(lines: &[ScriptLine]) -> Result<Vec<Turn>, SpokenError> {
    lines
        .iter()
        .enumerate()
        .map(|(turn, line)| {
            let speaker = line.side().ok_or(SpokenError::UnknownSpeaker { turn, speaker: line.speaker })?;
            Ok(Turn { index: u32::try_from(turn).unwrap_or(u32::MAX), speaker, text: line.text.clone() })
        })
        .collect()
}

/// Words of a script, for length limits.
#[must_use]
pub fn count_words(lines: &[ScriptLine]) -> usize {
    lines.iter().map(|l| l.text.split_whitespace().count()).sum()
}

/// What is left of a turn when it is to be spoken: ASCII punctuation, one line, no stage directions.
///
/// `[...]` and `*...*` go; `(...)` goes only when it names a sound, since numbers and asides stand there too.
#[must_use]
pub fn clean_turn(text: &str) -> String {
    let text = to_ascii_punctuation(text);
    let text = drop_between(&text, '[', ']', |_| true);
    let text = drop_between(&text, '*', '*', |_| true);
    let text = drop_between(&text, '(', ')', is_sound);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_sound(inside: &str) -> bool {
    const SOUNDS: [&str; 14] = [
        "laugh",
        "chuckle",
        "sigh",
        "pause",
        "silence",
        "cough",
        "clears throat",
        "beat",
        "crying",
        "sob",
        "gasp",
        "inhale",
        "exhale",
        "typing",
    ];
    let inside = inside.to_lowercase();
    SOUNDS.iter().any(|s| inside.starts_with(s))
}

fn drop_between(text: &str, open: char, close: char, drop: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(open) {
        let after = &rest[start + open.len_utf8()..];
        let Some(end) = after.find(close) else { break };
        let tail = &after[end + close.len_utf8()..];
        out.push_str(&rest[..start]);
        if drop(&after[..end]) {
            out.push(' ');
        } else {
            out.push_str(&rest[start..rest.len() - tail.len()]);
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}
