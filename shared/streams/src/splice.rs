//! Context is spliced into the text stream of a whole dialogue, before windows are cut (finetune.md 3.5).
//!
//! `overlay_then_stretch`: the agent listens while context arrives; only when the context is longer than the
//! listening window does the agent wait, and then the user side gets silence at its next pause. No user frame is
//! lost, repeated or moved against its neighbours.

use serde::{Deserialize, Serialize};

use crate::error::StreamsError;
use crate::layout::{Codes, Frame, TEXT, agent_codes, frame, user_codes};
use crate::tokens::{EPAD, PAD, PromptCodes, is_padding};

/// How context enters the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpliceMode {
    /// Over frames in which the agent listens; time is stretched only for what does not fit ([`splice`]).
    #[default]
    OverlayThenStretch,
    /// The older published form ([`insert_copy_user`]), here on the whole dialogue, so that nothing is trimmed.
    InsertCopyUser,
}

/// Frames `[start, end)`.
pub type Span = (usize, usize);

/// A dialogue on the frame grid, with the frames in which each side speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// All frames.
    pub frames: Vec<Frame>,
    /// The agent speaks or its text stream says something.
    pub agent_busy: Vec<bool>,
    /// The user speaks.
    pub user_busy: Vec<bool>,
    /// Frames of each agent word.
    pub agent_words: Vec<Span>,
}

impl Timeline {
    /// Marks who is busy from the words of both sides.
    #[must_use]
    pub fn new(frames: Vec<Frame>, agent_words: Vec<Span>, user_words: &[Span]) -> Self {
        let total = frames.len();
        let mut agent_busy = mark(total, &agent_words);
        for (busy, f) in agent_busy.iter_mut().zip(&frames) {
            *busy |= f[TEXT] >= 0 && !is_padding(f[TEXT]);
        }
        let user_busy = mark(total, user_words);
        Self { frames, agent_busy, user_busy, agent_words }
    }
}

fn mark(total: usize, spans: &[Span]) -> Vec<bool> {
    let mut busy = vec![false; total];
    for &(start, end) in spans {
        // A word that ends before it starts covers nothing.
        let end = end.min(total);
        busy[start.min(end)..end].fill(true);
    }
    busy
}

/// Context with its place on the unspliced grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpliceInput {
    /// Frame it belongs to.
    pub anchor: usize,
    /// Tokens including the tags.
    pub tokens: Vec<i32>,
}

/// Where one context ended up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpliceRecord {
    /// Position in the list handed in.
    pub injection: usize,
    /// Frame asked for, on the unspliced grid.
    pub anchor: usize,
    /// First frame, on the spliced grid.
    pub start: usize,
    /// Frame after the last.
    pub end: usize,
    /// Tokens.
    pub tokens: usize,
    /// Tokens laid over frames that were there.
    pub overlaid: usize,
    /// Frames inserted.
    pub inserted: usize,
    /// Where the user side got its silence.
    pub user_insert_at: Option<usize>,
    /// Frames it waited for the agent to finish.
    pub deferred: usize,
}

/// A dialogue with its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spliced {
    /// Frames, busy marks and agent words after splicing.
    pub timeline: Timeline,
    /// True on context frames.
    pub context_mask: Vec<bool>,
    /// One record an injection, in order of time.
    pub records: Vec<SpliceRecord>,
}

/// What a context frame is, in training and live: the token, agent silence, the user untouched.
#[must_use]
pub fn context_frame(token: i32, user: &Codes, codes: &PromptCodes) -> Frame {
    frame(token, &codes.silence, user)
}

/// Splices all `injections`; `guard` frames before the agent's next word stay free (its EPAD).
///
/// # Errors
/// When an anchor lies past the end.
pub fn splice(
    timeline: Timeline,
    injections: &[SpliceInput],
    guard: usize,
    codes: &PromptCodes,
) -> Result<Spliced, StreamsError> {
    let frames = timeline.frames.len();
    if let Some((index, i)) = injections.iter().enumerate().find(|(_, i)| i.anchor >= frames) {
        return Err(StreamsError::OffsetBeyondAudio { index, offset: i.anchor, frames });
    }
    let mut order: Vec<usize> = (0..injections.len()).collect();
    order.sort_by_key(|&i| injections[i].anchor);
    let mut splicer = Splicer::new(&timeline, guard, *codes);
    for index in order {
        splicer.place(index, &injections[index]);
    }
    Ok(splicer.finish())
}

