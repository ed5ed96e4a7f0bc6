//! Times for the words of a script.

use std::path::Path;

use crate::error::AlignerError;
use crate::frontend::{Cepstrum, FRAME_MS, Feature, Frontend, HOP, SAMPLE_RATE, features, mean};
use crate::graph::Ending;
use crate::levels::{Levels, quietest};
use crate::lexicon::{Lexicon, Pronunciation, Source};
use crate::long::trace_in_windows;
use crate::model::AcousticModel;
use crate::reading::Reading;
use crate::script::{Deviations, Part, Script};
use crate::trace::{Segment, Trace, fewest_frames, trace};

/// Frames of near-silence that are put before and after the sound: the model expects a pause there.
const PADDING: usize = 30;
/// From the start of a frame to the boundary before it, ms. Half of 25.6 - 10 ms would be the middle between two frames;
/// half of that has the smallest bias over two synthesisers (docs/QUALITY.md).
const CENTRE_MS: usize = 4;
/// How far the start of a word after a pause moves at most, ms.
const EARLIER_MS: usize = 100;
const LATER_MS: usize = 60;
/// The same for phones that begin in silence or weakly: their beginning is not heard.
const LATER_WEAK_MS: usize = 10;
/// What is left of a word at least, ms.
const SHORTEST_MS: usize = 30;
/// Quiet between words that is a pause although the path has none, ms; a closure may come on top of it.
const SHORTEST_PAUSE_MS: usize = 60;
const CLOSURE_MS: usize = 40;
/// Phones that begin weakly.
const WEAK: [&str; 6] = ["TH", "DH", "F", "V", "HH", "S"];
/// Phones that begin with a closure.
const STOPS: [&str; 8] = ["P", "B", "T", "D", "K", "G", "CH", "JH"];
/// Largest value of the noise that is added: digital silence is outside of everything the model knows.
const DITHER: f32 = 2.0;
/// Full scale of the samples that the model was trained on.
const FULL_SCALE: f32 = 32_768.0;
/// Longest sound whose deviations from the script are looked for, frames; what is longer is aligned in windows.
const MAX_CHECKED: usize = 6000;

/// When a word is said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WordTime {
    /// Start, ms.
    pub start_ms: u64,
    /// End, ms; not before the start and not after the sound.
    pub end_ms: u64,
    /// 0 (another sound) to 1 (as good as the model's own phones).
    pub confidence: f32,
    /// Whether the time follows from its neighbours instead of sound.
    pub estimated: bool,
}

/// A loaded acoustic model with its dictionary. Calls are independent and may run in parallel.
#[derive(Debug)]
pub struct Aligner {
    model: AcousticModel,
    lexicon: Lexicon,
    frontend: Frontend,
}

/// Sound prepared for alignment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound {
    cepstra: Vec<Cepstrum>,
    mean: Cepstrum,
    levels: Levels,
    duration_ms: u64,
}

impl Sound {
    /// Uses one mean for pieces of the same voice: that of a single short piece says more of its words than of the
    /// voice.
    pub fn share_mean(pieces: &mut [&mut Self]) {
        let all: Vec<Cepstrum> =
            pieces.iter().flat_map(|piece| near_sound(&piece.cepstra, &piece.levels)).collect();
        let shared = mean(&all);
        pieces.iter_mut().for_each(|piece| piece.mean = shared);
    }

    /// Milliseconds.
    #[must_use]
    pub const fn duration_ms(&self) -> u64 {
        self.duration_ms
    }

    fn features(&self) -> Vec<Feature> {
        features(&self.cepstra, &self.mean)
    }

    /// Time of a boundary between frames.
    fn at(&self, frame: usize) -> u64 {
        self.unpadded(frame * FRAME_MS + CENTRE_MS)
    }

    fn unpadded(&self, ms: usize) -> u64 {
        self.duration_ms.min(ms.saturating_sub(PADDING * FRAME_MS) as u64)
    }
}

