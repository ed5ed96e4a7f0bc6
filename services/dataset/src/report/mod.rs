//! The report of a dataset: one JSON document and one page, made when the dataset is published.

pub mod facts;
mod html;
mod numbers;
mod svg;

use domain::dataset::DatasetSummary;
use serde::{Deserialize, Serialize};
use streams::text_stream::Severity;

use crate::import::finding::Findings;
use facts::{DialogueFacts, WINDOW_SECONDS};
use numbers::rounded;

pub use html::page;
pub use numbers::{Histogram, Spread};

/// Dialogues listed by name in each warning.
const NAMED: usize = 10;
/// Briefs that are shown.
const SHOWN_PROMPTS: usize = 5;

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this shape.
    pub schema_version: u32,
    /// Name of the dataset.
    pub name: String,
    /// Its facts; none when an import was refused.
    pub summary: Option<DatasetSummary>,
    /// Where it comes from; none for generated datasets.
    pub import: Option<Findings>,
    /// What was measured; none when an import was refused.
    pub measured: Option<Measured>,
    /// Some of the briefs, to be read: what is said to a generator of texts must not stand in them.
    #[serde(default)]
    pub prompts: Vec<Prompt>,
    /// What a reader should look at.
    pub warnings: Vec<String>,
}

/// The brief of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Record id.
    pub id: String,
    /// As it stands in the sidecar.
    pub text: String,
}

/// Numbers over all dialogues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Hours of audio.
    pub hours: f64,
    /// Seconds of a dialogue.
    pub duration_s: Spread,
    /// Turns of a dialogue.
    pub turns: Spread,
    /// Words a second while the agent speaks.
    pub agent_words_per_s: Spread,
    /// Words a second while the user speaks.
    pub user_words_per_s: Spread,
    /// Share of the time in which both speak.
    pub overlap_share: Spread,
    /// Seconds from the end of the user to the start of the agent, over all changes.
    pub gap_s: Spread,
    /// Share of the gaps that are negative: the agent begins before the user ends.
    pub negative_gap_share: f64,
    /// Share of words with interpolated times.
    pub estimated_share: f64,
    /// Share of turns without any word.
    pub unaligned_turn_share: f64,
    /// Injections.
    pub injections: Injections,
    /// Levels of agent (left) and user (right), dBFS.
    pub agent_dbfs: Spread,
    /// See `agent_dbfs`.
    pub user_dbfs: Spread,
    /// Dialogues with samples at full scale.
    pub clipped_dialogues: u64,
    /// What depends on a tokenizer; none when no model is registered.
    pub tokens: Option<Tokens>,
}

/// Numbers of injections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Injections {
    /// All.
    pub total: u64,
    /// Of a dialogue.
    pub per_dialogue: Spread,
    /// In a turn of the user.
    pub proactive: u64,
    /// After a turn of the agent.
    pub reactive: u64,
    /// Where in the dialogue, 0 to 1.
    pub place: Spread,
}

/// Numbers that depend on a tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// Model whose tokenizer it is.
    pub tokenizer: String,
    /// Text tokens of the agent.
    pub total: u64,
    /// Those that found no frame.
    pub dropped: u64,
    /// Share of a dialogue.
    pub dropped_share: Spread,
    /// Dialogues above 2 %.
    pub warned_dialogues: u64,
    /// Dialogues above 10 %.
    pub failed_dialogues: u64,
    /// Tokens of all contexts.
    pub context_tokens: u64,
    /// Frames that contexts waited.
    pub deferred_frames: u64,
    /// Frames that contexts inserted.
    pub inserted_frames: u64,
    /// Windows at several sample lengths.
    pub windows: Vec<Windows>,
}

/// Windows at one sample length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Length of a sample with its prompt, seconds.
    pub seconds: f64,
    /// Windows of all dialogues.
    pub windows: u64,
    /// Those that begin with the conversation.
    pub with_start: u64,
    /// Their share.
    pub start_share: f64,
    /// Dialogues that cannot be cut at this length, with the first reason.
    pub refused_dialogues: u64,
    /// See `refused_dialogues`.
    pub first_refusal: Option<String>,
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { rounded(part / whole) } else { 0.0 }
}