struct Splicer {
    text: Vec<i32>,
    agent: Vec<Codes>,
    user: Vec<Codes>,
    agent_busy: Vec<bool>,
    user_busy: Vec<bool>,
    agent_words: Vec<Span>,
    context_mask: Vec<bool>,
    records: Vec<SpliceRecord>,
    guard: usize,
    codes: PromptCodes,
    shift: usize,
}

impl Splicer {
    fn new(timeline: &Timeline, guard: usize, codes: PromptCodes) -> Self {
        Self {
            text: timeline.frames.iter().map(|f| f[TEXT]).collect(),
            agent: timeline.frames.iter().map(agent_codes).collect(),
            user: timeline.frames.iter().map(user_codes).collect(),
            agent_busy: timeline.agent_busy.clone(),
            user_busy: timeline.user_busy.clone(),
            agent_words: timeline.agent_words.clone(),
            context_mask: vec![false; timeline.frames.len()],
            records: Vec::new(),
            guard,
            codes,
            shift: 0,
        }
    }

    fn place(&mut self, injection: usize, input: &SpliceInput) {
        let tokens = input.tokens.len();
        let after_previous = self.records.last().map_or(0, |r| r.end);
        let wanted = (input.anchor + self.shift).max(after_previous);
        let start = (wanted..self.text.len()).find(|&p| !self.agent_busy[p]).unwrap_or(self.text.len());
        let next_busy = (start..self.text.len()).find(|&p| self.agent_busy[p]);
        let free_until = next_busy.map_or(self.text.len(), |p| p.saturating_sub(self.guard));
        let overlaid = tokens.min(free_until.saturating_sub(start));
        let inserted = tokens - overlaid;
        let user_insert_at = (inserted > 0).then(|| self.stretch(start + overlaid, inserted));
        let end = start + tokens;
        self.text[start..end].copy_from_slice(&input.tokens);
        self.agent[start..end].fill(self.codes.silence);
        self.context_mask[start..end].fill(true);
        self.repair_end_padding(start, end);
        self.records.push(SpliceRecord {
            injection,
            anchor: input.anchor,
            start,
            end,
            tokens,
            overlaid,
            inserted,
            user_insert_at,
            deferred: start.saturating_sub(wanted),
        });
    }

    /// Inserts `count` frames on the agent side at `at` and as many silent user frames at the user's next pause.
    fn stretch(&mut self, at: usize, count: usize) -> usize {
        let user_at = (at..self.user.len()).find(|&q| !self.user_busy[q]).unwrap_or(self.user.len());
        insert(&mut self.text, at, count, PAD);
        insert(&mut self.agent, at, count, self.codes.silence);
        insert(&mut self.agent_busy, at, count, false);
        insert(&mut self.context_mask, at, count, false);
        insert(&mut self.user, user_at, count, self.codes.silence);
        insert(&mut self.user_busy, user_at, count, false);
        for word in self.agent_words.iter_mut().filter(|w| w.0 >= at) {
            *word = (word.0 + count, word.1 + count);
        }
        self.shift += count;
        user_at
    }

    /// An EPAD announces a word in the next frame: none before the span, one before the word after it.
    fn repair_end_padding(&mut self, start: usize, end: usize) {
        if start > 0 && self.text[start - 1] == EPAD {
            self.text[start - 1] = PAD;
        }
        let next_word = (end..self.text.len()).find(|&t| self.text[t] >= 0 && !is_padding(self.text[t]));
        if let Some(before) = next_word.filter(|&t| t > end).map(|t| t - 1)
            && self.text[before] == PAD
        {
            self.text[before] = EPAD;
        }
    }

