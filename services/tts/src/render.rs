//! One dialogue as sound: turn after turn, with pauses that follow from the record's id.

use audio::Waveform;
use audio::loudness::{TARGET_LUFS, integrated_lufs};
use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dialogue::{DialogueRecord, Speaker, Turn};
use domain::frame::SAMPLE_RATE;
use domain::render::RenderReport;
use spoken::script::{ScriptLine, clean_turn, count_words};

use crate::engine::{Span, SpeechEngine, Utterance};
use crate::error::TtsError;
use crate::say::Speech;
use crate::voices::{Cast, registered_name, stable_number};

/// Samples of a millisecond; every clip starts on a whole one, so that times in ms are exact.
const SAMPLES_PER_MS: usize = SAMPLE_RATE as usize / 1000;
/// Sound kept before the first and after the last word of a turn; engines add pauses of their own there.
const LEAD_MS: u64 = 40;
const TAIL_MS: u64 = 80;
/// Fade at both edges of a clip: a cut in the noise floor is audible.
const FADE_MS: usize = 5;
/// Silence before the first turn and after the last.
const START_MS: u64 = 240;
const END_MS: u64 = 400;
/// Shortest pause between turns and what is added at most.
const GAP_MS: u64 = 240;
const GAP_SPREAD_MS: u64 = 240;
/// Largest sample of a dialogue; louder ones are scaled down as a whole.
const MAX_PEAK: f32 = 0.95;

/// Sound and report of a dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendering {
    /// Mono, 24 kHz.
    pub wave: Waveform,
    /// Turn spans and word times.
    pub report: RenderReport,
}

/// Sound of one turn at the house's rate.
pub(crate) struct HouseClip {
    pub samples: Vec<f32>,
    pub words: Vec<Option<Span>>,
}

/// Refuses scripts that are too long or whose turns are not numbered from 0.
///
/// # Errors
/// `TooLong`, `Script`.
pub fn check(record: &DialogueRecord, max_words: usize) -> Result<(), TtsError> {
    let lines: Vec<ScriptLine> = record
        .turns
        .iter()
        .map(|t| ScriptLine { speaker: t.speaker.script_number(), text: clean_turn(&t.text) })
        .collect();
    let words = count_words(&lines);
    if words > max_words {
        return Err(TtsError::TooLong { id: record.id.clone(), words, limit: max_words });
    }
    let script = |reason: String| TtsError::Script { id: record.id.clone(), reason };
    if record.turns.is_empty() {
        return Err(script("it has no turns".into()));
    }
    match record.turns.iter().enumerate().find(|(i, t)| usize::try_from(t.index).ok() != Some(*i)) {
        Some((i, turn)) => Err(script(format!("turn {i} has the index {}", turn.index))),
        None => Ok(()),
    }
}

/// Renders a dialogue; blocks while the engine works.
///
/// # Errors
/// See [`check`]; also when the engine fails.
pub fn render(
    record: &DialogueRecord,
    engine: &dyn SpeechEngine,
    max_words: usize,
) -> Result<Rendering, TtsError> {
    check(record, max_words)?;
    let cast = Cast::of(&record.id, engine);
    let mut stage = Stage {
        id: &record.id,
        samples: Vec::new(),
        turns: Vec::new(),
        words: Vec::new(),
        clips: Vec::new(),
    };
    stage.silence(START_MS);
    for turn in &record.turns {
        let speech = Speech::of(&turn.text);
        if speech.words.is_empty() {
            stage.keep_silent(turn);
            continue;
        }
        let voice = match turn.speaker {
            Speaker::Agent => cast.agent,
            Speaker::User => cast.user,
        };
        let clip = house_clip(engine.synthesize(voice, &speech.words)?)?;
        stage.place(turn, &speech, clip);
    }
    stage.silence(END_MS);
    for speaker in [Speaker::Agent, Speaker::User] {
        stage.level(speaker);
    }
    soften(&mut stage.samples);
    let wave = Waveform::mono(SAMPLE_RATE, stage.samples);
    let report = RenderReport {
        engine: engine.name().to_owned(),
        agent_voice: registered_name(engine, cast.agent),
        user_voice: registered_name(engine, cast.user),
        duration_ms: wave.duration_ms(),
        turns: stage.turns,
        words: engine.capabilities().word_times.then_some(stage.words),
    };
    Ok(Rendering { wave, report })
}

/// What has been put together so far.
struct Stage<'a> {
    id: &'a str,
    samples: Vec<f32>,
    turns: Vec<AlignedTurn>,
    words: Vec<AlignedWord>,
    /// Samples of every turn with sound.
    clips: Vec<(Speaker, std::ops::Range<usize>)>,
}

