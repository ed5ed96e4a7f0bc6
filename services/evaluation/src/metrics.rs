//! What is measured of a played dialogue: pure functions of frames.

use std::collections::BTreeMap;

use audio::levels::frame_levels;
use client::chat::TextPiece;
use domain::frame::SAMPLES_PER_FRAME;
use domain::session::SessionStats;
use serde::Serialize;

use crate::scenario::frame_seconds;
use crate::stats::median;

/// A frame below this level is silence.
pub const SILENCE_DBFS: f32 = -45.0;
/// Speech begins with two frames in a row above it: a click is shorter.
const ONSET_FRAMES: usize = 2;
/// An answer that comes later than this is none.
const LONGEST_GAP_FRAMES: u64 = 125;

/// Which way a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// Neither by itself.
    Neither,
}

/// Facts about a metric.
#[derive(Debug, Clone, Copy)]
pub struct MetricInfo {
    /// Key.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Unit, may be empty.
    pub unit: &'static str,
    /// Family for multiple testing.
    pub family: &'static str,
    /// Direction.
    pub better: Better,
}

const fn metric(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    family: &'static str,
    better: Better,
) -> MetricInfo {
    MetricInfo { name, title, unit, family, better }
}

/// Every metric, in the order of the report.
pub const METRICS: &[MetricInfo] = &[
    metric("silence_share", "Agent silent", "share of frames", "behaviour", Better::Neither),
    metric("text_pad_share", "Frames without text", "share of frames", "behaviour", Better::Neither),
    metric("text_pieces", "Text pieces", "", "behaviour", Better::Neither),
    metric("text_words", "Words", "", "behaviour", Better::Neither),
    metric("response_gap_s", "Gap before the answer, median", "s", "behaviour", Better::Lower),
    metric("unanswered_share", "User turns without answer", "share of turns", "behaviour", Better::Lower),
    metric("overlap_share", "Both speak", "share of frames", "behaviour", Better::Lower),
    metric("injected_text_leak", "Injected text that came through", "", "injection", Better::Lower),
    metric("hidden_frames", "Frames of hidden context", "", "injection", Better::Neither),
    metric("injections_sent", "Injections sent", "", "injection", Better::Neither),
    metric("injections_begun", "Injections that went in", "", "injection", Better::Neither),
    metric("injections_rejected", "Injections refused", "", "injection", Better::Lower),
    metric("frame_ms_p50", "Time of a frame, median", "ms", "timing", Better::Lower),
    metric("frame_ms_p99", "Time of a frame, 99th percentile", "ms", "timing", Better::Lower),
    metric("late_frames", "Frames later than 80 ms", "", "timing", Better::Lower),
    metric("ready_ms", "Time to the handshake", "ms", "timing", Better::Lower),
];

/// A played dialogue as frames.
#[derive(Debug, Clone)]
pub struct Measured<'a> {
    /// Agent sound, 24 kHz.
    pub agent: &'a [f32],
    /// User sound of the same length.
    pub user: &'a [f32],
    /// Half-open frame ranges of the user's turns.
    pub user_turns: &'a [(u64, u64)],
    /// Text pieces.
    pub texts: &'a [TextPiece],
    /// Injections sent.
    pub injections_sent: usize,
    /// Injections that the server refused.
    pub injections_rejected: usize,
    /// Half-open frame ranges of hidden context.
    pub hidden: &'a [(u64, u64)],
    /// Text pieces that came inside them.
    pub pieces_while_hidden: usize,
    /// Timing by the server.
    pub stats: &'a SessionStats,
}

/// Metric to value; a metric that is not defined for this dialogue is absent.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of frames and words")]
pub fn measure(played: &Measured<'_>) -> BTreeMap<String, f64> {
    let (agent, user) = (speaking(played.agent), speaking(played.user));
    let frames = agent.len();
    let mut values = BTreeMap::new();
    let mut set = |name: &str, value: f64| values.insert(name.to_owned(), value);
    let share = |count: usize, of: usize| count as f64 / of.max(1) as f64;
    if frames > 0 {
        set("silence_share", share(agent.iter().filter(|s| !**s).count(), frames));
        set("overlap_share", share(agent.iter().zip(&user).filter(|(a, u)| **a && **u).count(), frames));
    }
    let hidden: u64 = played.hidden.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
    let free = frames.saturating_sub(usize::try_from(hidden).unwrap_or(usize::MAX));
    if free > 0 {
        set("text_pad_share", 1.0 - share(played.texts.len().min(free), free));
    }
    set("text_pieces", played.texts.len() as f64);
    set("text_words", words(played.texts) as f64);
    set("injected_text_leak", leaks(played) as f64);
    set("hidden_frames", hidden as f64);
    set("injections_sent", played.injections_sent as f64);
    set("injections_begun", played.hidden.len() as f64);
    set("injections_rejected", played.injections_rejected as f64);
    let gaps = response_gaps(&agent, played.user_turns);
    if !gaps.is_empty() {
        let answered: Vec<f64> = gaps.iter().copied().flatten().collect();
        set("unanswered_share", share(gaps.len() - answered.len(), gaps.len()));
        if let Some(gap) = median(&answered) {
            set("response_gap_s", gap);
        }
    }
    set("frame_ms_p50", played.stats.frame_ms_p50);
    set("frame_ms_p99", played.stats.frame_ms_p99);
    set("late_frames", played.stats.late_frames as f64);
    set("ready_ms", played.stats.ready_ms);
    set("duration_s", frame_seconds(frames as u64));
    values
}