impl Report {
    /// Of a published dataset.
    #[must_use]
    pub fn new(
        name: &str,
        summary: &DatasetSummary,
        facts: &[DialogueFacts],
        tokenizer: Option<&str>,
        import: Option<Findings>,
    ) -> Self {
        let measured = measure(facts, tokenizer);
        let warnings = warnings(facts, &measured, summary);
        Self {
            schema_version: 1,
            name: name.into(),
            summary: Some(summary.clone()),
            import,
            measured: Some(measured),
            prompts: prompts(facts),
            warnings,
        }
    }

    /// Of an import that was refused.
    #[must_use]
    pub fn refused(name: &str, findings: Findings) -> Self {
        Self {
            schema_version: 1,
            name: name.into(),
            summary: None,
            import: Some(findings),
            measured: None,
            prompts: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// The first, the last and those between at even distances.
fn prompts(facts: &[DialogueFacts]) -> Vec<Prompt> {
    let briefed: Vec<_> = facts.iter().filter(|f| !f.text_prompt.trim().is_empty()).collect();
    let shown = briefed.len().min(SHOWN_PROMPTS);
    let at = |i: usize| briefed[i * (briefed.len() - 1) / (shown - 1).max(1)];
    (0..shown).map(|i| Prompt { id: at(i).id.clone(), text: at(i).text_prompt.clone() }).collect()
}

fn measure(facts: &[DialogueFacts], tokenizer: Option<&str>) -> Measured {
    let spread = |value: &dyn Fn(&DialogueFacts) -> Option<f64>| Spread::of(facts.iter().filter_map(value));
    let sum = |value: &dyn Fn(&DialogueFacts) -> u64| facts.iter().map(value).sum::<u64>();
    let rate = |words: u64, seconds: f64| (seconds > 0.0).then(|| rounded(words as f64 / seconds));
    let gaps: Vec<f64> = facts.iter().flat_map(|f| f.gaps_s.iter().copied()).collect();
    let negative = gaps.iter().filter(|g| **g < 0.0).count();
    let words = sum(&|f| f.words.0 + f.words.1);
    let turns = sum(&|f| f.turns);
    Measured {
        hours: rounded(facts.iter().map(|f| f.duration_s).sum::<f64>() / 3600.0),
        duration_s: spread(&|f| Some(f.duration_s)),
        turns: spread(&|f| Some(f.turns as f64)),
        agent_words_per_s: spread(&|f| rate(f.words.0, f.speech_s.0)),
        user_words_per_s: spread(&|f| rate(f.words.1, f.speech_s.1)),
        overlap_share: spread(&|f| Some(share(f.overlap_s, f.duration_s))),
        negative_gap_share: share(negative as f64, gaps.len() as f64),
        gap_s: Spread::of(gaps),
        estimated_share: share(sum(&|f| f.estimated_words) as f64, words as f64),
        unaligned_turn_share: share(sum(&|f| f.unaligned_turns) as f64, turns as f64),
        injections: Injections {
            total: sum(&|f| f.injections.0 + f.injections.1),
            per_dialogue: spread(&|f| Some((f.injections.0 + f.injections.1) as f64)),
            proactive: sum(&|f| f.injections.0),
            reactive: sum(&|f| f.injections.1),
            place: Spread::of(facts.iter().flat_map(|f| f.injection_places.iter().map(|p| rounded(*p)))),
        },
        agent_dbfs: spread(&|f| Some(rounded(f64::from(f.levels.0.rms_dbfs)))),
        user_dbfs: spread(&|f| Some(rounded(f64::from(f.levels.1.rms_dbfs)))),
        clipped_dialogues: sum(&|f| u64::from(f.levels.0.clipped_samples + f.levels.1.clipped_samples > 0)),
        tokens: tokenizer.map(|name| tokens(facts, name)),
    }
}

fn tokens(facts: &[DialogueFacts], tokenizer: &str) -> Tokens {
    let all: Vec<&facts::TokenFacts> = facts.iter().filter_map(|f| f.tokens.as_ref()).collect();
    let sum = |value: &dyn Fn(&facts::TokenFacts) -> u64| all.iter().map(|t| value(t)).sum::<u64>();
    let windows = WINDOW_SECONDS.iter().enumerate().map(|(i, &seconds)| {
        let counts: Vec<_> = all.iter().filter_map(|t| t.windows.get(i)).collect();
        let (windows, with_start): (u64, u64) =
            (counts.iter().map(|c| c.windows).sum(), counts.iter().map(|c| c.with_start).sum());
        let refusals: Vec<&String> = counts.iter().filter_map(|c| c.fault.as_ref()).collect();
        Windows {
            seconds,
            windows,
            with_start,
            start_share: share(with_start as f64, windows as f64),
            refused_dialogues: refusals.len() as u64,
            first_refusal: refusals.first().map(|r| (*r).clone()),
        }
    });
    Tokens {
        tokenizer: tokenizer.into(),
        total: sum(&|t| t.tokens),
        dropped: sum(&|t| t.dropped),
        dropped_share: Spread::of(all.iter().map(|t| share(t.dropped as f64, t.tokens as f64))),
        warned_dialogues: sum(&|t| u64::from(t.severity == Severity::Warn)),
        failed_dialogues: sum(&|t| u64::from(t.severity == Severity::Fail)),
        context_tokens: sum(&|t| t.context_tokens),
        deferred_frames: sum(&|t| t.deferred_frames),
        inserted_frames: sum(&|t| t.inserted_frames),
        windows: windows.collect(),
    }
}

/// What usually spoils a training, in words.
fn warnings(facts: &[DialogueFacts], measured: &Measured, summary: &DatasetSummary) -> Vec<String> {
    let mut out = Vec::new();
    let named = |matches: &dyn Fn(&DialogueFacts) -> bool| -> Option<(usize, String)> {
        let ids: Vec<&str> = facts.iter().filter(|f| matches(f)).map(|f| f.id.as_str()).collect();
        (!ids.is_empty()).then(|| (ids.len(), ids[..ids.len().min(NAMED)].join(", ")))
    };
    if summary.eval_dialogues == 0 {
        out.push("no dialogue is held out: a training cannot be judged".into());
    }
    if measured.gap_s.count > 0 && measured.negative_gap_share == 0.0 && measured.overlap_share.max == 0.0 {
        out.push("the sides never overlap: models trained on pure turn-taking answer late".into());
    }
    if let Some((n, ids)) = named(&|f| f.words.1 == 0) {
        out.push(format!(
            "{n} dialogues have no words of the user: context cannot avoid the user's speech ({ids})"
        ));
    }
    if let Some((n, ids)) = named(&|f| f.levels.0.clipped_samples + f.levels.1.clipped_samples > 0) {
        out.push(format!("{n} dialogues are clipped ({ids})"));
    }
    let severity =
        |wanted: Severity| move |f: &DialogueFacts| f.tokens.as_ref().is_some_and(|t| t.severity == wanted);
    if let Some((n, ids)) = named(&severity(Severity::Fail)) {
        out.push(format!("{n} dialogues lose more than 10 % of their text tokens ({ids})"));
    }
    if let Some((n, ids)) = named(&severity(Severity::Warn)) {
        out.push(format!("{n} dialogues lose more than 2 % of their text tokens ({ids})"));
    }
    if let Some((n, ids)) = named(&|f| f.unaligned_turns > 0) {
        out.push(format!("{n} dialogues have turns without any word ({ids})"));
    }
    let injections = &measured.injections;
    let proactive = share(injections.proactive as f64, injections.total as f64);
    if injections.total >= 20 && !(0.55..=0.85).contains(&proactive) {
        out.push(format!(
            "{:.0} % of the injections are proactive; 70 % ± 15 % is aimed at",
            100.0 * proactive
        ));
    }
    for windows in measured.tokens.iter().flat_map(|t| &t.windows) {
        if let Some(reason) = &windows.first_refusal {
            let n = windows.refused_dialogues;
            out.push(format!("{n} dialogues cannot be cut into samples of {} s: {reason}", windows.seconds));
        }
    }
    out
}
