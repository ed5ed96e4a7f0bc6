//! Texts that a writing model is asked with (finetune.md 2.3). They follow from the pack alone, so that the system text is
//! the same for every row and can be cached.

use std::collections::BTreeMap;
use std::fmt::Write;

use domain::dialogue::Speaker;
use domain::pack::{Direction, DomainPack};
use serde_json::{Value, json};

use crate::grammar::injections_wanted;

/// Name of the tool whose call is the answer.
pub const TOOL: &str = "emit_dialogue";

/// P1: what the model is told about the domain.
#[must_use]
pub fn system(pack: &DomainPack) -> String {
    let (agent, user) = (&pack.roles.agent.title, &pack.roles.user.title);
    let opens = if pack.call.initiator == Speaker::Agent { "The agent" } else { "The user" };
    let calls = match pack.call.direction {
        Direction::Outbound => "the agent calls the user",
        Direction::Inbound => "the user calls the agent",
    };
    let [known, unknown] = [pack.sections.known.facts, pack.sections.unknown.facts];
    let rules = &pack.injections;
    let proactive = (rules.proactive_share * 100.0).round();
    let mut text = format!(
        "You write one realistic telephone call for the training of a speech model. Domain: {title}. The AGENT is: \
         {agent}. The USER is: {user}. In this call {calls}. {opens} speaks first.\n\n\
         THE BRIEF. It is what the agent knows before the call, as labelled sections in this order: {sections}. KNOWN has \
         {k0} to {k1} concrete facts (names, amounts, dates, numbers), UNKNOWN names {u0} to {u1} things that the agent \
         does not have, without their values. At most 300 words in all.\n\n\
         DISCIPLINE OF INFORMATION. The agent states KNOWN facts plainly. To a question about something UNKNOWN it hedges \
         and does not guess. It is surprised by what is in neither. It never states an amount, a percentage, a date, a \
         number or a name that is not in KNOWN, in an earlier turn or in an earlier injection.\n\n\
         INJECTIONS. An injection is coaching that the user never hears: one short sentence of at most {words} words, the \
         instruction first, then the fact. The agent may use its fact only in turns after it, and uses it soon. `after_turn` \
         is the index of the turn it follows. About {proactive}% are proactive: they follow a turn of the user that asks \
         for the fact. The others are reactive: they follow a turn of the agent that buys time with words like {cues}. Leave \
         at least {gap} turns between injections, and an agent turn after the last.\n\n\
         SPEECH. Write only what is spoken: no stage directions, brackets, markdown or speaker labels. 1 to 60 words a \
         turn, {t0} to {t1} turns. People hesitate, correct themselves, acknowledge (\"mhm\", \"right\") every few turns and \
         interrupt once or twice. Write amounts, dates and numbers in figures ($1,250, 12%, March 14). Use no mail or web \
         addresses and no telephone, card or social security numbers.\n",
        title = pack.title,
        sections = pack.prompt_sections.join(", "),
        k0 = known[0],
        k1 = known[1],
        u0 = unknown[0],
        u1 = unknown[1],
        words = pack.injections.max_tokens / 2,
        cues = rules.hedge_cues.iter().map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(", "),
        gap = rules.min_turn_gap,
        t0 = pack.call.min_turns,
        t1 = pack.call.max_turns,
    );
    for (what, lines) in
        [("must say", &pack.compliance.must_say), ("must never say", &pack.compliance.must_not_say)]
    {
        if !lines.is_empty() {
            let quoted: Vec<String> = lines.iter().map(|l| format!("\"{l}\"")).collect();
            let _ = writeln!(text, "\nThe agent {what}: {}.", quoted.join("; "));
        }
    }
    let _ = writeln!(text, "\nAnswer with one call of the tool {TOOL} and nothing else.");
    text
}

