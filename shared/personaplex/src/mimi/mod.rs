//! Mimi, the codec: 24 kHz mono to codes at 12.5 Hz and back (personaplex.md 3). Always f32.
//!
//! ```text
//! wave [B,1,1920n] -> SEANet [B,512,2n] -> transformer -> downsample [B,512,n] -> split RVQ [B,K,n]
//! codes [B,K,n] -> centroids [B,512,n] -> upsample [B,512,2n] -> transformer -> SEANet [B,1,1920n]
//! ```
//!
//! A stream's memory ([`EncState`], [`DecState`]) has one slot per signal of a batch. Slots start, stop, pause and are
//! reset independently. A whole signal is one or a few calls from a fresh state, so whole and streaming are the same
//! code. Both attend to exactly `context` steps (250), where the reference's stream sees 249 once its ring is full and
//! the published package 249 or 250 in turn: of the choices of personaplex.md 9 the one that equals the whole-signal mask.

mod constants;
mod quantizer;
mod replay;
mod seanet;
mod signal;
mod state;
mod step;
mod transformer;

use std::path::Path;
use std::sync::Arc;

use nn::{CausalConv, CausalConvTr, Checkpoint, Padding};
use tch::{Device, Kind, Tensor};
use weights::{MimiConfig, ModelDir, mimi_inventory};

use crate::PersonaplexError;
use quantizer::SplitQuantizer;
use seanet::{SeanetDecoder, SeanetEncoder};
use state::Clock;
use transformer::Transformer;

pub use constants::{ConstantCheck, ConstantsReport};
pub use state::{DecState, EncState};
pub use step::{DecodeTaps, EncodeTaps};

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
    /// Tells this codec's weights from those of another; recorded calls hold addresses.
    identity: Arc<()>,
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
            identity: Arc::default(),
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

    /// Codebooks of a frame: those active in the configuration, up to all of the file.
    pub fn codebooks(&self) -> i64 {
        self.config.active_codebooks
    }

    /// A fresh encoder stream, fed frame by frame.
    pub fn new_encoder(&self) -> EncState {
        self.new_encoder_batch(1, 1)
    }

    /// Fresh encoder streams for `slots` signals, fed up to `frames_per_call` frames at a time.
    ///
    /// # Panics
    /// When one of them is less than 1.
    pub fn new_encoder_batch(&self, slots: i64, frames_per_call: i64) -> EncState {
        let steps = frames_per_call * self.config.downsample();
        EncState {
            recorded: None,
            clock: Clock::new(slots, frames_per_call),
            convs: self.encoder.state(slots),
            transformer: self.encoder_transformer.state(slots, steps, self.device),
            downsample: self.downsample.state(slots),
        }
    }

    /// A fresh decoder stream, fed frame by frame.
    pub fn new_decoder(&self) -> DecState {
        self.new_decoder_batch(1, 1)
    }

    /// Fresh decoder streams for `slots` signals, fed up to `frames_per_call` frames at a time.
    ///
    /// # Panics
    /// When one of them is less than 1.
    pub fn new_decoder_batch(&self, slots: i64, frames_per_call: i64) -> DecState {
        let steps = frames_per_call * self.config.downsample();
        DecState {
            recorded: None,
            clock: Clock::new(slots, frames_per_call),
            upsample: self.upsample.state(slots),
            transformer: self.decoder_transformer.state(slots, steps, self.device),
            convs: self.decoder.state(slots),
        }
    }

    /// Codes of latents: `[B, C, n] -> [B, K, n]` i64.
    pub fn quantize(&self, latent: &Tensor) -> Tensor {
        tch::no_grad(|| self.quantizer.encode(latent))
    }
}
