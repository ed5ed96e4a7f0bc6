//! Numbers of one dialogue for the report.

use audio::Waveform;
use audio::levels::{peak, rms_dbfs};
use domain::alignment::AlignedWord;
use domain::dialogue::{DialogueRecord, Speaker};
use domain::frame::frames_for_samples;
use domain::manifest::Sidecar;
use serde::{Deserialize, Serialize};
use streams::text_stream::Severity;
use streams::{
    CarryContext, DialogueInput, PromptCodes, PromptInput, StreamsError, Tokenizer, ViewConfig, WindowConfig,
    build_dialogue,
};

/// Lengths of samples for which windows are counted, seconds. The third is the default of a training.
pub const WINDOW_SECONDS: [f64; 4] = [60.0, 100.0, 163.84, 240.0];
/// Frames of a voice clip and of silence that a prompt is taken to have where the clip is not measured: 10 s.
const VOICE_FRAMES: usize = 125;
/// A sample at or above this counts as clipped.
const CLIPPED: f32 = 0.999;

/// Level of one audio channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Root mean square, dBFS.
    pub rms_dbfs: f32,
    /// Largest magnitude, 0 to 1.
    pub peak: f32,
    /// Samples at full scale.
    pub clipped_samples: u64,
}

impl Level {
    fn of(samples: &[f32]) -> Self {
        let clipped = samples.iter().filter(|s| s.abs() >= CLIPPED).count();
        Self { rms_dbfs: rms_dbfs(samples), peak: peak(samples), clipped_samples: clipped as u64 }
    }
}

/// Windows that a dialogue gives at one sample length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowCount {
    /// Length of a sample with its prompt, seconds.
    pub seconds: f64,
    /// Windows.
    pub windows: u64,
    /// Windows that begin with the conversation.
    pub with_start: u64,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// What depends on a tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenFacts {
    /// Text tokens of the agent's words.
    pub tokens: u64,
    /// Those that found no frame.
    pub dropped: u64,
    /// What that share means.
    pub severity: Severity,
    /// Tokens of all contexts.
    pub context_tokens: u64,
    /// Frames that contexts waited for the agent.
    pub deferred_frames: u64,
    /// Frames that contexts inserted.
    pub inserted_frames: u64,
    /// Counts of windows.
    pub windows: Vec<WindowCount>,
    /// Why the view could not be built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Numbers of one dialogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DialogueFacts {
    /// Record id.
    pub id: String,
    /// The brief.
    pub text_prompt: String,
    /// Length of the audio, seconds.
    pub duration_s: f64,
    /// Turns.
    pub turns: u64,
    /// Turns without any word.
    pub unaligned_turns: u64,
    /// Words of the agent and of the user.
    pub words: (u64, u64),
    /// Words with interpolated times.
    pub estimated_words: u64,
    /// Seconds in which each side has a word.
    pub speech_s: (f64, f64),
    /// Seconds in which both have.
    pub overlap_s: f64,
    /// Silence from the end of a user's turn to the start of the agent's next, seconds; negative where they overlap.
    pub gaps_s: Vec<f64>,
    /// Injections that fall into a turn of the user, and that follow one of the agent.
    pub injections: (u64, u64),
    /// Where each injection lies in the dialogue, 0 to 1.
    pub injection_places: Vec<f64>,
    /// Agent (left) and user (right).
    pub levels: (Level, Level),
    /// What depends on a tokenizer; none without one.
    pub tokens: Option<TokenFacts>,
}

impl DialogueFacts {
    /// Reads the numbers off a published dialogue.
    #[must_use]
    pub fn gather(
        record: &DialogueRecord,
        sidecar: &Sidecar,
        wave: &Waveform,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let words = sidecar.words(Speaker::Agent.published_label());
        let of = |speaker: Speaker| words.iter().filter(move |w| w.speaker == speaker);
        let frames = frames_for_samples(wave.len());
        let (agent, user) = (covered(of(Speaker::Agent)), covered(of(Speaker::User)));
        let channel = |i: usize| Level::of(wave.channels.get(i).map_or(&[][..], Vec::as_slice));
        let (proactive, reactive) = placements(record, sidecar);
        let place = |offset: u32| f64::from(offset) / frames.max(1) as f64;
        Self {
            id: record.id.clone(),
            text_prompt: sidecar.text_prompt.clone(),
            duration_s: wave.duration_ms() as f64 / 1000.0,
            turns: sidecar.turns.len() as u64,
            unaligned_turns: sidecar.turns.iter().filter(|t| t.end <= t.start).count() as u64,
            words: (of(Speaker::Agent).count() as u64, of(Speaker::User).count() as u64),
            estimated_words: words.iter().filter(|w| w.estimated).count() as u64,
            speech_s: (seconds(total(&agent)), seconds(total(&user))),
            overlap_s: seconds(common(&agent, &user)),
            gaps_s: gaps(sidecar),
            injections: (proactive, reactive),
            injection_places: sidecar
                .context_injections
                .iter()
                .filter_map(|i| i.frame_offset)
                .map(place)
                .collect(),
            levels: (channel(0), channel(1)),
            tokens: tokenizer.map(|t| token_facts(&words, sidecar, frames, t)),
        }
    }
}

