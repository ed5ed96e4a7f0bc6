use tch::Tensor;

use super::Order;
use super::history::{History, UNKNOWN};
use crate::{Beside, Frame, Lm, PersonaplexError};

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
    /// The adapter that it went through.
    pub(crate) adapter: Option<Beside>,
}

impl Prefix {
    /// Frames of the prompt, those that were embeddings included: the number of the conversation's first frame.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// A second prefix that starts as this one; the two share memory until one is extended.
    #[must_use]
    pub fn fork(&self) -> Self {
        let layers = self.layers.iter().map(|(k, v)| (k.shallow_clone(), v.shallow_clone())).collect();
        Self {
            layers,
            hidden: self.hidden.as_ref().map(Tensor::shallow_clone),
            history: self.history.clone(),
            order: self.order,
            frames: self.frames,
            fed: self.fed,
            adapter: self.adapter.clone(),
        }
    }

    /// What is known of the rows after those fed, -2 where nothing is ([`LmBatch::rows`](super::LmBatch::rows)).
    ///
    /// # Errors
    /// Ids out of range.
    pub fn set_open(&mut self, lm: &Lm, rows: &[Frame]) -> Result<(), PersonaplexError> {
        let known = |ids: &[i32]| ids.iter().copied().filter(|id| *id != UNKNOWN).collect::<Vec<i32>>();
        for (p, row) in rows.iter().enumerate() {
            lm.check_ids("row text", &known(&row[..1]), lm.config.text_card + 1)?;
            lm.check_ids("row audio", &known(&row[1..]), lm.config.card + 1)?;
            *self.history.row(self.fed + p) = *row;
        }
        Ok(())
    }

    /// Rows that have been through the model.
    #[must_use]
    pub const fn fed(&self) -> usize {
        self.fed
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
        self.prefill_with(prompt, order, None)
    }

    /// As [`Lm::prefill`] for a conversation with one of the adapters beside the model; what starts from the prefix has
    /// the same.
    ///
    /// # Errors
    /// As [`Lm::prefill`].
    pub fn prefill_with(
        &self,
        prompt: &Prompt,
        order: Order,
        adapter: Option<&Beside>,
    ) -> Result<Prefix, PersonaplexError> {
        self.beside(&[adapter], || self.prefill_rows(prompt, order, adapter))
    }

    fn prefill_rows(
        &self,
        prompt: &Prompt,
        order: Order,
        adapter: Option<&Beside>,
    ) -> Result<Prefix, PersonaplexError> {
        let embedded = prompt.embedded();
        let frames = embedded + prompt.frames.len();
        let fed = match order {
            Order::Early => frames + 1,
            Order::Reference => frames,
        };
        self.check_rows(fed)?;
        let mut history = self.prompt_history(prompt)?;
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
        Ok(Prefix { layers, hidden, history, order, frames, fed, adapter: adapter.cloned() })
    }

    /// Feeds rows of a conversation that follow those of the prefix, in one pass. All of them must be complete. A long
    /// history can be fed some rows at a time.
    ///
    /// # Errors
    /// Ids out of range, more rows than the window has, or a prefix that nothing was fed of.
    pub fn extend(&self, prefix: &mut Prefix, rows: &[Frame]) -> Result<(), PersonaplexError> {
        self.check_rows(prefix.fed + rows.len())?;
        if rows.is_empty() {
            return Ok(());
        }
        if prefix.layers.is_empty() || rows.iter().flatten().any(|id| *id == UNKNOWN) {
            return Err(PersonaplexError::PromptRows);
        }
        prefix.set_open(self, rows)?;
        let _span = tracing::debug_span!("lm.extend", rows = rows.len()).entered();
        let adapter = prefix.adapter.clone();
        let extend = || self.temporal.extend(&mut prefix.layers, &self.embeddings.rows(rows));
        tch::no_grad(|| {
            let hidden = self.beside(&[adapter.as_ref()], extend);
            prefix.hidden = Some(hidden.narrow(1, rows.len() as i64 - 1, 1).copy());
        });
        prefix.fed += rows.len();
        prefix.frames += rows.len();
        // The row to be decided next: nothing is known of it but what a caller opens.
        prefix.history.truncate(prefix.fed);
        prefix.history.row(prefix.fed);
        Ok(())
    }

    fn check_rows(&self, rows: usize) -> Result<(), PersonaplexError> {
        if rows as i64 > self.config.context {
            return Err(PersonaplexError::PromptTooLong { rows, window: self.config.context });
        }
        Ok(())
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
