use tch::Tensor;

use crate::lm::TemporalState;
use crate::{Frame, Lm};

/// A value no one has given or sampled yet; never reaches an embedding.
pub(crate) const UNKNOWN: i32 = -2;

/// When a row is decided relative to the user frame that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The call that brings user frame i feeds row i + 1, decides row i + 2 and emits frame i.
    #[default]
    Early,
    /// As the published package does it: feeds row i, decides row i + 1 and emits frame i - 1. Same ids, one call later.
    Reference,
}

/// Choices that hold for a whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GenOptions {
    pub order: Order,
    /// Sample the user's codebooks too where they are not given (self-play): 16 depformer steps instead of 8.
    pub sample_user: bool,
}

/// What is given at one call; everything else is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Given {
    /// User codes of the current frame ([`GenState::next_frame`]).
    pub user: Option<[i32; 8]>,
    /// Text id of frame [`GenState::forced_frame`].
    pub text: Option<i32>,
    /// Agent codes of frame [`GenState::forced_frame`], all eight; delayed here.
    pub agent: Option<[i32; 8]>,
}

/// One finished frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emitted {
    /// Frame number, prompt frames included.
    pub index: usize,
    pub frame: Frame,
}

/// The state of one conversation. The row history alone rebuilds it.
pub struct GenState {
    pub(crate) options: GenOptions,
    /// Rows as fed to the model; partly unknown at the end.
    rows: Vec<Frame>,
    delays: [usize; 17],
    initial: Frame,
    /// Frames whose user codes (or prompt values) have been taken in.
    pub(crate) frames: usize,
    /// Rows 0..fed have been through the temporal transformer.
    pub(crate) fed: usize,
    /// Rows 0..decided have text and agent values.
    pub(crate) decided: usize,
    /// Hidden state of row `fed - 1`, `[1, 1, dim]`.
    pub(crate) hidden: Option<Tensor>,
    pub(crate) temporal: TemporalState,
}

impl GenState {
    /// A fresh conversation in the early order.
    pub fn new(lm: &Lm) -> Self {
        Self::with_options(lm, GenOptions::default())
    }

    pub fn with_options(lm: &Lm, options: GenOptions) -> Self {
        let mut delays = [0; 17];
        let mut initial = [lm.config.initial_audio(); 17];
        initial[0] = lm.config.initial_text();
        for (slot, delay) in delays.iter_mut().zip(&lm.config.delays) {
            *slot = *delay as usize;
        }
        Self {
            options,
            rows: vec![initial],
            delays,
            initial,
            frames: 0,
            fed: 0,
            decided: 1,
            hidden: None,
            temporal: lm.temporal.state(1, lm.kind, lm.device),
        }
    }

    /// A copy that shares nothing: one prefilled prompt can start many conversations.
    pub fn duplicate(&self) -> Self {
        Self {
            options: self.options,
            rows: self.rows.clone(),
            delays: self.delays,
            initial: self.initial,
            frames: self.frames,
            fed: self.fed,
            decided: self.decided,
            hidden: self.hidden.as_ref().map(Tensor::shallow_clone),
            temporal: self.temporal.duplicate(),
        }
    }

    /// Number of the frame whose user codes the next call takes; equally the number of frames seen so far.
    pub fn next_frame(&self) -> usize {
        self.frames
    }

    /// Number of the frame that text and agent values given at the next call belong to.
    pub fn forced_frame(&self) -> usize {
        match self.options.order {
            Order::Early => self.frames + 1,
            Order::Reference => self.frames,
        }
    }

    /// Text id of the newest frame whose text is decided: after a call in the early order that is the frame after the
    /// one just emitted, which a scheduler must see before it gives values for the next. `None` on a fresh state.
    pub fn decided_text(&self) -> Option<i32> {
        self.rows.get(self.decided.saturating_sub(1)).filter(|_| self.decided > 1).map(|row| row[0])
    }

    /// Hidden state of the last row fed, `[1, 1, dim]`; for parity tests.
    pub fn hidden(&self) -> Option<&Tensor> {
        self.hidden.as_ref()
    }

    /// Row p, extended with unknown values as far as needed; delayed streams start with their initial id.
    pub(crate) fn row(&mut self, p: usize) -> &mut Frame {
        while self.rows.len() <= p {
            let next = self.rows.len();
            let mut row = [UNKNOWN; 17];
            for ((value, initial), delay) in row.iter_mut().zip(&self.initial).zip(&self.delays) {
                if next <= *delay {
                    *value = *initial;
                }
            }
            self.rows.push(row);
        }
        &mut self.rows[p]
    }

    pub(crate) fn rows(&self, from: usize, to: usize) -> &[Frame] {
        &self.rows[from..to]
    }

    /// Writes values of frame `frame` into the rows of their streams; `first` is the stream of the first value.
    pub(crate) fn give(&mut self, frame: usize, first: usize, values: &[i32]) {
        for (k, value) in values.iter().enumerate() {
            let stream = first + k;
            let row = frame + 1 + self.delays[stream];
            self.row(row)[stream] = *value;
        }
    }

    /// Frame `index` collected from its rows.
    pub(crate) fn collect(&mut self, index: usize) -> Emitted {
        let mut frame = [UNKNOWN; 17];
        for (stream, value) in frame.iter_mut().enumerate() {
            let row = index + 1 + self.delays[stream];
            *value = self.row(row)[stream];
        }
        Emitted { index, frame }
    }
}
