//! One call of the codec for a batch of slots: from tensors only (for a captured graph) and with its host side.

use nn::RingPlan;
use tch::Tensor;

use super::{DecState, EncState, Mimi};
use crate::PersonaplexError;

/// An encoder call at every stage.
#[derive(Debug)]
pub struct EncodeTaps {
    /// After the convolutions, 25 Hz: `[B, C, 2n]`.
    pub seanet: Tensor,
    /// After the transformer: `[B, C, 2n]`.
    pub transformer: Tensor,
    /// At the frame rate, before quantisation: `[B, C, n]`.
    pub latent: Tensor,
}

/// A decoder call at every stage.
#[derive(Debug)]
pub struct DecodeTaps {
    /// Sum of the looked-up centroids: `[B, C, n]`.
    pub quantized: Tensor,
    /// 25 Hz: `[B, C, 2n]`.
    pub upsampled: Tensor,
    /// After the transformer: `[B, C, 2n]`.
    pub transformer: Tensor,
    /// `[B, 1, n * frame]`.
    pub wave: Tensor,
}

impl Mimi {
    /// Codes of new samples: `pcm [B, 1, n * frame]` f32, `active [B]` bool, `start [B]` i64 (frames each slot has seen)
    /// to `[B, K, n]` i64. Updates the state's tensors in place and touches nothing on the host, so that a CUDA graph
    /// can hold it; the caller counts with [`EncState::advance`]. Slots that are not active advance nothing; their
    /// codes mean nothing but are in range. Samples that are not finite count as 0: one of them would otherwise stay in
    /// the stream's keys until it is reset.
    pub fn encode_tensors(
        &self,
        state: &mut EncState,
        pcm: &Tensor,
        active: &Tensor,
        start: &Tensor,
    ) -> Tensor {
        tch::no_grad(|| {
            let shape = state.transformer.shape();
            let (start, steps) = (start * self.config.downsample(), pcm.size()[2] / self.config.hop());
            let plan = RingPlan::new(shape, &start, active, steps, shape.capacity());
            self.quantizer.encode(&self.run_encoder(state, pcm, &plan, Some(active)).latent)
        })
    }

    /// Samples of codes: `codes [B, K, n]` i64, `active` and `start` as for [`Mimi::encode_tensors`], to
    /// `[B, 1, n * frame]`. K may be less than all codebooks. Ids outside the codebooks are not refused here but count
    /// as the nearest one inside. Slots that are not active give silence.
    pub fn decode_tensors(
        &self,
        state: &mut DecState,
        codes: &Tensor,
        active: &Tensor,
        start: &Tensor,
    ) -> Tensor {
        tch::no_grad(|| {
            let shape = state.transformer.shape();
            let (start, steps) =
                (start * self.config.downsample(), codes.size()[2] * self.config.downsample());
            let plan = RingPlan::new(shape, &start, active, steps, shape.capacity());
            self.run_decoder(state, codes, &plan, Some(active)).wave
        })
    }

    /// [`Mimi::encode_tensors`] with flags and positions from the host; counts the frames. Replays the recorded call
    /// where there is one of this size ([`Mimi::record_encoder`]).
    ///
    /// # Errors
    /// When `pcm` or `active` does not fit the state, or CUDA fails.
    pub fn encode_step(
        &self,
        state: &mut EncState,
        pcm: &Tensor,
        active: &[bool],
    ) -> Result<Tensor, PersonaplexError> {
        if let Some(recorded) = state.recorded.as_mut().filter(|r| r.serves(self, pcm)) {
            let frames = state.clock.check("pcm", pcm, 1..=1, self.config.frame_size(), active)?;
            let codes = recorded.replay(pcm, active, state.clock.frames())?;
            state.advance(active, frames);
            return Ok(codes);
        }
        Ok(self.quantize(&self.encode_taps(state, pcm, active)?.latent))
    }

