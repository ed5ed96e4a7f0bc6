//! Dialogue records: both published variants and ours.

use std::collections::BTreeMap;

use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Speaker, Turn, is_record_id};
use domain::injection::Injection;
use serde_json::Value;

use super::finding::{Fault, Findings};
use super::labels::speaker_of;

/// What a line of a record file is.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A dialogue.
    Record(Box<DialogueRecord>),
    /// A generation that failed; there is nothing to import.
    Failed,
}

/// Reads one record; every fault of it is noted.
pub fn parse(value: &Value, file: &str, line: u64, findings: &mut Findings) -> Option<Line> {
    let mut faults = Vec::new();
    let parsed = read(value, &mut faults);
    if faults.is_empty() {
        return parsed;
    }
    for (code, detail) in faults {
        findings.fault(Fault::new(file, code, detail).at(line));
    }
    None
}

type Faults = Vec<(&'static str, String)>;

fn read(value: &Value, faults: &mut Faults) -> Option<Line> {
    let id = match value["id"].as_str() {
        Some(id) if is_record_id(id) => id.to_owned(),
        Some(id) => {
            let shown: String = id.chars().take(80).collect();
            faults.push(("record_id", format!("id {shown:?} is not 1 to 64 of A-Z a-z 0-9 . _ -")));
            return None;
        }
        None => {
            faults.push(("record_id", "the record has no id".into()));
            return None;
        }
    };
    if is_failure(value) {
        return Some(Line::Failed);
    }
    if value.get("schema_version").is_some() {
        return match serde_json::from_value::<DialogueRecord>(value.clone()) {
            Ok(record) => {
                check_injections(&record.context_injections, record.turns.len(), faults);
                check_indices(&record.turns, faults);
                Some(Line::Record(Box::new(record)))
            }
            Err(error) => {
                faults.push(("record", format!("record {id}: {error}")));
                None
            }
        };
    }
    let turns = turns(&value["dialogue"], faults);
    let context_injections = injections(&value["context_injections"], turns.len(), faults);
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Line::Record(Box::new(DialogueRecord {
        id,
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: text("domain").unwrap_or_else(|| "imported".into()),
        text_prompt: text("text_prompt").or_else(|| text("system_prompt")).unwrap_or_default(),
        turns,
        context_injections,
        seed: seed(&value["seed"]),
        design: DesignRow { design_id: "imported".into(), row: 0 },
        model: text("model").unwrap_or_else(|| "unknown".into()),
        cost_microusd: value["cost_microusd"].as_u64().unwrap_or(0),
    })))
}

fn is_failure(value: &Value) -> bool {
    let failed = value["error_type"].is_string() || value["status"] == "failed";
    let no_dialogue = value.get("dialogue").is_some_and(Value::is_null) && value.get("turns").is_none();
    failed || no_dialogue
}

fn turns(dialogue: &Value, faults: &mut Faults) -> Vec<Turn> {
    let spoken: Vec<(Option<Speaker>, String, String)> = match dialogue {
        Value::String(text) => lines_of(text, faults),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let label = item["speaker"].as_str().unwrap_or_default();
                let text = item["text"].as_str().unwrap_or_default();
                (speaker_of(label, None), label.to_owned(), text.trim().to_owned())
            })
            .collect(),
        other => {
            let found = if other.is_null() { "missing" } else { "neither text nor a list" };
            faults.push(("dialogue", format!("`dialogue` is {found}")));
            return Vec::new();
        }
    };
    if spoken.is_empty() {
        faults.push(("dialogue", "the dialogue has no turns".into()));
    }
    let mut turns = Vec::with_capacity(spoken.len());
    for (index, (speaker, label, text)) in (0u32..).zip(spoken) {
        let Some(speaker) = speaker else {
            let label: String = label.chars().take(40).collect();
            faults.push(("speaker", format!("turn {index} is of {label:?}; BROKER or CLIENT was expected")));
            continue;
        };
        if text.is_empty() {
            faults.push(("empty_turn", format!("turn {index} has no text")));
        }
        turns.push(Turn { index, speaker, text });
    }
    turns
}

/// `BROKER (Ann): …` lines between `[Call start]` and `[Call end]`; other lines go on with the turn before.
fn lines_of(text: &str, faults: &mut Faults) -> Vec<(Option<Speaker>, String, String)> {
    let mut out: Vec<(Option<Speaker>, String, String)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if line.eq_ignore_ascii_case("[call start]") || line.eq_ignore_ascii_case("[call end]") {
            continue;
        }
        let led = line.split_once(':').and_then(|(head, said)| {
            let label = head.split_once('(').map_or(head, |(label, _)| label).trim();
            let is_label = !label.is_empty() && label.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
            is_label.then(|| (speaker_of(label, None), label.to_owned(), said.trim().to_owned()))
        });
        match (led, out.last_mut()) {
            (Some(turn), _) => out.push(turn),
            (None, Some((_, _, said))) => {
                said.push(' ');
                said.push_str(line);
            }
            (None, None) => {
                let shown: String = line.chars().take(60).collect();
                faults.push(("dialogue", format!("{shown:?} comes before any speaker")));
            }
        }
    }
    out
}

