//! From an answer to the parts of a record. The tool's input is read as it is; a model that answers in text instead is
//! read too, when its text holds the same document or the tags `<brief>` and `<transcript>`.

use domain::dialogue::{Speaker, Turn};
use domain::injection::Injection;
use domain::pack::DomainPack;
use drafting::brief::FACT_SEPARATOR;
use llm::Answer;
use serde_json::Value;

/// What an answer says.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub text_prompt: String,
    pub turns: Vec<Turn>,
    pub injections: Vec<Injection>,
    /// The answer as text, to show it to the model again.
    pub text: String,
}

pub(super) fn read(pack: &DomainPack, answer: &Answer) -> Option<Read> {
    if let Some(input) = &answer.tool {
        return document(pack, input);
    }
    let text = answer.text.rsplit_once("</thinking>").map_or(answer.text.as_str(), |(_, rest)| rest);
    let between = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to));
    let json = between.and_then(|json| serde_json::from_str::<Value>(json).ok());
    json.and_then(|input| document(pack, &input)).or_else(|| tagged(text))
}

fn document(pack: &DomainPack, input: &Value) -> Option<Read> {
    let brief = input.get("brief")?;
    let line = |section: &String| {
        let body = match brief.get(section)? {
            Value::Array(facts) => {
                facts.iter().filter_map(Value::as_str).map(one_line).collect::<Vec<_>>().join(FACT_SEPARATOR)
            }
            other => one_line(other.as_str()?),
        };
        Some(format!("{section}: {body}"))
    };
    let lines: Vec<String> = pack.prompt_sections.iter().filter_map(line).collect();
    let turns: Option<Vec<Turn>> = (0..)
        .zip(input.get("turns")?.as_array()?)
        .map(|(index, turn)| {
            let speaker = serde_json::from_value(turn.get("speaker")?.clone()).ok()?;
            Some(Turn { index, speaker, text: one_line(turn.get("text")?.as_str()?) })
        })
        .collect();
    let injections: Option<Vec<Injection>> = input
        .get("injections")?
        .as_array()?
        .iter()
        .map(|injection| {
            let after_turn = u32::try_from(injection.get("after_turn")?.as_u64()?).ok()?;
            Some(Injection {
                after_turn,
                text: one_line(injection.get("text")?.as_str()?),
                frame_offset: None,
            })
        })
        .collect();
    Some(Read {
        text_prompt: lines.join("\n"),
        turns: turns?,
        injections: injections?,
        text: input.to_string(),
    })
}

/// `<brief>` with the labelled lines, `<transcript>` with lines `AGENT: …`, `USER: …` and `[INJECT: …]`.
fn tagged(text: &str) -> Option<Read> {
    let inside = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0.trim())
    };
    let (brief, transcript) = (inside("brief")?, inside("transcript")?);
    let mut read = Read {
        text_prompt: brief.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n"),
        turns: Vec::new(),
        injections: Vec::new(),
        text: text.to_owned(),
    };
    for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let next = u32::try_from(read.turns.len()).ok()?;
        if let Some(fact) = line.strip_prefix("[INJECT:").and_then(|rest| rest.strip_suffix(']')) {
            let after_turn = next.checked_sub(1)?;
            read.injections.push(Injection { after_turn, text: one_line(fact), frame_offset: None });
            continue;
        }
        let (label, said) = line.split_once(':')?;
        let speaker = match label.trim() {
            "AGENT" => Speaker::Agent,
            "USER" => Speaker::User,
            _ => return None,
        };
        read.turns.push(Turn { index: next, speaker, text: one_line(said) });
    }
    Some(read)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