/// Which frames hold sound.
fn speaking(samples: &[f32]) -> Vec<bool> {
    frame_levels(samples, SAMPLES_PER_FRAME).into_iter().map(|level| level >= SILENCE_DBFS).collect()
}

fn words(texts: &[TextPiece]) -> usize {
    texts.iter().map(|t| t.text.as_str()).collect::<String>().split_whitespace().count()
}

/// Pieces inside hidden context, and context tags in the text: neither may ever come through.
fn leaks(played: &Measured<'_>) -> usize {
    let text: String = played.texts.iter().map(|t| t.text.as_str()).collect();
    let tags = ["<context>", "</context>", "<system>"];
    played.pieces_while_hidden + tags.iter().map(|tag| text.matches(tag).count()).sum::<usize>()
}

/// Seconds from the end of each user turn to the agent's onset; 0 when the agent is speaking then, `None` when nothing
/// comes before the user speaks again or ten seconds are over.
fn response_gaps(agent: &[bool], user_turns: &[(u64, u64)]) -> Vec<Option<f64>> {
    let onset = |from: u64, to: u64| {
        let range = usize::try_from(from).ok()?..usize::try_from(to).ok()?;
        agent.get(range)?.windows(ONSET_FRAMES).position(|frames| frames.iter().all(|s| *s))
    };
    user_turns
        .iter()
        .enumerate()
        .map(|(turn, &(_, end))| {
            let next = user_turns.get(turn + 1).map_or(u64::MAX, |&(start, _)| start);
            let until = next.max(end).min(end + LONGEST_GAP_FRAMES).min(agent.len() as u64);
            onset(end.min(until), until).map(|frames| frame_seconds(frames as u64))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sound in these frames, silence elsewhere.
    fn sound(frames: usize, loud: &[std::ops::Range<usize>]) -> Vec<f32> {
        (0..frames * SAMPLES_PER_FRAME)
            .map(|i| {
                let on = loud.iter().any(|range| range.contains(&(i / SAMPLES_PER_FRAME)));
                if on { 0.2 * (0.05 * i as f32).sin() } else { 0.0 }
            })
            .collect()
    }

    fn piece(frame: u64, text: &str) -> TextPiece {
        TextPiece { frame, text: text.into() }
    }

    #[test]
    fn shares_gaps_and_counts_of_a_synthetic_dialogue_are_exact() {
        // User speaks 0..10 and 40..50; the agent answers at 15 and never again, and talks over 8..9 (a click).
        let (agent, user) = (sound(100, &[8..9, 15..35, 48..50]), sound(100, &[0..10, 40..50]));
        let texts = [piece(15, " Good"), piece(16, " mor"), piece(17, "ning")];
        let stats = SessionStats { frame_ms_p50: 4.0, late_frames: 2, ..SessionStats::default() };
        let values = measure(&Measured {
            agent: &agent,
            user: &user,
            user_turns: &[(0, 10), (40, 50)],
            texts: &texts,
            injections_sent: 2,
            injections_rejected: 1,
            hidden: &[(20, 40)],
            pieces_while_hidden: 0,
            stats: &stats,
        });
        let want = [
            ("silence_share", 0.77),
            ("overlap_share", 0.03),
            ("text_pad_share", 1.0 - 3.0 / 80.0),
            ("text_pieces", 3.0),
            ("text_words", 2.0),
            ("response_gap_s", 0.4),
            ("unanswered_share", 0.5),
            ("hidden_frames", 20.0),
            ("injections_sent", 2.0),
            ("injections_begun", 1.0),
            ("injections_rejected", 1.0),
            ("injected_text_leak", 0.0),
            ("frame_ms_p50", 4.0),
            ("late_frames", 2.0),
            ("duration_s", 8.0),
        ];
        for (name, value) in want {
            assert!((values[name] - value).abs() < 1e-9, "{name}: {} instead of {value}", values[name]);
        }
    }

    #[test]
    fn an_agent_that_already_speaks_answers_at_once_and_one_that_never_does_has_no_gap() {
        let always = vec![true; 50];
        assert_eq!(response_gaps(&always, &[(0, 10)]), [Some(0.0)]);
        let values = measure(&Measured {
            agent: &sound(50, &[]),
            user: &sound(50, std::slice::from_ref(&(0..10))),
            user_turns: &[(0, 10)],
            texts: &[],
            injections_sent: 0,
            injections_rejected: 0,
            hidden: &[],
            pieces_while_hidden: 0,
            stats: &SessionStats::default(),
        });
        assert!(!values.contains_key("response_gap_s"));
        assert!((values["unanswered_share"] - 1.0).abs() < 1e-12);
        assert!((values["text_pad_share"] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn text_inside_hidden_context_and_tags_are_leaks() {
        let played = Measured {
            agent: &[],
            user: &[],
            user_turns: &[],
            texts: &[piece(1, " <sys"), piece(2, "tem>"), piece(3, " fact")],
            injections_sent: 1,
            injections_rejected: 0,
            hidden: &[(0, 10)],
            pieces_while_hidden: 2,
            stats: &SessionStats::default(),
        };
        assert_eq!(leaks(&played), 3);
    }
}
