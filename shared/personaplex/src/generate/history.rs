use crate::{Frame, Lm};

/// A value no one has given or sampled yet; never reaches an embedding.
pub(crate) const UNKNOWN: i32 = -2;

/// The rows of one conversation as fed to the model, partly unknown at the end. 17 numbers a frame are the whole state of
/// a conversation: with it a slot can be rebuilt anywhere.
#[derive(Debug, Clone)]
pub struct History {
    rows: Vec<Frame>,
    delays: [usize; 17],
    initial: Frame,
}

impl History {
    /// Only row 0, which holds the initial ids.
    pub(crate) fn new(lm: &Lm) -> Self {
        let mut delays = [0; 17];
        let mut initial = [lm.config.initial_audio(); 17];
        initial[0] = lm.config.initial_text();
        for (slot, delay) in delays.iter_mut().zip(&lm.config.delays) {
            *slot = *delay as usize;
        }
        Self { rows: vec![initial], delays, initial }
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

    /// Forgets the rows from p on.
    pub(crate) fn truncate(&mut self, p: usize) {
        self.rows.truncate(p);
    }

    /// All rows so far. Rows that were fed as embeddings hold -2.
    #[must_use]
    pub fn rows(&self) -> &[Frame] {
        &self.rows
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
    pub(crate) fn frame(&mut self, index: usize) -> Frame {
        std::array::from_fn(|stream| {
            let row = index + 1 + self.delays[stream];
            self.row(row)[stream]
        })
    }
}
