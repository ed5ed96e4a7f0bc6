//! Finds the words of every turn in the sound.

use std::ops::Range;

use aligner::{Aligner, Deviations, Reading, Sound};
use audio::Waveform;
use audio::levels::rms_dbfs;
use audio::resample::resample;
use domain::dialogue::{DialogueRecord, Speaker};
use domain::render::RenderReport;
use spoken::normalise;
use spoken::script::clean_turn;

use crate::error::AlignError;
use crate::fill::Span;
use crate::words::{TimedWords, check_turns, place_silent, timed_turn};

/// Sound before and after a turn's reported span that belongs to it when no other turn does, ms.
const MARGIN_MS: u64 = 200;
/// Longest fading out of a last word.
const FADE_MS: u64 = 300;
/// Sound is looked for in steps of 10 ms.
const STEP_MS: u64 = 10;
const STEP_SAMPLES: usize = 160;
/// Below this level there is none, not even a breath.
const SILENCE_DBFS: f32 = -90.0;

/// What was heard of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReading {
    /// Index of the turn.
    pub index: u32,
    /// Where it was looked for, ms.
    pub window: Span,
    /// What was said; times are relative to the window.
    pub reading: Reading,
}

/// A turn with the sound in which it is looked for.
struct Piece {
    position: usize,
    speaker: Speaker,
    /// Written tokens.
    tokens: Vec<String>,
    /// Words of each token in `words`.
    spans: Vec<Range<usize>>,
    words: Vec<String>,
    window: Span,
    /// Behind this there is silence up to the end of the window: no word lasts longer.
    audible_to: u64,
    sound: Sound,
}

/// Gives every token its time from the sound between the turn's neighbours.
///
/// # Errors
/// When the report is of another script or the sound cannot be resampled.
pub fn hear_words(
    aligner: &Aligner,
    record: &DialogueRecord,
    report: &RenderReport,
    mono: &Waveform,
) -> Result<(TimedWords, Vec<TurnReading>), AlignError> {
    check_turns(record, report)?;
    let low = resample(mono, aligner::frontend::SAMPLE_RATE)?;
    let samples = low.channels.first().map(Vec::as_slice).unwrap_or_default();
    let mut pieces: Vec<Piece> =
        (0..record.turns.len()).filter_map(|i| piece(aligner, record, report, samples, i)).collect();
    for speaker in [Speaker::Agent, Speaker::User] {
        let own = pieces.iter_mut().filter(|p| p.speaker == speaker).map(|p| &mut p.sound);
        Sound::share_mean(&mut own.collect::<Vec<_>>());
    }
    let (mut timed, mut readings) = (TimedWords::default(), Vec::new());
    let mut next = pieces.iter().peekable();
    for (position, turn) in record.turns.iter().enumerate() {
        let Some(piece) = next.next_if(|p| p.position == position) else {
            timed.turns.push(timed_turn(turn, (0, 0)));
            continue;
        };
        let words: Vec<&str> = piece.words.iter().map(String::as_str).collect();
        let reading = aligner.check(&piece.sound, &words, &Deviations::default());
        let tokens: Vec<&str> = piece.tokens.iter().map(String::as_str).collect();
        timed.add(turn, &tokens, &token_spans(piece, &reading), piece.window);
        readings.push(TurnReading { index: turn.index, window: piece.window, reading });
    }
    place_silent(&mut timed.turns, report.duration_ms);
    Ok((timed, readings))
}

/// The turn's tokens and sound; none for a turn that takes no time or has no token.
fn piece(
    aligner: &Aligner,
    record: &DialogueRecord,
    report: &RenderReport,
    samples: &[f32],
    position: usize,
) -> Option<Piece> {
    let (turn, place) = (&record.turns[position], &report.turns[position]);
    let spoken = normalise(&clean_turn(&turn.text));
    if place.start_ms >= place.end_ms.min(report.duration_ms) || spoken.tokens.is_empty() {
        return None;
    }
    let timed = |turns: &[domain::alignment::AlignedTurn]| -> Vec<Span> {
        turns.iter().filter(|t| t.start_ms < t.end_ms).map(|t| (t.start_ms, t.end_ms)).collect()
    };
    let before = timed(&report.turns[..position]).iter().map(|s| s.1).max().unwrap_or(0);
    let after = timed(&report.turns[position + 1..]).iter().map(|s| s.0).min().unwrap_or(u64::MAX);
    let from = place.start_ms.saturating_sub(MARGIN_MS).max(before.min(place.start_ms));
    let to = (place.end_ms + MARGIN_MS).min(after.max(place.end_ms)).min(report.duration_ms);
    let at = |ms: u64| usize::try_from(ms * 16).unwrap_or(usize::MAX).min(samples.len());
    Some(Piece {
        position,
        speaker: turn.speaker,
        tokens: spoken.tokens.iter().map(|t| t.text.clone()).collect(),
        spans: spoken.tokens.iter().map(|t| t.span.clone()).collect(),
        words: spoken.words,
        window: (from, to),
        audible_to: from + audible_ms(&samples[at(from)..at(to)]),
        sound: aligner.sound(&samples[at(from)..at(to)]),
    })
}

/// Milliseconds up to the last sound in samples at 16 kHz. The last phone of a turn would take silence behind it in.
fn audible_ms(samples: &[f32]) -> u64 {
    let mut steps = samples.chunks(STEP_SAMPLES);
    let last = steps.rposition(|step| rms_dbfs(step) > SILENCE_DBFS);
    last.map_or(0, |step| (step as u64 + 1) * STEP_MS)
}

/// From the first to the last measured word of every token: ascending and inside the window.
fn token_spans(piece: &Piece, reading: &Reading) -> Vec<Option<Span>> {
    let (from, to) = piece.window;
    let mut free_from = from;
    let mut spans: Vec<Option<Span>> = piece
        .spans
        .iter()
        .map(|span| {
            let words = reading.words.get(span.clone()).unwrap_or_default().iter().filter(|w| !w.estimated);
            let start = words.clone().map(|w| from + w.start_ms).min()?.max(free_from);
            let end = words.map(|w| from + w.end_ms).max()?.min(to).min(piece.audible_to.max(start + 1));
            (start < end).then(|| {
                free_from = end;
                (start, end)
            })
        })
        .collect();
    // The last word fades out: its turn ends with the sound.
    if let Some(Some((_, end))) = spans.last_mut()
        && (*end..=*end + FADE_MS).contains(&piece.audible_to)
    {
        *end = piece.audible_to;
    }
    spans
}