/// P2: what the model is told about a row of the design.
#[must_use]
pub fn row(pack: &DomainPack, values: &BTreeMap<String, String>) -> String {
    let mut text = String::from("Write the call with these values:\n");
    let mut turns = pack.call.min_turns;
    for axis in &pack.axes {
        let Some(value) = values.get(&axis.name).and_then(|id| axis.values.iter().find(|v| v.id == *id))
        else {
            continue;
        };
        turns = turns.max(value.turns.unwrap_or(0));
        let meaning = if value.text.is_empty() { &value.id } else { &value.text };
        let _ = writeln!(text, "- {}: {meaning}", axis.name);
        for (name, texts) in &value.set {
            let _ = writeln!(text, "  {name}: {}", texts.texts().join(" or "));
        }
    }
    let count = injections_wanted(values);
    let _ = writeln!(
        text,
        "\nExactly {count} injections. Aim at {turns} to {} turns.",
        pack.call.max_turns.min(turns + 10)
    );
    text
}

/// JSON Schema of the tool's input.
#[must_use]
pub fn tool_schema(pack: &DomainPack) -> Value {
    let line = |section: &String| {
        let list = json!({ "type": "array", "items": { "type": "string" } });
        let text = json!({ "type": "string" });
        (section.clone(), if matches!(section.as_str(), "KNOWN" | "UNKNOWN") { list } else { text })
    };
    let sections: serde_json::Map<String, Value> = pack.prompt_sections.iter().map(line).collect();
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let turn = object(
        json!({ "speaker": { "type": "string", "enum": ["AGENT", "USER"] }, "text": { "type": "string" } }),
        json!(["speaker", "text"]),
    );
    let injection = object(
        json!({ "after_turn": { "type": "integer", "minimum": 0 }, "text": { "type": "string" } }),
        json!(["after_turn", "text"]),
    );
    object(
        json!({
            "brief": object(Value::Object(sections), json!(pack.prompt_sections)),
            "turns": { "type": "array", "items": turn },
            "injections": { "type": "array", "items": injection },
        }),
        json!(["brief", "turns", "injections"]),
    )
}

/// What a judge is asked about a record (V09): to name the outcome by its id.
#[must_use]
pub fn outcome_question(pack: &DomainPack, record: &domain::dialogue::DialogueRecord) -> String {
    let mut text = String::from("How does this call end? Answer with one of these ids and nothing else:\n");
    if let Some((_, axis)) = pack.axis(domain::pack::OUTCOME_AXIS) {
        for value in &axis.values {
            let _ = writeln!(text, "{}: {}", value.id, value.text);
        }
    }
    for turn in &record.turns {
        let side = if turn.speaker == Speaker::Agent { "AGENT" } else { "USER" };
        let _ = writeln!(text, "{side}: {}", turn.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use domain::pack::built_in;

    use super::*;
    use crate::sampler::Design;

    #[test]
    fn the_texts_name_everything_that_a_record_is_checked_for() {
        for (_, pack) in built_in() {
            let text = system(&pack);
            for wanted in [&pack.roles.agent.title, &pack.title, &pack.prompt_sections.join(", ")]
                .into_iter()
                .chain(&pack.compliance.must_say)
                .chain(&pack.compliance.must_not_say)
                .chain(&pack.injections.hedge_cues)
            {
                assert!(text.contains(wanted.as_str()), "{} lacks {wanted:?}", pack.id);
            }
            assert_eq!(text, system(&pack));
            let design = Design::new(&pack, 4, 0).expect("designs");
            let values = design.values(&pack, 2).expect("is a row");
            let message = row(&pack, &values);
            assert!(
                pack.axes.iter().all(|axis| message.contains(&format!("- {}: ", axis.name))),
                "{message}"
            );
            assert!(message.contains(&format!("Exactly {} injections", injections_wanted(&values))));
            assert_eq!(tool_schema(&pack)["properties"]["brief"]["required"], json!(pack.prompt_sections));
        }
    }
}
