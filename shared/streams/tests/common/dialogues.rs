//! Random dialogues: turns with gaps and overlaps, contexts anywhere, codes that name their frame.

use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::injection::Injection;
use proptest::prelude::*;
use streams::{Codes, DialogueInput};

const WORDS: [&str; 6] = ["hello", "this", "renewal", "okay", "savings", "tomorrow"];
const CONTEXTS: [&str; 3] = ["quote it", "renewal savings", "say yes"];

#[derive(Debug, Clone)]
pub struct Dialogue {
    pub words: Vec<AlignedWord>,
    pub injections: Vec<Injection>,
    pub agent: Vec<Codes>,
    pub user: Vec<Codes>,
}

/// Codes that name their frame and side and are never the silence constants.
pub fn numbered(side: i32, frames: usize) -> Vec<Codes> {
    (0..frames)
        .map(|t| {
            let t = i32::try_from(t).unwrap_or(i32::MAX);
            [t % 2048, t / 2048, side, 0, 0, 0, 0, 0]
        })
        .collect()
}

/// Up to nine turns and six contexts.
pub fn dialogue() -> impl Strategy<Value = Dialogue> {
    // One entry a turn: words with their length, and the gap before the turn (negative: overlap), ms.
    let turn = (prop::collection::vec((0..WORDS.len(), 120u64..700), 1..9), -300i64..5000);
    let anchors = prop::collection::vec((0.0..1.0f64, 0..CONTEXTS.len()), 0..7);
    (prop::collection::vec(turn, 1..10), anchors, 0u64..2000).prop_map(|(turns, anchors, tail_ms)| {
        let mut words = Vec::new();
        let mut now = 0u64;
        for (i, (turn, gap)) in turns.into_iter().enumerate() {
            now = now.saturating_add_signed(gap);
            let speaker = if i % 2 == 0 { Speaker::Agent } else { Speaker::User };
            for (word, ms) in turn {
                words.push(AlignedWord {
                    word: WORDS[word].into(),
                    start_ms: now,
                    end_ms: now + ms,
                    speaker,
                    estimated: false,
                });
                now += ms + 40;
            }
        }
        let frames = usize::try_from((now + tail_ms).div_ceil(80)).unwrap_or(0).max(1);
        let injections = anchors
            .into_iter()
            .map(|(share, text)| Injection {
                after_turn: 0,
                text: CONTEXTS[text].into(),
                frame_offset: Some(at_share(share, frames)),
            })
            .collect();
        Dialogue { words, injections, agent: numbered(1, frames), user: numbered(2, frames) }
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "test data"
)]
fn at_share(share: f64, frames: usize) -> u32 {
    (share * frames as f64) as u32
}

impl Dialogue {
    pub fn input(&self) -> DialogueInput<'_> {
        DialogueInput {
            words: &self.words,
            injections: &self.injections,
            agent_codes: &self.agent,
            user_codes: &self.user,
        }
    }
}
