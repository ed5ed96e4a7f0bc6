use std::sync::Arc;

use streams::layout::Codes;
use tch::{Kind, Tensor};
use weights::{Dtype, LmConfig, RING_ROWS, VoiceEmbeddings, VoiceFile};

use crate::generate::UNKNOWN;
use crate::{Frame, Mimi, PersonaplexError};

/// A stored voice, made ready for one model.
#[derive(Debug)]
pub enum VoicePrompt {
    /// Codes of each frame of the clip.
    Codes(Arc<[Codes]>),
    /// Rows that need no embedding any more.
    Embeddings {
        /// `[n, dim]`: inputs of rows 0..n-1, on the CPU.
        embeddings: Tensor,
        /// Row n, and the rows after it as far as they are known (-2 = not).
        rows: Vec<Frame>,
    },
}

impl VoicePrompt {
    /// Whether a stored voice fits a model, as far as that can be told without its weights.
    ///
    /// # Errors
    /// When embeddings are for another width or other delays, or an id is none of the model's.
    pub fn check(file: &VoiceFile, lm: &LmConfig) -> Result<(), PersonaplexError> {
        match file {
            VoiceFile::Samples(_) => Ok(()),
            VoiceFile::Codes { frames, .. } => check_ids(frames.iter().flatten().copied(), 0, lm.card),
            VoiceFile::Embeddings(embeddings) => rows_after(embeddings, lm).map(|_| ()),
        }
    }

    /// Makes a stored voice ready for a model and its codec. Samples are encoded from a fresh state, the last frame filled
    /// with zeros.
    ///
    /// # Errors
    /// When embeddings are for another width of model or codes for another codec, an id is none of the model's, or the
    /// codec fails.
    pub fn new(
        file: &VoiceFile,
        lm: &LmConfig,
        mimi: &Mimi,
        codec_sha256: &str,
    ) -> Result<Self, PersonaplexError> {
        Self::check(file, lm)?;
        match file {
            VoiceFile::Samples(samples) => Ok(Self::Codes(mimi.encode(samples)?.into())),
            VoiceFile::Codes { codec_sha256: found, .. } if found != codec_sha256 => {
                Err(PersonaplexError::VoiceCodec { found: found.clone(), wanted: codec_sha256.into() })
            }
            VoiceFile::Codes { frames, .. } => Ok(Self::Codes(frames.clone().into())),
            VoiceFile::Embeddings(embeddings) => Self::replay(embeddings, lm),
        }
    }

    /// Frames that it takes of the prompt: those of the clip, or one fewer for embeddings (see [`crate::prompt`]).
    #[must_use]
    pub fn frames(&self) -> usize {
        match self {
            Self::Codes(codes) => codes.len(),
            Self::Embeddings { embeddings, .. } => usize::try_from(embeddings.size()[0]).unwrap_or(0),
        }
    }

    fn replay(voice: &VoiceEmbeddings, lm: &LmConfig) -> Result<Self, PersonaplexError> {
        let rows = rows_after(voice, lm)?;
        let kind = match voice.dtype {
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            _ => Kind::Float,
        };
        let shape = [voice.calls() as i64 - 1, lm.dim];
        let embeddings = Tensor::f_from_data_size(&voice.embeddings, &shape, kind)?;
        Ok(Self::Embeddings { embeddings, rows })
    }
}

/// The rows of the ring that follow the embeddings.
fn rows_after(voice: &VoiceEmbeddings, lm: &LmConfig) -> Result<Vec<Frame>, PersonaplexError> {
    if usize::try_from(lm.dim).ok() != Some(voice.dim) {
        return Err(PersonaplexError::VoiceWidth { found: voice.dim, wanted: lm.dim });
    }
    // The ring of a model of other delays has another size.
    if lm.max_delay() + 3 != RING_ROWS {
        return Err(PersonaplexError::VoiceDelays { max_delay: lm.max_delay() });
    }
    let n = voice.calls() - 1;
    let row = |ahead: usize| -> Result<Frame, PersonaplexError> {
        let mut row = [UNKNOWN; 17];
        for (stream, (to, from)) in row.iter_mut().zip(voice.ring_row(n + ahead)).enumerate() {
            // The last call wrote each stream up to its delay; further on the ring still holds older rows.
            if usize::try_from(lm.delays[stream]).is_ok_and(|delay| delay >= ahead) {
                let initial = if stream == 0 { lm.text_card } else { lm.card };
                *to = i32::try_from(from).unwrap_or(i32::MAX);
                check_ids([*to].into_iter(), -1, initial + 1)?;
            }
        }
        Ok(row)
    };
    (0..=lm.max_delay()).map(row).collect()
}

fn check_ids(mut ids: impl Iterator<Item = i32>, low: i64, high: i64) -> Result<(), PersonaplexError> {
    match ids.find(|id| !(low..high).contains(&i64::from(*id))) {
        None => Ok(()),
        Some(id) => Err(PersonaplexError::IdRange { what: "voice", value: i64::from(id), low, high }),
    }
}