impl Aligner {
    /// Reads the acoustic model from `en-us/` and the dictionary `cmudict-en-us.dict` of a folder.
    ///
    /// # Errors
    /// When a file is missing or of another kind.
    pub fn open(folder: &Path) -> Result<Self, AlignerError> {
        let model = AcousticModel::open(&folder.join("en-us"))?;
        let lexicon = Lexicon::open(&folder.join("cmudict-en-us.dict"), model.phones())?;
        Ok(Self { model, lexicon, frontend: Frontend::new() })
    }

    /// The acoustic model.
    #[must_use]
    pub const fn model(&self) -> &AcousticModel {
        &self.model
    }

    /// The dictionary.
    #[must_use]
    pub const fn lexicon(&self) -> &Lexicon {
        &self.lexicon
    }

    /// Prepares mono sound at 16 kHz, full scale 1. Values that are no numbers count as silence.
    #[must_use]
    pub fn sound(&self, samples: &[f32]) -> Sound {
        let padding = PADDING * HOP;
        let mut noise = Noise(0x9e37_79b9);
        let sound: Vec<f32> = samples
            .iter()
            .map(|s| if s.is_finite() { s.clamp(-1.0, 1.0) * FULL_SCALE } else { 0.0 })
            .collect();
        // Silence before noisy speech would be a sound of its own.
        let noisy = !Levels::of(&sound, 0).clear;
        let quiet = quietest(&sound).filter(|_| noisy).unwrap_or(&[0.0]);
        let pause = || quiet.iter().copied().cycle().take(padding);
        let padded: Vec<f32> =
            pause().chain(sound.iter().copied()).chain(pause()).map(|s| s + noise.next()).collect();
        let duration_ms = samples.len() as u64 * 1000 / u64::from(SAMPLE_RATE);
        let cepstra = self.frontend.cepstra(&padded);
        let levels = Levels::of(&padded, padding);
        Sound { mean: mean(&near_sound(&cepstra, &levels)), cepstra, levels, duration_ms }
    }

    /// The phones of a script in features: exact, in one piece, every word once. `None` when a word cannot be
    /// pronounced or the frames are too few.
    #[must_use]
    pub fn trace(&self, features: &[Feature], words: &[&str]) -> Option<Trace> {
        let said: Vec<Vec<Pronunciation>> = words.iter().map(|w| self.lexicon.pronounce(w).0).collect();
        let script = script_of(&said)?;
        trace(&self.model, features, &script, None, Ending::Finish)
    }

    /// Times of all words, in order and without overlap, whatever the sound holds.
    #[must_use]
    pub fn align(&self, sound: &Sound, words: &[&str]) -> Vec<WordTime> {
        self.read(sound, words, None).words
    }

    /// Times of all words, and what was said otherwise than written.
    #[must_use]
    pub fn check(&self, sound: &Sound, words: &[&str], may: &Deviations) -> Reading {
        self.read(sound, words, Some(may))
    }

    fn read(&self, sound: &Sound, words: &[&str], may: Option<&Deviations>) -> Reading {
        let said: Vec<Vec<Pronunciation>> = words.iter().map(|w| self.lexicon.pronounce(w).0).collect();
        // Words that nobody can say are no part of the graph.
        let spoken: Vec<usize> = (0..words.len()).filter(|i| !said[*i].is_empty()).collect();
        let script =
            Script { words: spoken.iter().map(|i| said[*i].as_slice()).collect(), before: Vec::new() };
        if spoken.is_empty() {
            return Reading::unread(estimated(words, sound.duration_ms));
        }
        let features = sound.features();
        let checked = may.filter(|_| features.len() <= MAX_CHECKED);
        let free = checked.and_then(|may| trace(&self.model, &features, &script, Some(may), Ending::Finish));
        let clean = free.as_ref().filter(|t| is_clean(t, spoken.len())).cloned();
        let forced = clean.or_else(|| {
            (fewest_frames(&script) <= features.len())
                .then(|| trace_in_windows(&self.model, &features, &script))?
        });
        let times = match &forced {
            Some(trace) => self.times(sound, words, &spoken, &trace.segments),
            None => estimated(words, sound.duration_ms),
        };
        Reading::new(times, forced.is_some(), &spoken, free.as_ref(), |frame| sound.at(frame))
    }