    /// [`Mimi::decode_tensors`] with flags and positions from the host; counts the frames. Replays the recorded call
    /// where there is one of this size ([`Mimi::record_decoder`]). Codes on the host spare a wait for the device.
    ///
    /// # Errors
    /// When `codes` or `active` does not fit the state, or an active slot has an id outside the codebooks. The state is
    /// then as before.
    pub fn decode_step(
        &self,
        state: &mut DecState,
        codes: &Tensor,
        active: &[bool],
    ) -> Result<Tensor, PersonaplexError> {
        if let Some(recorded) = state.recorded.as_mut().filter(|r| r.serves(self, codes)) {
            let frames = state.clock.check("codes", codes, 1..=self.codebooks(), 1, active)?;
            self.check_codes(codes, active)?;
            let wave = recorded.replay(codes, active, state.clock.frames())?;
            state.advance(active, frames);
            return Ok(wave);
        }
        Ok(self.decode_taps(state, codes, active)?.wave)
    }

    /// As [`Mimi::encode_step`], without quantisation, showing every stage.
    ///
    /// # Errors
    /// As [`Mimi::encode_step`].
    pub fn encode_taps(
        &self,
        state: &mut EncState,
        pcm: &Tensor,
        active: &[bool],
    ) -> Result<EncodeTaps, PersonaplexError> {
        let frames = state.clock.check("pcm", pcm, 1..=1, self.config.frame_size(), active)?;
        let rate = self.config.downsample();
        let (shape, start) = (state.transformer.shape(), state.clock.starts(rate));
        let taps = tch::no_grad(|| {
            let plan = RingPlan::for_slots(shape, &start, active, frames * rate, self.device);
            self.run_encoder(state, &pcm.to_device(self.device), &plan, self.mask(active).as_ref())
        });
        state.advance(active, frames);
        Ok(taps)
    }

    /// As [`Mimi::decode_step`], showing every stage.
    ///
    /// # Errors
    /// As [`Mimi::decode_step`].
    pub fn decode_taps(
        &self,
        state: &mut DecState,
        codes: &Tensor,
        active: &[bool],
    ) -> Result<DecodeTaps, PersonaplexError> {
        let frames = state.clock.check("codes", codes, 1..=self.config.active_codebooks, 1, active)?;
        self.check_codes(codes, active)?;
        let rate = self.config.downsample();
        let (shape, start) = (state.transformer.shape(), state.clock.starts(rate));
        let taps = tch::no_grad(|| {
            let plan = RingPlan::for_slots(shape, &start, active, frames * rate, self.device);
            self.run_decoder(state, &codes.to_device(self.device), &plan, self.mask(active).as_ref())
        });
        state.advance(active, frames);
        Ok(taps)
    }

    /// `[B]` bool on the device; none when all slots take part.
    fn mask(&self, active: &[bool]) -> Option<Tensor> {
        (!active.iter().all(|a| *a)).then(|| Tensor::from_slice(active).to_device(self.device))
    }

    fn check_codes(&self, codes: &Tensor, active: &[bool]) -> Result<(), PersonaplexError> {
        let high = self.config.quantizer.bins;
        let active = Tensor::from_slice(active).to_device(codes.device()).view([-1, 1, 1]);
        let bad = codes.lt(0).logical_or(&codes.ge(high)).logical_and(&active);
        let found = codes.masked_select(&bad);
        if found.numel() == 0 {
            return Ok(());
        }
        Err(PersonaplexError::IdRange { what: "audio", value: found.int64_value(&[0]), low: 0, high })
    }

    fn run_encoder(
        &self,
        state: &mut EncState,
        pcm: &Tensor,
        plan: &RingPlan,
        active: Option<&Tensor>,
    ) -> EncodeTaps {
        let pcm = pcm.nan_to_num(0.0, 0.0, 0.0);
        let seanet = self.encoder.step(&mut state.convs, &pcm, active);
        let transformer = self.encoder_transformer.step(&mut state.transformer, plan, &seanet);
        let latent = self.downsample.step(&mut state.downsample, &transformer, active);
        EncodeTaps { seanet, transformer, latent }
    }

    fn run_decoder(
        &self,
        state: &mut DecState,
        codes: &Tensor,
        plan: &RingPlan,
        active: Option<&Tensor>,
    ) -> DecodeTaps {
        let quantized = self.quantizer.decode(codes);
        let upsampled = self.upsample.step(&mut state.upsample, &quantized, active);
        let transformer = self.decoder_transformer.step(&mut state.transformer, plan, &upsampled);
        let wave = self.decoder.step(&mut state.convs, &transformer, active);
        let wave = match active {
            Some(active) => wave.masked_fill(&active.logical_not().view([-1, 1, 1]), 0.0),
            None => wave,
        };
        DecodeTaps { quantized, upsampled, transformer, wave }
    }
}