    fn finish(self) -> Spliced {
        let frames =
            self.text.iter().zip(&self.agent).zip(&self.user).map(|((&t, a), u)| frame(t, a, u)).collect();
        let timeline = Timeline {
            frames,
            agent_busy: self.agent_busy,
            user_busy: self.user_busy,
            agent_words: self.agent_words,
        };
        Spliced { timeline, context_mask: self.context_mask, records: self.records }
    }
}

fn insert<T: Copy>(list: &mut Vec<T>, at: usize, count: usize, value: T) {
    list.splice(at..at, std::iter::repeat_n(value, count));
}

/// Result of [`insert_copy_user`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyUserSplice {
    /// Frames, cut to the window.
    pub frames: Vec<Frame>,
    /// True on context frames.
    pub context_mask: Vec<bool>,
    /// Spans before the cut; parts past the window are lost.
    pub spans: Vec<Span>,
}

/// [`insert_copy_user`] on a whole dialogue: no trimming, words and busy marks moved along.
///
/// # Errors
/// When an anchor lies past the end.
pub fn splice_copying_user(
    timeline: &Timeline,
    injections: &[SpliceInput],
    codes: &PromptCodes,
) -> Result<Spliced, StreamsError> {
    let frames = timeline.frames.len();
    if let Some((index, i)) = injections.iter().enumerate().find(|(_, i)| i.anchor >= frames) {
        return Err(StreamsError::OffsetBeyondAudio { index, offset: i.anchor, frames });
    }
    let mut order: Vec<usize> = (0..injections.len()).collect();
    order.sort_by_key(|&i| injections[i].anchor);
    let longest = frames + injections.iter().map(|i| i.tokens.len()).sum::<usize>();
    let copied = insert_copy_user(&timeline.frames, injections, longest, codes);
    let mut out = Spliced {
        timeline: Timeline { frames: copied.frames, ..timeline.clone() },
        context_mask: copied.context_mask,
        records: Vec::new(),
    };
    for (&injection, &(start, end)) in order.iter().zip(&copied.spans) {
        let inserted = end - start;
        insert(&mut out.timeline.agent_busy, start, inserted, false);
        // The copied user frames are those that follow.
        let heard: Vec<bool> = (start..end).map(|t| out.timeline.user_busy.get(t) == Some(&true)).collect();
        out.timeline.user_busy.splice(start..start, heard);
        for word in &mut out.timeline.agent_words {
            *word = (
                word.0 + if word.0 >= start { inserted } else { 0 },
                word.1 + if word.1 > start { inserted } else { 0 },
            );
        }
        out.records.push(SpliceRecord {
            injection,
            anchor: injections[injection].anchor,
            start,
            end,
            tokens: inserted,
            overlaid: 0,
            inserted,
            user_insert_at: None,
            deferred: 0,
        });
    }
    Ok(out)
}

/// The older published splice, for comparison runs: frames are inserted at the anchor, the user frames that
/// follow are played twice, and the tail of the window is lost.
#[must_use]
pub fn insert_copy_user(
    frames: &[Frame],
    injections: &[SpliceInput],
    window_frames: usize,
    codes: &PromptCodes,
) -> CopyUserSplice {
    let mut out = frames.to_vec();
    let mut mask = vec![false; frames.len()];
    let mut spans = Vec::new();
    let mut shift = 0;
    let mut sorted: Vec<&SpliceInput> = injections.iter().filter(|i| i.anchor < window_frames).collect();
    sorted.sort_by_key(|i| i.anchor);
    for injection in sorted {
        let at = (injection.anchor + shift).min(out.len());
        let block: Vec<Frame> = (at..)
            .zip(&injection.tokens)
            .map(|(t, &token)| {
                let user = out.get(t).map_or(codes.silence, user_codes);
                context_frame(token, &user, codes)
            })
            .collect();
        let count = block.len();
        out.splice(at..at, block);
        insert(&mut mask, at, count, true);
        spans.push((at, at + count));
        shift += count;
    }
    out.truncate(window_frames);
    mask.truncate(window_frames);
    CopyUserSplice { frames: out, context_mask: mask, spans }
}
