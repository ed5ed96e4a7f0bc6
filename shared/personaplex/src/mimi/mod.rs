//! Mimi, the codec: 24 kHz mono to 8 codes per 80 ms frame and back (personaplex.md 3).
//!
//! A whole signal is one or a few steps from a fresh state, so whole and streaming are the same code. Always f32.

mod quantizer;
mod seanet;
mod transformer;

use std::path::Path;

use nn::{CausalConv, CausalConvTr, Checkpoint, ConvState, ConvTrState, Padding};
use tch::{Device, Kind, Tensor};
use weights::{MimiConfig, ModelDir, mimi_inventory};

use crate::PersonaplexError;
use quantizer::SplitQuantizer;
use seanet::{SeanetDecoder, SeanetEncoder};
use transformer::{Transformer, TransformerState};

/// Frames per step when a whole recording is processed: bounds memory and the attention mask.
const CHUNK_FRAMES: usize = 125;

/// The codec's weights.
pub struct Mimi {
    config: MimiConfig,
    device: Device,
    encoder: SeanetEncoder,
    encoder_transformer: Transformer,
    downsample: CausalConv,
    quantizer: SplitQuantizer,
    upsample: CausalConvTr,
    decoder_transformer: Transformer,
    decoder: SeanetDecoder,
}

/// What an encoder stream remembers, for a batch of signals in lockstep.
pub struct EncState {
    convs: Vec<ConvState>,
    transformer: TransformerState,
    downsample: ConvState,
}

/// What a decoder stream remembers, for a batch of signals in lockstep.
pub struct DecState {
    upsample: ConvTrState,
    transformer: TransformerState,
    seanet: seanet::DecoderState,
}

impl Mimi {
    /// Loads the codec of a model directory.
    pub fn load(dir: &Path, device: Device) -> Result<Self, PersonaplexError> {
        let paths = ModelDir::new(dir);
        Self::from_file(&paths.mimi(), &paths.load_config()?.mimi, device)
    }

    /// Loads one codec file; it must hold exactly the tensors of `config`.
    pub fn from_file(path: &Path, config: &MimiConfig, device: Device) -> Result<Self, PersonaplexError> {
        config.validate()?;
        let file = Checkpoint::open(path, &mimi_inventory(config), device, Kind::Float)?;
        let d = config.seanet.dimension;
        let down = file.get("downsample.conv.conv.conv.weight")?;
        let up = file.get("upsample.convtr.convtr.convtr.weight")?;
        Ok(Self {
            encoder: SeanetEncoder::load(&file, config)?,
            encoder_transformer: Transformer::load(&file, "encoder_transformer", config)?,
            downsample: CausalConv::new(down, None, config.downsample(), 1, Padding::Replicate),
            quantizer: SplitQuantizer::load(&file, config)?,
            upsample: CausalConvTr::new(up, None, config.downsample(), d),
            decoder_transformer: Transformer::load(&file, "decoder_transformer", config)?,
            decoder: SeanetDecoder::load(&file, config)?,
            config: config.clone(),
            device,
        })
    }

    pub fn config(&self) -> &MimiConfig {
        &self.config
    }

    /// Samples per frame.
    pub fn frame_size(&self) -> usize {
        self.config.frame_size() as usize
    }

    /// A fresh encoder stream.
    pub fn new_encoder(&self) -> EncState {
        self.new_encoder_batch(1)
    }

    /// A fresh encoder stream for `batch` signals.
    pub fn new_encoder_batch(&self, batch: i64) -> EncState {
        EncState {
            convs: self.encoder.state(),
            transformer: self.encoder_transformer.state(batch, self.device),
            downsample: ConvState::new(),
        }
    }

    /// A fresh decoder stream.
    pub fn new_decoder(&self) -> DecState {
        self.new_decoder_batch(1)
    }

    /// A fresh decoder stream for `batch` signals.
    pub fn new_decoder_batch(&self, batch: i64) -> DecState {
        DecState {
            upsample: ConvTrState::new(),
            transformer: self.decoder_transformer.state(batch, self.device),
            seanet: self.decoder.state(),
        }
    }