    fn times(&self, sound: &Sound, words: &[&str], spoken: &[usize], segments: &[Segment]) -> Vec<WordTime> {
        let mut times: Vec<Option<WordTime>> = vec![None; words.len()];
        let mut edges = word_edges(segments);
        if sound.levels.clear {
            self.sharpen(sound, segments, &mut edges);
        }
        for (edge, index) in edges.iter().zip(spoken) {
            let (start_ms, end_ms) = (sound.unpadded(edge.start), sound.unpadded(edge.end));
            let confidence = confidence(&segments[edge.segments.clone()]);
            // What lies in the padding alone was not heard.
            let estimated = start_ms >= end_ms;
            times[*index] = Some(WordTime { start_ms, end_ms, confidence, estimated });
        }
        between_neighbours(times, sound.duration_ms)
    }

    /// Moves the starts of words to where sound begins.
    fn sharpen(&self, sound: &Sound, segments: &[Segment], edges: &mut [Edge]) {
        let names = self.model.phones().names();
        let stop = |segment: &Segment| STOPS.contains(&names[usize::from(segment.phone)].as_str());
        let weak = |segment: &Segment| WEAK.contains(&names[usize::from(segment.phone)].as_str());
        for index in 0..edges.len() {
            let before = index.checked_sub(1).map_or(0, |i| edges[i].end);
            let (start, end) = (edges[index].start, edges[index].end);
            let limit = end.saturating_sub(SHORTEST_MS);
            if index == 0 || start > before {
                let earliest = before.max(start.saturating_sub(EARLIER_MS));
                let weak =
                    segments[edges[index].segments.clone()].first().is_some_and(|s| stop(s) || weak(s));
                let later = if weak { LATER_WEAK_MS } else { LATER_MS };
                edges[index].start =
                    sound.levels.onset(start, earliest, limit.min(start + later)).max(before);
                continue;
            }
            let own = &segments[edges[index].segments.clone()];
            let last = &segments[edges[index - 1].segments.end - 1];
            let (shortest, closure) = if own.first().is_some_and(stop) || stop(last) {
                (SHORTEST_PAUSE_MS + CLOSURE_MS, CLOSURE_MS)
            } else {
                (SHORTEST_PAUSE_MS, 0)
            };
            let from = start.saturating_sub(EARLIER_MS / 2).max(edges[index - 1].start + SHORTEST_MS);
            if let Some((quiet, loud)) = sound.levels.quiet(from, start + EARLIER_MS / 2, limit)
                && loud - quiet >= shortest
                && loud > start
            {
                edges[index].start = loud - closure;
                edges[index - 1].end = quiet;
            }
        }
    }

    /// Whether the dictionary has the word.
    #[must_use]
    pub fn knows(&self, word: &str) -> bool {
        self.lexicon.pronounce(word).1 == Source::Dictionary
    }
}

fn script_of(said: &[Vec<Pronunciation>]) -> Option<Script<'_>> {
    let words: Vec<&[Pronunciation]> = said.iter().map(Vec::as_slice).collect();
    (!words.iter().any(|w| w.is_empty())).then(|| Script { words, before: Vec::new() })
}

/// Whether every word was said once and nothing else.
fn is_clean(trace: &Trace, words: usize) -> bool {
    let mut said = trace.segments.iter().filter(|s| s.begins).map(|s| s.part);
    (0..words).all(|i| said.next() == Some(Part::Word(i))) && said.next().is_none()
}

/// A word on the path, in ms from the start of the padding.
struct Edge {
    start: usize,
    end: usize,
    segments: std::ops::Range<usize>,
}