impl Stage<'_> {
    fn now_ms(&self) -> u64 {
        (self.samples.len() / SAMPLES_PER_MS) as u64
    }

    fn silence(&mut self, ms: u64) {
        let samples = usize::try_from(ms).unwrap_or(usize::MAX).saturating_mul(SAMPLES_PER_MS);
        self.samples.resize(self.samples.len() + samples, 0.0);
    }

    fn push_turn(&mut self, turn: &Turn, (start_ms, end_ms): Span) {
        let (index, speaker, text) = (turn.index, turn.speaker, turn.text.clone());
        self.turns.push(AlignedTurn { index, speaker, start_ms, end_ms, text });
    }

    /// A turn without a word keeps its index and takes no time: injections refer to turns by index.
    fn keep_silent(&mut self, turn: &Turn) {
        let at = self.turns.last().map_or_else(|| self.now_ms(), |t| t.end_ms);
        self.push_turn(turn, (at, at));
    }

    /// Brings a speaker to the house's loudness: the voices of an engine differ by several dB. Sound that is too
    /// short to be measured stays as it is.
    #[expect(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
    fn level(&mut self, speaker: Speaker) {
        let own = || self.clips.iter().filter(|c| c.0 == speaker).map(|c| c.1.clone());
        let speech = own().flat_map(|clip| self.samples[clip].iter().copied()).collect();
        let Ok(loudness) = integrated_lufs(&Waveform::mono(SAMPLE_RATE, speech)) else { return };
        let gain = 10f64.powf((TARGET_LUFS - loudness) / 20.0) as f32;
        for clip in own().collect::<Vec<_>>() {
            self.samples[clip].iter_mut().for_each(|s| *s *= gain);
        }
    }

    fn place(&mut self, turn: &Turn, speech: &Speech, clip: HouseClip) {
        if !self.clips.is_empty() {
            let spread = stable_number(&format!("gap {}", turn.index), self.id) % (GAP_SPREAD_MS + 1);
            self.silence(GAP_MS + spread);
        }
        let (from, at) = (self.now_ms(), self.samples.len());
        self.samples.extend(whole_milliseconds(clip.samples));
        self.clips.push((turn.speaker, at..self.samples.len()));
        let spans: Vec<Option<Span>> = speech
            .token_spans(&clip.words)
            .into_iter()
            .map(|span| span.map(|(start, end)| (from + start, from + end)))
            .collect();
        let whole = (from, self.now_ms());
        let first = spans.iter().flatten().map(|s| s.0).min().unwrap_or(whole.0);
        let last = spans.iter().flatten().map(|s| s.1).max().unwrap_or(whole.1);
        self.push_turn(turn, (first, last));
        let mut at = first;
        for (token, span) in speech.tokens.iter().zip(spans) {
            // A token without a time has no length here; `align` gives it one between its neighbours.
            let (start_ms, end_ms) = span.unwrap_or((at, at));
            at = end_ms;
            self.words.push(AlignedWord {
                word: token.text.clone(),
                start_ms,
                end_ms,
                speaker: turn.speaker,
                estimated: span.is_none(),
            });
        }
    }
}

/// Cuts an utterance to its words and brings it to 24 kHz; word times move along.
pub(crate) fn house_clip(utterance: Utterance) -> Result<HouseClip, TtsError> {
    let Utterance { rate, samples, words } = utterance;
    let first = words.iter().flatten().map(|s| s.0).min().unwrap_or(0);
    let last = words.iter().flatten().map(|s| s.1).max().unwrap_or(u64::MAX - TAIL_MS);
    let from_ms = first.saturating_sub(LEAD_MS);
    let at = |ms: u64| {
        usize::try_from(ms.saturating_mul(u64::from(rate)) / 1000).unwrap_or(usize::MAX).min(samples.len())
    };
    let cut = samples[at(from_ms)..at(last + TAIL_MS)].to_vec();
    let house = audio::resample::to_house_rate(&Waveform::mono(rate, cut))?;
    let mut samples = house.channels.into_iter().next().unwrap_or_default();
    fade(&mut samples);
    let longest = (samples.len() / SAMPLES_PER_MS) as u64;
    let words = words
        .into_iter()
        .map(|span| span.map(|(s, e)| (s - from_ms, (e - from_ms).min(longest))).filter(|(s, e)| s < e))
        .collect();
    Ok(HouseClip { samples, words })
}

/// Fills the last millisecond.
pub(crate) fn whole_milliseconds(mut samples: Vec<f32>) -> Vec<f32> {
    samples.resize(samples.len().next_multiple_of(SAMPLES_PER_MS), 0.0);
    samples
}

#[expect(clippy::cast_precision_loss, reason = "a fade has 120 samples")]
fn fade(samples: &mut [f32]) {
    let len = (FADE_MS * SAMPLES_PER_MS).min(samples.len() / 2);
    let last = samples.len().saturating_sub(1);
    for i in 0..len {
        let gain = i as f32 / len as f32;
        samples[i] *= gain;
        samples[last - i] *= gain;
    }
}

fn soften(samples: &mut [f32]) {
    let peak = audio::levels::peak(samples);
    if peak > MAX_PEAK {
        let gain = MAX_PEAK / peak;
        samples.iter_mut().for_each(|s| *s *= gain);
    }
}