    /// Latents before quantisation: wave `[B, 1, n * frame] -> [B, C, n]`.
    pub fn encode_latent(&self, state: &mut EncState, wave: &Tensor) -> Tensor {
        tch::no_grad(|| {
            let x = self.encoder.step(&mut state.convs, wave);
            let x = self.encoder_transformer.step(&mut state.transformer, &x);
            self.downsample.step(&mut state.downsample, &x)
        })
    }

    /// Codes of latents: `[B, C, n] -> [B, 8, n]` i64.
    pub fn quantize(&self, latent: &Tensor) -> Tensor {
        tch::no_grad(|| self.quantizer.encode(latent))
    }

    /// Latents of codes: `[B, 8, n] -> [B, C, n]`.
    pub fn dequantize(&self, codes: &Tensor) -> Tensor {
        tch::no_grad(|| self.quantizer.decode(codes))
    }

    /// Wave of latents: `[B, C, n] -> [B, 1, n * frame]`.
    pub fn decode_latent(&self, state: &mut DecState, latent: &Tensor) -> Tensor {
        tch::no_grad(|| {
            let x = self.upsample.step(&mut state.upsample, latent);
            let x = self.decoder_transformer.step(&mut state.transformer, &x);
            self.decoder.step(&mut state.seanet, &x)
        })
    }

    /// One frame of PCM (f32, -1..1) to its codes.
    pub fn encode_frame(&self, state: &mut EncState, pcm: &[f32]) -> Result<[i32; 8], PersonaplexError> {
        if pcm.len() != self.frame_size() {
            return Err(PersonaplexError::FrameSize { samples: pcm.len(), frame: self.frame_size() });
        }
        Ok(self.encode_some(state, pcm)[0])
    }

    /// One frame of codes to its PCM.
    pub fn decode_frame(&self, state: &mut DecState, codes: &[i32; 8]) -> Result<Vec<f32>, PersonaplexError> {
        self.decode_some(state, std::slice::from_ref(codes))
    }

    /// A whole recording from a fresh state; the last frame is filled with zeros.
    pub fn encode(&self, pcm: &[f32]) -> Result<Vec<[i32; 8]>, PersonaplexError> {
        let frame = self.frame_size();
        let mut state = self.new_encoder();
        let mut out = Vec::with_capacity(pcm.len().div_ceil(frame));
        for chunk in pcm.chunks(CHUNK_FRAMES * frame) {
            let mut chunk = chunk.to_vec();
            chunk.resize(chunk.len().next_multiple_of(frame), 0.0);
            out.extend(self.encode_some(&mut state, &chunk));
        }
        Ok(out)
    }

    /// A whole recording of codes from a fresh state.
    pub fn decode(&self, codes: &[[i32; 8]]) -> Result<Vec<f32>, PersonaplexError> {
        let mut state = self.new_decoder();
        let mut out = Vec::with_capacity(codes.len() * self.frame_size());
        for chunk in codes.chunks(CHUNK_FRAMES) {
            out.extend(self.decode_some(&mut state, chunk)?);
        }
        Ok(out)
    }

    fn encode_some(&self, state: &mut EncState, pcm: &[f32]) -> Vec<[i32; 8]> {
        let wave = Tensor::from_slice(pcm).view([1, 1, -1]).to_device(self.device);
        let codes = self.quantize(&self.encode_latent(state, &wave));
        let flat = Vec::<i64>::try_from(codes.squeeze_dim(0).transpose(0, 1).flatten(0, -1))
            .expect("flat i64 codes");
        flat.chunks_exact(8).map(|c| std::array::from_fn(|k| c[k] as i32)).collect()
    }

    fn decode_some(&self, state: &mut DecState, codes: &[[i32; 8]]) -> Result<Vec<f32>, PersonaplexError> {
        let high = self.config.quantizer.bins;
        if let Some(bad) = codes.iter().flatten().find(|c| !(0..high).contains(&i64::from(**c))) {
            return Err(PersonaplexError::IdRange { what: "audio", value: i64::from(*bad), low: 0, high });
        }
        let flat: Vec<i64> = codes.iter().flatten().map(|c| i64::from(*c)).collect();
        let codes = Tensor::from_slice(&flat).view([1, -1, 8]).transpose(1, 2).to_device(self.device);
        let wave = self.decode_latent(state, &self.dequantize(&codes));
        Ok(Vec::<f32>::try_from(wave.flatten(0, -1)).expect("a flat f32 wave"))
    }
}
