use nn::Checkpoint;
use tch::Tensor;
use weights::LmConfig;

use super::table::Table;
use crate::{Frame, PersonaplexError};

/// Input tables of the 17 streams (`emb.*`, `text_emb`).
pub(crate) struct Embeddings {
    pub(crate) text: Table,
    pub(crate) audio: Vec<Table>,
}

impl Embeddings {
    pub(crate) fn load(file: &Checkpoint, config: &LmConfig) -> Result<Self, PersonaplexError> {
        let audio = (0..config.n_q)
            .map(|k| Table::load(file, &format!("emb.{k}.weight")))
            .collect::<Result<_, _>>()?;
        Ok(Self { text: Table::load(file, "text_emb.weight")?, audio })
    }

    /// Summed input vectors of rows `[B, 17, T] -> [B, T, dim]`. Audio tables first, text last: in bf16 the order counts.
    pub(crate) fn forward(&self, rows: &Tensor) -> Tensor {
        let mut sum: Option<Tensor> = None;
        for (k, table) in self.audio.iter().enumerate() {
            let x = table.lookup(&rows.select(1, 1 + k as i64));
            sum = Some(match sum {
                None => x,
                Some(s) => s + x,
            });
        }
        let text = self.text.lookup(&rows.select(1, 0));
        match sum {
            None => text,
            Some(s) => s + text,
        }
    }

    /// As [`Embeddings::forward`] for rows known on the host: `[1, n, dim]`.
    pub(crate) fn rows(&self, rows: &[Frame]) -> Tensor {
        let ids: Vec<i64> = (0..17).flat_map(|k| rows.iter().map(move |r| i64::from(r[k]))).collect();
        self.forward(
            &Tensor::from_slice(&ids).view([1, 17, rows.len() as i64]).to_device(self.text.base().device()),
        )
    }
}
