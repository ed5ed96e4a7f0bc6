//! One signal at a time, as samples and arrays of codes, and whole signals.

use tch::Tensor;

use super::{DecState, EncState, Mimi};
use crate::PersonaplexError;

/// Frames per call when a whole recording is processed: bounds memory and the attention mask.
const CHUNK_FRAMES: i64 = 125;

impl Mimi {
    /// One frame of PCM (f32, -1..1) of a single stream to its first 8 codes.
    ///
    /// # Errors
    /// When `pcm` is not one frame, the state has several slots, or the codec has fewer than 8 codebooks.
    pub fn encode_frame(&self, state: &mut EncState, pcm: &[f32]) -> Result<[i32; 8], PersonaplexError> {
        if pcm.len() != self.frame_size() {
            return Err(PersonaplexError::FrameSize { samples: pcm.len(), frame: self.frame_size() });
        }
        let codes = self.encode_step(state, &Tensor::from_slice(pcm).view([1, 1, -1]), &[true])?;
        Ok(self.arrays(&codes)?[0])
    }

    /// One frame of codes of a single stream to its PCM.
    ///
    /// # Errors
    /// When a code is outside the codebooks, the state has several slots, or the codec has fewer than 8 codebooks.
    pub fn decode_frame(&self, state: &mut DecState, codes: &[i32; 8]) -> Result<Vec<f32>, PersonaplexError> {
        samples(&self.decode_step(state, &from_arrays(std::slice::from_ref(codes)), &[true])?)
    }

    /// A whole recording from a fresh state, the first 8 codes of every frame; the last frame is filled with zeros.
    ///
    /// # Errors
    /// When the codec has fewer than 8 codebooks.
    pub fn encode(&self, pcm: &[f32]) -> Result<Vec<[i32; 8]>, PersonaplexError> {
        if pcm.is_empty() {
            return Ok(Vec::new());
        }
        self.arrays(&self.encode_signal(&Tensor::from_slice(pcm).view([1, 1, -1]))?)
    }

    /// A whole recording of codes from a fresh state.
    ///
    /// # Errors
    /// When a code is outside the codebooks, or the codec has fewer than 8 codebooks.
    pub fn decode(&self, codes: &[[i32; 8]]) -> Result<Vec<f32>, PersonaplexError> {
        if codes.is_empty() {
            return Ok(Vec::new());
        }
        samples(&self.decode_signal(&from_arrays(codes))?)
    }

    /// Whole signals of one length from a fresh state: `[B, 1, T] -> [B, K, ceil(T / frame)]` with all codebooks of the
    /// configuration. The last frame is filled with zeros before anything else, so streaming it gives the same.
    ///
    /// # Errors
    /// When the shape is another one or T is 0.
    pub fn encode_signal(&self, wave: &Tensor) -> Result<Tensor, PersonaplexError> {
        let frame = self.config.frame_size();
        let size = wave.size();
        let (batch, length) = match size[..] {
            [batch, 1, length] if batch > 0 && length > 0 => (batch, length),
            _ => {
                return Err(PersonaplexError::Shape {
                    what: "wave",
                    wanted: "[B, 1, T]".into(),
                    found: size,
                });
            }
        };
        let frames = (length + frame - 1) / frame;
        let wave = wave.constant_pad_nd([0, frames * frame - length]);
        let mut state = self.new_encoder_batch(batch, frames.min(CHUNK_FRAMES));
        let part = |(from, n)| {
            let pcm = wave.narrow(2, from * frame, n * frame);
            self.encode_step(&mut state, &pcm, &vec![true; batch as usize])
        };
        Ok(Tensor::cat(&chunks(frames).map(part).collect::<Result<Vec<_>, _>>()?, 2))
    }

    /// Whole signals from a fresh state: `[B, K, n] -> [B, 1, n * frame]`, K at most the codebooks of the configuration.
    ///
    /// # Errors
    /// When the shape is another one, n is 0, or a code is outside the codebooks.
    pub fn decode_signal(&self, codes: &Tensor) -> Result<Tensor, PersonaplexError> {
        let size = codes.size();
        let (batch, frames) = match size[..] {
            [batch, _, frames] if batch > 0 && frames > 0 => (batch, frames),
            _ => {
                return Err(PersonaplexError::Shape {
                    what: "codes",
                    wanted: "[B, K, n]".into(),
                    found: size,
                });
            }
        };
        let mut state = self.new_decoder_batch(batch, frames.min(CHUNK_FRAMES));
        let part =
            |(from, n)| self.decode_step(&mut state, &codes.narrow(2, from, n), &vec![true; batch as usize]);
        Ok(Tensor::cat(&chunks(frames).map(part).collect::<Result<Vec<_>, _>>()?, 2))
    }

    /// The first 8 codes of every frame of `[1, K, n]`.
    fn arrays(&self, codes: &Tensor) -> Result<Vec<[i32; 8]>, PersonaplexError> {
        let found = codes.size();
        if found[1] < 8 {
            return Err(PersonaplexError::Shape {
                what: "codes",
                wanted: "[1, at least 8, n]".into(),
                found,
            });
        }
        let flat = Vec::<i64>::try_from(codes.narrow(1, 0, 8).squeeze_dim(0).transpose(0, 1).flatten(0, -1))?;
        Ok(flat.chunks_exact(8).map(|c| std::array::from_fn(|k| c[k] as i32)).collect())
    }
}

/// First frame and number of frames of every call.
fn chunks(frames: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..frames).step_by(CHUNK_FRAMES as usize).map(move |from| (from, CHUNK_FRAMES.min(frames - from)))
}

/// `[1, 8, n]` i64.
fn from_arrays(codes: &[[i32; 8]]) -> Tensor {
    let flat: Vec<i64> = codes.iter().flatten().map(|c| i64::from(*c)).collect();
    Tensor::from_slice(&flat).view([1, -1, 8]).transpose(1, 2)
}

fn samples(wave: &Tensor) -> Result<Vec<f32>, PersonaplexError> {
    Ok(Vec::<f32>::try_from(wave.flatten(0, -1))?)
}
