//! The whole path from an aligned dialogue to training windows; what dataset and trainer call.

use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::frame::{frame_ceil, frame_floor};
use domain::injection::Injection;
use serde::{Deserialize, Serialize};

use crate::dialogue_stats::DialogueStats;
use crate::error::StreamsError;
use crate::layout::{Codes, EMPTY_FRAME, Frame, frame};
use crate::prompt::{SILENCE_FRAMES, SystemPrompt};
use crate::splice::{Span, SpliceInput, SpliceMode, SpliceRecord, Timeline, splice, splice_copying_user};
use crate::text_stream::{TextStreamConfig, Word, lay_out};
use crate::tokenizer::Tokenizer;
use crate::tokens::{AUDIO_CARD, PromptCodes};
use crate::windows::{WindowRules, cut_windows};

/// One dialogue: words with times, placed injections, and the codes of both sides (un-delayed, equal length).
#[derive(Debug, Clone, Copy)]
pub struct DialogueInput<'a> {
    /// Words of both speakers.
    pub words: &'a [AlignedWord],
    /// Injections; every one has its `frame_offset`.
    pub injections: &'a [Injection],
    /// Agent codes, one entry a frame.
    pub agent_codes: &'a [Codes],
    /// User codes, one entry a frame.
    pub user_codes: &'a [Codes],
}

/// How the view is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewConfig {
    /// Layout of the text stream.
    pub text: TextStreamConfig,
    /// How context enters.
    pub splice_mode: SpliceMode,
    /// Frames kept free before the agent's next word.
    pub guard: usize,
    /// Longest context, tags included.
    pub max_tokens_per_injection: usize,
    /// Silence and marker tone of the codec in use.
    pub codes: PromptCodes,
}

impl Default for ViewConfig {
    fn default() -> Self {
        let (text, codes) = (TextStreamConfig::default(), PromptCodes::default());
        Self { text, splice_mode: SpliceMode::default(), guard: 1, max_tokens_per_injection: 50, codes }
    }
}

/// A dialogue with its context spliced in, ready to be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplicedDialogue {
    /// Frames without prompt.
    pub frames: Vec<Frame>,
    /// True on context frames.
    pub context_mask: Vec<bool>,
    /// Frames of each agent word.
    pub agent_words: Vec<Span>,
    /// Where each context is, in order of time.
    pub records: Vec<SpliceRecord>,
    /// Text of each context, in the order of `records`.
    pub context_texts: Vec<String>,
    /// Counts.
    pub stats: DialogueStats,
}

/// Lays out the text stream and splices every injection.
///
/// # Errors
/// When the sides differ in length, a code is outside the codebook, an injection has no place, is too long or lies
/// past the end, or a text cannot be tokenized.
pub fn build_dialogue(
    input: &DialogueInput<'_>,
    tokenizer: &Tokenizer,
    config: &ViewConfig,
) -> Result<SplicedDialogue, StreamsError> {
    check_codes(input)?;
    let total = input.agent_codes.len();
    let words: Vec<Word> = input.words.iter().map(into_word).collect();
    let text = lay_out(&words, total, tokenizer, &config.text)?;
    let frames = text
        .tokens
        .iter()
        .zip(input.agent_codes)
        .zip(input.user_codes)
        .map(|((&t, a), u)| frame(t, a, u))
        .collect();
    let timeline = Timeline::new(
        frames,
        word_spans(input.words, Speaker::Agent, total),
        &word_spans(input.words, Speaker::User, total),
    );
    let inputs = splice_inputs(input, tokenizer, config)?;
    let spliced = match config.splice_mode {
        SpliceMode::OverlayThenStretch => splice(timeline, &inputs, config.guard, &config.codes)?,
        SpliceMode::InsertCopyUser => splice_copying_user(&timeline, &inputs, &config.codes)?,
    };
    let records = spliced.records;
    let stats = DialogueStats {
        text: text.stats,
        injections: records.len(),
        context_tokens: records.iter().map(|r| r.tokens).sum(),
        deferred_frames: records.iter().map(|r| r.deferred).sum(),
        inserted_frames: records.iter().map(|r| r.inserted).sum(),
        frames: total,
    };
    Ok(SplicedDialogue {
        frames: spliced.timeline.frames,
        context_mask: spliced.context_mask,
        agent_words: spliced.timeline.agent_words,
        context_texts: records.iter().map(|r| input.injections[r.injection].text.trim().to_owned()).collect(),
        records,
        stats,
    })
}