/// Reads `context_injections`; a missing list is empty.
pub(super) fn injections(value: &Value, turns: usize, faults: &mut Faults) -> Vec<Injection> {
    let items = match value {
        Value::Null => return Vec::new(),
        Value::Array(items) => items,
        _ => {
            faults.push(("injection", "`context_injections` is no list".into()));
            return Vec::new();
        }
    };
    let mut out = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(after_turn) = item["after_turn"].as_u64().and_then(|t| u32::try_from(t).ok()) else {
            let found = &item["after_turn"];
            faults.push((
                "after_turn",
                format!("injection {index}: after_turn is {found}, not a turn's index"),
            ));
            continue;
        };
        let offset = &item["frame_offset"];
        let frame_offset = offset.as_u64().and_then(|f| u32::try_from(f).ok());
        if frame_offset.is_none() && !offset.is_null() {
            faults.push((
                "injection_offset",
                format!("injection {index}: frame_offset is {offset}, not a frame"),
            ));
        }
        let text = item["text"].as_str().unwrap_or_default().to_owned();
        out.push(Injection { after_turn, text, frame_offset });
    }
    check_injections(&out, turns, faults);
    out
}

fn check_injections(injections: &[Injection], turns: usize, faults: &mut Faults) {
    for (index, injection) in injections.iter().enumerate() {
        if let Err(error) = streams::tokenizer::check_context(&injection.text) {
            faults.push(("injection_text", format!("injection {index}: {error}")));
        }
        if turns > 0 && injection.after_turn as usize >= turns {
            let detail = format!(
                "injection {index}: after_turn {} is out of range: the dialogue has {turns} turns",
                injection.after_turn
            );
            faults.push(("after_turn", detail));
        }
    }
}

fn check_indices(turns: &[Turn], faults: &mut Faults) {
    if turns.is_empty() {
        faults.push(("dialogue", "the dialogue has no turns".into()));
    }
    for (position, turn) in turns.iter().enumerate() {
        if turn.index as usize != position {
            faults.push(("turn_index", format!("turn at position {position} carries index {}", turn.index)));
        }
        if turn.text.trim().is_empty() {
            faults.push(("empty_turn", format!("turn {position} has no text")));
        }
    }
}

fn seed(value: &Value) -> BTreeMap<String, String> {
    let plain = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    match value {
        Value::Null => BTreeMap::new(),
        Value::Object(axes) => axes.iter().map(|(axis, v)| (axis.clone(), plain(v))).collect(),
        other => [("seed".to_owned(), plain(other))].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ok(value: &Value) -> DialogueRecord {
        let mut findings = Findings::default();
        match parse(value, "r.jsonl", 1, &mut findings) {
            Some(Line::Record(record)) => *record,
            other => panic!("{other:?} {findings:?}"),
        }
    }

    #[test]
    fn both_published_variants_give_the_same_turns() {
        let a = ok(&json!({
            "id": "dial-00042", "text_prompt": "ROLE: x", "seed": {"mood": "calm"}, "model": "m",
            "dialogue": "[Call start]\nBROKER (Ann): Hi,\nstill me: yes\nCLIENT (Bob): Hello.\n[Call end]",
            "context_injections": [{"after_turn": 1, "text": "Quote it."}]
        }));
        let b = ok(&json!({
            "id": "adhv3-00000", "system_prompt": "ROLE: x", "assistant_name": "Ann", "seed": 7,
            "dialogue": [{"speaker": "BROKER", "text": "Hi, still me: yes"}, {"speaker": "CLIENT", "text": "Hello."}],
            "context_injections": [{"after_turn": 1, "text": "Quote it."}]
        }));
        assert_eq!(
            (&a.turns, &a.text_prompt, &a.context_injections),
            (&b.turns, &b.text_prompt, &b.context_injections)
        );
        assert_eq!(a.turns[0].speaker, Speaker::Agent);
        assert_eq!((a.seed["mood"].as_str(), b.seed["seed"].as_str()), ("calm", "7"));
        let again = ok(&serde_json::to_value(&a).expect("plain JSON"));
        assert_eq!(again, a, "our own variant is read without loss");
    }

    #[test]
    fn failures_are_told_from_faults() {
        let mut findings = Findings::default();
        let failed = json!({"id": "x", "dialogue": null, "error_type": "parse_error", "raw_response": "…"});
        assert_eq!(parse(&failed, "r.jsonl", 1, &mut findings), Some(Line::Failed));
        let bad = json!({
            "id": "x", "dialogue": [{"speaker": "ROBOT", "text": "a"}, {"speaker": "CLIENT", "text": " "}],
            "context_injections": [{"after_turn": -1, "text": "a"}, {"after_turn": 9, "text": "<context> b"}]
        });
        assert_eq!(parse(&bad, "r.jsonl", 4, &mut findings), None);
        let codes: Vec<&str> = findings.faults.iter().map(|f| f.code.as_str()).collect();
        assert_eq!(codes, ["speaker", "empty_turn", "after_turn", "injection_text", "after_turn"]);
        assert!(findings.faults.iter().all(|f| f.line == Some(4)));
    }
}
