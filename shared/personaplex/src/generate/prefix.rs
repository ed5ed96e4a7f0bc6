use tch::Tensor;

use super::Order;
use super::history::{History, UNKNOWN};
use crate::{Frame, Lm, PersonaplexError};

/// What a conversation starts with: everything given, nothing sampled.
#[derive(Debug, Default)]
pub struct Prompt {
    /// Summed input vectors of the first rows, `[n, dim]`, in place of their ids (a voice stored as embeddings). The
    /// conversation's frame numbers then start at n.
    pub embeddings: Option<Tensor>,
    /// Model rows n, n + 1, .. as far as known; -2 where a later frame fills in. Row n must be complete. Empty without
    /// embeddings.
    pub rows: Vec<Frame>,
    /// Frames that follow; the delays are applied here.
    pub frames: Vec<Frame>,
}

impl Prompt {
    /// A prompt of frames only; may be empty.
    #[must_use]
    pub const fn of_frames(frames: Vec<Frame>) -> Self {
        Self { embeddings: None, rows: Vec::new(), frames }
    }

    /// Rows given as embeddings.
    fn embedded(&self) -> usize {
        self.embeddings.as_ref().map_or(0, |e| e.size()[0] as usize)
    }
}

/// A prompt that has been through the temporal transformer: keys, values and rows. Any number of conversations can
/// start from it; it changes with the model's weights.
pub struct Prefix {
    /// Keys and values `[H, T, D]` of every layer.
    pub(crate) layers: Vec<(Tensor, Tensor)>,
    /// Hidden state of the last row, `[1, 1, dim]`; none when no row was fed.
    pub(crate) hidden: Option<Tensor>,
    pub(crate) history: History,
    pub(crate) order: Order,
    /// Frames given.
    pub(crate) frames: usize,
    /// Rows 0..fed have been through the temporal transformer.
    pub(crate) fed: usize,
}

impl Prefix {
    /// Frames of the prompt, those that were embeddings included: the number of the conversation's first frame.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of keys and values, on the model's device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let one = |t: &Tensor| t.numel() * t.kind().elt_size_in_bytes();
        self.layers.iter().map(|(k, v)| one(k) + one(v)).sum()
    }

    /// Hidden state of the last row fed, `[1, 1, dim]`.
    #[must_use]
    pub const fn hidden(&self) -> Option<&Tensor> {
        self.hidden.as_ref()
    }
}

impl Lm {
    /// Feeds a prompt (voice, silence, text, silence) in one pass. In the early order its last row is fed too, in the
    /// reference's that is left to the first step.
    ///
    /// # Errors
    /// Ids out of range, rows that do not fit each other, or a prompt longer than the window.
    pub fn prefill(&self, prompt: &Prompt, order: Order) -> Result<Prefix, PersonaplexError> {
        let frames = prompt.embedded() + prompt.frames.len();
        let fed = match order {
            Order::Early => frames + 1,
            Order::Reference => frames,
        };
        let history = self.prompt_history(prompt)?;
        self.feed(prompt, history, order, fed)
    }

    /// As [`Lm::prefill`] for a conversation that began with `prompt` and has come as far as `rows`, from row 0 on
    /// ([`LmBatch::rows`](super::LmBatch::rows), complete ones and then open ones): it goes on as if it had never stopped.
    /// Where no row is open, the last one is taken for the one being decided.
    ///
    /// # Errors
    /// As [`Lm::prefill`]; also when the rows do not go beyond those that the prompt gives as embeddings.
    pub fn resume(&self, prompt: &Prompt, rows: &[Frame], order: Order) -> Result<Prefix, PersonaplexError> {
        let embedded = prompt.embedded();
        let complete = rows.iter().rposition(|row| !row.contains(&UNKNOWN)).map_or(0, |last| last + 1);
        let fed = if complete == rows.len() { complete.saturating_sub(1) } else { complete };
        if fed <= embedded || rows[embedded..fed].iter().flatten().any(|id| *id == UNKNOWN) {
            return Err(PersonaplexError::PromptRows);
        }
        let mut history = History::new(self);
        for (p, row) in rows.iter().enumerate() {
            let known: Vec<i32> = row[1..].iter().copied().filter(|id| *id != UNKNOWN).collect();
            let text: Vec<i32> = row[..1].iter().copied().filter(|id| *id != UNKNOWN).collect();
            self.check_ids("row text", &text, self.config.text_card + 1)?;
            self.check_ids("row audio", &known, self.config.card + 1)?;
            *history.row(p) = *row;
        }
        self.feed(prompt, history, order, fed)
    }

    /// Feeds the first `fed` rows of a history; those that the prompt gives as embeddings come from there.
    fn feed(
        &self,
        prompt: &Prompt,
        mut history: History,
        order: Order,
        fed: usize,
    ) -> Result<Prefix, PersonaplexError> {
        let embedded = prompt.embedded();
        if fed as i64 > self.config.context {
            return Err(PersonaplexError::PromptTooLong { rows: fed, window: self.config.context });
        }
        history.row(fed);
        let _span = tracing::debug_span!("lm.prefill", rows = fed).entered();
        let mut layers = Vec::new();
        let hidden = tch::no_grad(|| {
            let last = (fed > 0).then(|| -> Result<Tensor, PersonaplexError> {
                let rows = self.embeddings.rows(&history.rows()[embedded..fed.max(embedded)]);
                let x = match &prompt.embeddings {
                    None => rows,
                    Some(first) => {
                        let first = first.unsqueeze(0).to_device(self.device).to_kind(self.kind);
                        Tensor::cat(&[first, rows], 1)
                    }
                };
                let hidden = self.temporal.prefill(&x, |k, v| {
                    layers.push((k.squeeze_dim(0).contiguous(), v.squeeze_dim(0).contiguous()));
                })?;
                Ok(hidden.narrow(1, fed as i64 - 1, 1).copy())
            });
            last.transpose()
        })?;
        let frames = match order {
            Order::Early => fed.saturating_sub(1),
            Order::Reference => fed,
        };
        Ok(Prefix { layers, hidden, history, order, frames, fed })
    }

    fn prompt_history(&self, prompt: &Prompt) -> Result<History, PersonaplexError> {
        let embedded = prompt.embedded();
        if let Some(e) = &prompt.embeddings
            && (e.size().len() != 2 || e.size()[1] != self.config.dim || embedded == 0)
        {
            let wanted = format!("[n, {}]", self.config.dim);
            return Err(PersonaplexError::Shape { what: "prompt embeddings", wanted, found: e.size() });
        }
        if prompt.rows.is_empty() != prompt.embeddings.is_none() {
            return Err(PersonaplexError::PromptRows);
        }
        let mut history = History::new(self);
        if embedded > 0 {
            *history.row(0) = [UNKNOWN; 17];
        }
        for (i, row) in prompt.rows.iter().enumerate() {
            let known = |id: &&i32| i == 0 || **id != UNKNOWN;
            let audio: Vec<i32> = row[1..].iter().filter(known).copied().collect();
            let text: Vec<i32> = row[..1].iter().filter(known).copied().collect();
            self.check_ids("prompt row text", &text, self.config.text_card + 1)?;
            self.check_ids("prompt row audio", &audio, self.config.card + 1)?;
            *history.row(embedded + i) = *row;
        }
        for (i, frame) in prompt.frames.iter().enumerate() {
            self.check_ids("prompt text", &frame[..1], self.config.text_card)?;
            self.check_ids("prompt audio", &frame[1..], self.config.card)?;
            history.give(embedded + i, 0, frame);
        }
        Ok(history)
    }
}