type Intervals = Vec<(u64, u64)>;

/// Union of the words' times, ms.
fn covered<'w>(words: impl Iterator<Item = &'w AlignedWord>) -> Intervals {
    let mut spans: Intervals = words.map(|w| (w.start_ms, w.end_ms)).collect();
    spans.sort_unstable();
    let mut out: Intervals = Vec::new();
    for (start, end) in spans {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

fn total(spans: &Intervals) -> u64 {
    spans.iter().map(|(start, end)| end.saturating_sub(*start)).sum()
}

fn common(a: &Intervals, b: &Intervals) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        sum += x.1.min(y.1).saturating_sub(x.0.max(y.0));
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    sum
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Agent turns that follow a user turn.
fn gaps(sidecar: &Sidecar) -> Vec<f64> {
    let agent = Speaker::Agent.published_label();
    sidecar
        .turns
        .windows(2)
        .filter(|pair| pair[0].speaker != agent && pair[1].speaker == agent)
        .map(|pair| ((pair[1].start - pair[0].end) * 1000.0).round() / 1000.0)
        .collect()
}

fn placements(record: &DialogueRecord, sidecar: &Sidecar) -> (u64, u64) {
    let is_user = |after_turn: u32| {
        record.turns.get(after_turn as usize).is_some_and(|turn| turn.speaker == Speaker::User)
    };
    let proactive = sidecar.context_injections.iter().filter(|i| is_user(i.after_turn)).count() as u64;
    (proactive, sidecar.context_injections.len() as u64 - proactive)
}

fn token_facts(words: &[AlignedWord], sidecar: &Sidecar, frames: usize, tokenizer: &Tokenizer) -> TokenFacts {
    // Only the number of frames matters here, not what they sound like.
    let codes = vec![[0; 8]; frames];
    let input = DialogueInput {
        words,
        injections: &sidecar.context_injections,
        agent_codes: &codes,
        user_codes: &codes,
    };
    let view = match build_dialogue(&input, tokenizer, &ViewConfig::default()) {
        Ok(view) => view,
        Err(error) => return no_view(&error),
    };
    let voice = vec![[0; 8]; if sidecar.voice_prompt.is_some() { VOICE_FRAMES } else { 0 }];
    let prompt = PromptInput::new(&sidecar.text_prompt, &voice);
    let windows = WINDOW_SECONDS.map(|length| {
        let config = WindowConfig {
            carry_context: CarryContext::Prompt,
            ..WindowConfig::new((length * domain::frame::FRAME_RATE).round() as usize)
        };
        match view.windows(&prompt, tokenizer, &config, &PromptCodes::default()) {
            Ok(set) => WindowCount {
                seconds: length,
                windows: set.windows.len() as u64,
                with_start: set.windows.iter().filter(|w| w.start == 0).count() as u64,
                fault: None,
            },
            Err(error) => {
                WindowCount { seconds: length, windows: 0, with_start: 0, fault: Some(error.to_string()) }
            }
        }
    });
    let stats = &view.stats;
    TokenFacts {
        tokens: stats.text.tokens as u64,
        dropped: stats.text.tokens_dropped as u64,
        severity: stats.text.severity(),
        context_tokens: stats.context_tokens as u64,
        deferred_frames: stats.deferred_frames as u64,
        inserted_frames: stats.inserted_frames as u64,
        windows: windows.into(),
        fault: None,
    }
}

fn no_view(error: &StreamsError) -> TokenFacts {
    TokenFacts {
        tokens: 0,
        dropped: 0,
        severity: Severity::Fail,
        context_tokens: 0,
        deferred_frames: 0,
        inserted_frames: 0,
        windows: Vec::new(),
        fault: Some(error.to_string()),
    }
}
