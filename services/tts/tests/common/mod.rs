//! Hand-made records.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;

use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Speaker, Turn};

/// A record whose turns alternate, agent first.
pub fn record(id: &str, texts: &[&str]) -> DialogueRecord {
    let turns = (0..).zip(texts).map(|(index, text)| Turn {
        index,
        speaker: if index % 2 == 0 { Speaker::Agent } else { Speaker::User },
        text: (*text).to_owned(),
    });
    DialogueRecord {
        id: id.into(),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: "test".into(),
        text_prompt: "ROLE: agent".into(),
        turns: turns.collect(),
        context_injections: Vec::new(),
        seed: BTreeMap::new(),
        design: DesignRow { design_id: "d".into(), row: 0 },
        model: "test".into(),
        cost_microusd: 0,
    }
}

pub const CALL: [&str; 4] = [
    "Good morning, this is Anna from Harbour Insurance.",
    "Hi! Is my premium really $13,100 this year?",
    "Let me check... yes, it rose by 4.5%.",
    "Okay, that's a lot.",
];