fn word_edges(segments: &[Segment]) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut from = 0;
    for group in segments.chunk_by(|a, b| a.part == b.part) {
        let range = from..from + group.len();
        from = range.end;
        if let Part::Word(_) = group[0].part {
            let at = |frame: usize| frame * FRAME_MS + CENTRE_MS;
            edges.push(Edge {
                start: at(group[0].start),
                end: at(group[group.len() - 1].end),
                segments: range,
            });
        }
    }
    edges
}

/// How much worse a word scores than the best phones without context, per frame, on a scale of 0 to 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a word has few frames")]
pub(crate) fn confidence(segments: &[Segment]) -> f32 {
    let frames: usize = segments.iter().map(|s| s.end - s.start).sum();
    let lost: f64 = segments.iter().map(|s| s.background - s.score).sum::<f64>() / frames.max(1) as f64;
    (1.0 / (1.0 + ((lost - HALF_LOSS) / LOSS_SCALE).exp())) as f32
}

/// Loss per frame at which confidence is one half, nats: 99 % of rightly placed words lose less than 2.5, half of the
/// wrong ones more than 7.5.
const HALF_LOSS: f64 = 6.0;
const LOSS_SCALE: f64 = 1.2;

/// Cepstra not further than the padding from sound; all when nothing is heard. The mean over long pauses would say
/// nothing of the voice.
fn near_sound(cepstra: &[Cepstrum], levels: &Levels) -> Vec<Cepstrum> {
    let loud: Vec<bool> = (0..cepstra.len()).map(|frame| levels.loud(frame * FRAME_MS + FRAME_MS)).collect();
    let mut near = vec![false; loud.len()];
    for frame in (0..loud.len()).filter(|frame| loud[*frame]) {
        near[frame.saturating_sub(PADDING)..(frame + PADDING + 1).min(loud.len())].fill(true);
    }
    let kept: Vec<Cepstrum> = cepstra.iter().zip(&near).filter(|(_, near)| **near).map(|(c, _)| *c).collect();
    if kept.is_empty() { cepstra.to_vec() } else { kept }
}

/// All words spread over the sound in proportion to their letters.
fn estimated(words: &[&str], duration_ms: u64) -> Vec<WordTime> {
    between_neighbours(words.iter().map(|_| None).collect(), duration_ms)
        .into_iter()
        .zip(spread(words, 0, duration_ms))
        .map(|(time, (start_ms, end_ms))| WordTime { start_ms, end_ms, ..time })
        .collect()
}

fn spread(words: &[&str], from: u64, to: u64) -> Vec<(u64, u64)> {
    let letters = |word: &&str| word.chars().count().max(1) as u64;
    let total = words.iter().map(letters).sum::<u64>().max(1);
    let mut seen = 0;
    words
        .iter()
        .map(|word| {
            let start = from + (to - from) * seen / total;
            seen += letters(word);
            (start, from + (to - from) * seen / total)
        })
        .collect()
}

/// Words without a time lie between the end of the one before and the start of the one after.
fn between_neighbours(times: Vec<Option<WordTime>>, duration_ms: u64) -> Vec<WordTime> {
    let mut next_start = duration_ms;
    let mut starts_after = vec![0; times.len()];
    for (slot, time) in starts_after.iter_mut().zip(&times).rev() {
        *slot = next_start;
        if let Some(time) = time {
            next_start = time.start_ms;
        }
    }
    let mut end = 0;
    times
        .into_iter()
        .zip(starts_after)
        .map(|(time, after)| {
            let time = time.unwrap_or(WordTime {
                start_ms: end,
                end_ms: after.max(end),
                confidence: 0.0,
                estimated: true,
            });
            end = time.end_ms;
            time
        })
        .collect()
}

/// Uniform noise of fixed seed: equal sound gives equal times.
struct Noise(u32);

impl Noise {
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit into f32")]
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 8) as f32 / 8_388_608.0 - 1.0) * DITHER
    }
}
