//! A hand-made call: tones instead of speech, with times that are known.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;

use audio::Waveform;
use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Speaker, Turn};
use domain::injection::Injection;
use domain::render::RenderReport;

/// Milliseconds of every said word, and of the pause between turns.
pub const WORD_MS: u64 = 200;
pub const PAUSE_MS: u64 = 400;

pub struct Call {
    pub record: DialogueRecord,
    pub report: RenderReport,
    pub mono: Waveform,
}

/// Turns alternate, agent first. A turn of punctuation alone takes no time. Words without a letter or digit have no
/// time of their own. Every word is a tone of [`WORD_MS`]; the agent's is lower.
pub fn call(id: &str, texts: &[&str]) -> Call {
    let said = |word: &str| word.contains(|c: char| c.is_alphanumeric());
    let (mut at, mut samples) = (0u64, Vec::new());
    let (mut turns, mut spans, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (index, text) in (0u32..).zip(texts) {
        let speaker = if index % 2 == 0 { Speaker::Agent } else { Speaker::User };
        turns.push(Turn { index, speaker, text: (*text).to_owned() });
        let audible = text.split_whitespace().any(said);
        if audible {
            at += PAUSE_MS;
        }
        let start_ms = at;
        for word in text.split_whitespace().filter(|_| audible) {
            let end_ms = at + if said(word) { WORD_MS } else { 0 };
            let estimated = !said(word);
            words.push(AlignedWord { word: word.into(), start_ms: at, end_ms, speaker, estimated });
            at = end_ms;
        }
        spans.push(AlignedTurn { index, speaker, start_ms, end_ms: at, text: (*text).to_owned() });
    }
    at += PAUSE_MS;
    samples.resize(at as usize * 24, 0.0f32);
    for word in &words {
        let hertz = if word.speaker == Speaker::Agent { 200.0 } else { 500.0 };
        let (from, to) = (word.start_ms as usize * 24, word.end_ms as usize * 24);
        for (i, sample) in (from..).zip(&mut samples[from..to]) {
            *sample = 0.3 * (i as f32 * hertz * std::f32::consts::TAU / 24_000.0).sin();
        }
    }
    let record = DialogueRecord {
        id: id.into(),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: "test".into(),
        text_prompt: "ROLE: agent".into(),
        turns,
        context_injections: vec![
            Injection { after_turn: 0, text: "Say the price.".into(), frame_offset: None },
            Injection { after_turn: 1, text: "Offer help.".into(), frame_offset: None },
        ],
        seed: BTreeMap::new(),
        design: DesignRow { design_id: "d".into(), row: 0 },
        model: "test".into(),
        cost_microusd: 0,
    };
    let report = RenderReport {
        engine: "tones".into(),
        agent_voice: "tones-a".into(),
        user_voice: "tones-b".into(),
        duration_ms: at,
        turns: spans,
        words: Some(words),
    };
    Call { record, report, mono: Waveform::mono(24_000, samples) }
}
