//! Who is on which side: agent left, user right (finetune.md 1.4).

use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::frame::ms_to_samples;

use crate::error::AudioError;
use crate::levels::energy;
use crate::wav::Waveform;

/// Length of the linear fade at both edges of a segment, ms.
pub const FADE_MS: u64 = 10;

/// A stretch in which one side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Who.
    pub speaker: Speaker,
    /// Start of the first word, ms.
    pub start_ms: u64,
    /// End of the last word, ms.
    pub end_ms: u64,
}

/// Where the gap between two segments is split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Boundary {
    /// In its middle.
    #[default]
    Midpoint,
    /// In its quietest 10 ms, so that no breath or late consonant is cut.
    LowestEnergy,
}

/// Joins consecutive words of the same speaker.
#[must_use]
pub fn segments_from_words(words: &[AlignedWord]) -> Vec<Segment> {
    let mut sorted: Vec<&AlignedWord> = words.iter().collect();
    sorted.sort_by_key(|w| w.start_ms);
    let mut segments: Vec<Segment> = Vec::new();
    for word in sorted {
        match segments.last_mut().filter(|s| s.speaker == word.speaker) {
            Some(segment) => segment.end_ms = segment.end_ms.max(word.end_ms),
            None => {
                segments.push(Segment { speaker: word.speaker, start_ms: word.start_ms, end_ms: word.end_ms })
            }
        }
    }
    segments
}

/// Routes a mono recording: every sample goes to one side, the other is digital zero.
///
/// Segments are in order of time. The first extends to the start, the last to the end; 10 ms fades at the edges.
///
/// # Errors
/// When there is no segment.
pub fn route_stereo(
    mono: &[f32],
    rate: u32,
    segments: &[Segment],
    boundary: Boundary,
) -> Result<Waveform, AudioError> {
    if segments.is_empty() {
        return Err(AudioError::NoSegments);
    }
    let mut edges = vec![0];
    for pair in segments.windows(2) {
        let edge = split(mono, rate, pair[0].end_ms, pair[1].start_ms, boundary);
        edges.push(edge.clamp(edges[edges.len() - 1], mono.len()));
    }
    edges.push(mono.len());
    let mut sides = [vec![0.0; mono.len()], vec![0.0; mono.len()]];
    for (segment, edge) in segments.iter().zip(edges.windows(2)) {
        let side = &mut sides[side_of(segment.speaker)][edge[0]..edge[1]];
        side.copy_from_slice(&mono[edge[0]..edge[1]]);
        fade(side, samples_at(FADE_MS, rate));
    }
    let [left, right] = sides;
    Ok(Waveform::stereo(rate, left, right))
}

fn side_of(speaker: Speaker) -> usize {
    match speaker {
        Speaker::Agent => 0,
        Speaker::User => 1,
    }
}

fn samples_at(ms: u64, rate: u32) -> usize {
    usize::try_from(ms_to_samples(ms, rate)).unwrap_or(usize::MAX)
}

fn split(mono: &[f32], rate: u32, end_ms: u64, start_ms: u64, boundary: Boundary) -> usize {
    let middle = samples_at(u64::midpoint(end_ms, start_ms), rate);
    if boundary == Boundary::Midpoint {
        return middle;
    }
    let (from, to) = (samples_at(end_ms, rate).min(mono.len()), samples_at(start_ms, rate).min(mono.len()));
    let frame = samples_at(10, rate).max(1);
    let gap = mono.get(from..to).unwrap_or(&[]);
    gap.chunks_exact(frame)
        .enumerate()
        .min_by(|a, b| energy(a.1).total_cmp(&energy(b.1)))
        .map_or(middle, |(i, _)| from + i * frame + frame / 2)
}

#[expect(clippy::cast_precision_loss, reason = "a fade has a few hundred samples")]
fn fade(samples: &mut [f32], fade: usize) {
    let fade = fade.min(samples.len() / 2);
    let len = samples.len();
    for i in 0..fade {
        let gain = i as f32 / fade as f32;
        samples[i] *= gain;
        samples[len - 1 - i] *= gain;
    }
}

/// Sound of one turn with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    /// Whose side.
    pub speaker: Speaker,
    /// Sample of the result at which it starts.
    pub start_sample: usize,
    /// The sound.
    pub samples: Vec<f32>,
}

/// Puts clips on their sides; clips may overlap. `total` cuts or extends the result.
#[must_use]
pub fn assemble(clips: &[Clip], total: Option<usize>, rate: u32) -> Waveform {
    let end = clips.iter().map(|c| c.start_sample + c.samples.len()).max().unwrap_or(0);
    let len = total.unwrap_or(end);
    let mut sides = [vec![0.0; len], vec![0.0; len]];
    for clip in clips {
        let side = sides[side_of(clip.speaker)].iter_mut().skip(clip.start_sample);
        side.zip(&clip.samples).for_each(|(to, from)| *to += from);
    }
    let [left, right] = sides;
    Waveform::stereo(rate, left, right)
}