fn check_codes(input: &DialogueInput<'_>) -> Result<(), StreamsError> {
    let (agent, user) = (input.agent_codes.len(), input.user_codes.len());
    if agent != user {
        return Err(StreamsError::LengthMismatch { agent, user });
    }
    for (side, codes) in [("agent", input.agent_codes), ("user", input.user_codes)] {
        for (frame, column) in codes.iter().enumerate() {
            if let Some(&code) = column.iter().find(|c| !(0..AUDIO_CARD).contains(*c)) {
                return Err(StreamsError::BadCode { side, code, frame });
            }
        }
    }
    Ok(())
}

fn splice_inputs(
    input: &DialogueInput<'_>,
    tokenizer: &Tokenizer,
    config: &ViewConfig,
) -> Result<Vec<SpliceInput>, StreamsError> {
    let limit = config.max_tokens_per_injection;
    let place = |(index, injection): (usize, &Injection)| {
        let anchor = injection.frame_offset.ok_or(StreamsError::NotPlaced { index })?;
        let tokens = tokenizer.context_tokens(&injection.text)?;
        if tokens.len() > limit {
            return Err(StreamsError::InjectionTooLong { index, tokens: tokens.len(), limit });
        }
        Ok(SpliceInput { anchor: usize::try_from(anchor).unwrap_or(usize::MAX), tokens })
    };
    input.injections.iter().enumerate().map(place).collect()
}

fn into_word(word: &AlignedWord) -> Word {
    Word {
        text: word.word.clone(),
        start_ms: i64::try_from(word.start_ms).unwrap_or(i64::MAX),
        end_ms: i64::try_from(word.end_ms).unwrap_or(i64::MAX),
        is_main: word.speaker == Speaker::Agent,
    }
}

fn word_spans(words: &[AlignedWord], speaker: Speaker, total: usize) -> Vec<Span> {
    let clip = |frame: u64| usize::try_from(frame).unwrap_or(usize::MAX).min(total);
    let mut spans: Vec<Span> = words
        .iter()
        .filter(|w| w.speaker == speaker)
        .map(|w| (clip(frame_floor(w.start_ms)), clip(frame_ceil(w.end_ms))))
        .collect();
    spans.sort_unstable();
    spans
}

/// Prompt of a dialogue as texts and codes.
#[derive(Debug, Clone, Copy)]
pub struct PromptInput<'a> {
    /// The brief without tags; may be empty.
    pub text: &'a str,
    /// Codes of the voice clip; may be empty.
    pub voice: &'a [Codes],
    /// Length of the two silences; must equal serving.
    pub silence_frames: usize,
}

impl<'a> PromptInput<'a> {
    /// A prompt with the usual silences.
    #[must_use]
    pub fn new(text: &'a str, voice: &'a [Codes]) -> Self {
        Self { text, voice, silence_frames: SILENCE_FRAMES }
    }
}

/// What a later window knows of contexts that lie before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarryContext {
    /// Nothing; facts said there become ungrounded targets.
    None,
    /// Their texts stand at the end of the system prompt, oldest left out first when room is short.
    #[default]
    Prompt,
}

/// How windows are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowConfig {
    /// Frames of a sample including its prompt.
    pub duration_frames: usize,
    /// Bounds of the cutting.
    pub rules: WindowRules,
    /// Context of earlier windows.
    pub carry_context: CarryContext,
    /// Sampling weight of the window that begins with the conversation; the others have 1. Windows that begin in the
    /// middle teach the model to begin anywhere and to lose its greeting.
    pub first_window_weight: f64,
    /// Windows kept of one dialogue, from its beginning; none for all.
    pub max_windows: Option<usize>,
}

impl WindowConfig {
    /// Default rules for samples of `duration_frames`.
    #[must_use]
    pub fn new(duration_frames: usize) -> Self {
        Self {
            duration_frames,
            rules: WindowRules::default(),
            carry_context: CarryContext::default(),
            first_window_weight: 2.0,
            max_windows: None,
        }
    }
}

/// One training sample before padding.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Prompt and conversation, un-delayed.
    pub frames: Vec<Frame>,
    /// Frames of the prompt.
    pub prompt_len: usize,
    /// True on context frames; as long as `frames`.
    pub context_mask: Vec<bool>,
    /// Frames that are not padding.
    pub valid_frames: usize,
    /// Number of the window in its dialogue.
    pub index: usize,
    /// First conversation frame, on the spliced grid.
    pub start: usize,
    /// Frame after the last.
    pub end: usize,
    /// How often it should be drawn in relation to a window of weight 1.
    pub weight: f64,
}

impl Window {
    /// Pads to `len` frames with -1; longer windows stay as they are.
    pub fn pad_to(&mut self, len: usize) {
        if len > self.frames.len() {
            self.frames.resize(len, EMPTY_FRAME);
            self.context_mask.resize(len, false);
        }
    }
}

/// All windows of a dialogue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowSet {
    /// In order of time.
    pub windows: Vec<Window>,
    /// Cuts inside an agent word.
    pub cut_words: usize,
    /// Frames at the end that are in no window.
    pub dropped_tail_frames: usize,
    /// Windows left out by `max_windows`.
    pub dropped_windows: usize,
}

impl SplicedDialogue {
    /// Cuts the dialogue into windows, each with its prompt.
    ///
    /// # Errors
    /// When the prompt leaves too little room, a context fits in no window, or the prompt cannot be tokenized.
    pub fn windows(
        &self,
        prompt: &PromptInput<'_>,
        tokenizer: &Tokenizer,
        config: &WindowConfig,
        codes: &PromptCodes,
    ) -> Result<WindowSet, StreamsError> {
        let spans: Vec<Span> = self.records.iter().map(|r| (r.start, r.end)).collect();
        let mut prompts: Vec<SystemPrompt> = Vec::new();
        let capacity = |start: usize| {
            let system = self.prompt_at(start, prompt, tokenizer, config)?;
            let room = config.duration_frames - system.len();
            prompts.push(system);
            Ok(room)
        };
        let cut = cut_windows(self.frames.len(), &spans, &self.agent_words, &config.rules, capacity)?;
        let windows = cut
            .windows
            .iter()
            .zip(&prompts)
            .take(config.max_windows.unwrap_or(usize::MAX))
            .enumerate()
            .map(|(index, (&(start, end), system))| {
                let mut frames = system.frames(codes);
                let prompt_len = frames.len();
                frames.extend_from_slice(&self.frames[start..end]);
                let mut context_mask = vec![false; prompt_len];
                context_mask.extend_from_slice(&self.context_mask[start..end]);
                let valid_frames = frames.len();
                let weight = if start == 0 { config.first_window_weight } else { 1.0 };
                Window { frames, prompt_len, context_mask, valid_frames, index, start, end, weight }
            })
            .collect::<Vec<_>>();
        Ok(WindowSet {
            dropped_windows: cut.windows.len() - windows.len(),
            windows,
            cut_words: cut.cut_words,
            dropped_tail_frames: cut.dropped_tail_frames,
        })
    }

    fn prompt_at(
        &self,
        start: usize,
        prompt: &PromptInput<'_>,
        tokenizer: &Tokenizer,
        config: &WindowConfig,
    ) -> Result<SystemPrompt, StreamsError> {
        let earlier = self.records.iter().filter(|r| r.start < start).count();
        let mut carried = match config.carry_context {
            CarryContext::None => &[][..],
            CarryContext::Prompt => &self.context_texts[..earlier],
        };
        loop {
            let text = append_context(prompt.text, carried);
            let system = SystemPrompt {
                voice: prompt.voice.to_vec(),
                tokens: tokenizer.system_tokens(&text)?,
                silence_frames: prompt.silence_frames,
            };
            let left = config.duration_frames.saturating_sub(system.len());
            let needed = config.rules.smallest_capacity();
            if left >= needed {
                return Ok(system);
            }
            let Some((_, newer)) = carried.split_first() else {
                let (prompt_frames, duration_frames) = (system.len(), config.duration_frames);
                return Err(StreamsError::PromptTooLong { prompt_frames, duration_frames, left, needed });
            };
            carried = newer;
        }
    }
}

fn append_context(brief: &str, carried: &[String]) -> String {
    if carried.is_empty() {
        return brief.to_owned();
    }
    let brief = brief.trim().trim_start_matches("<system>").trim_end_matches("<system>").trim();
    std::iter::once(brief).chain(carried.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
}
