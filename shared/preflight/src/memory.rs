//! Device memory of a training (finetune.md 6.5), before any weight is loaded.

use domain::frame::FRAME_RATE;
use domain::preflight::Severity::{Error, Info};
use domain::preflight::{BatchProposal, DeviceFit, MemoryNumbers};
use domain::run::{FloatType, TrainingSpec};
use weights::lora::{LoraConfig, adapter_inventory, sites};
use weights::{LmConfig, lm_inventory};

use crate::findings::{Findings, size};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Bytes of optimizer state, gradient and copies per trained parameter.
const TRAINED_BYTES: f64 = 18.0;
/// Activations of a frame with checkpointing and sliced heads, of the published model.
const FRAME_BYTES: f64 = 0.45e6;
/// What the heads of a frame add while it is in their slice, of the published model.
const HEADS_BYTES: f64 = 0.85e6;
/// Inner values kept per layer and frame without checkpointing, in values of the width and of the hidden width.
const KEPT_VALUES: (f64, f64) = (10.0, 3.0);
/// Shortest window that a specification allows, seconds.
const SHORTEST_S: f64 = 10.0;

/// Usual devices with the memory that a training can use of them, GiB.
pub const DEVICES: [(&str, f64); 3] = [("24 GB", 22.6), ("80 GB", 78.0), ("141 GB", 138.0)];

/// Memory in parts, so that other batches can be tried.
struct Shape {
    base: u64,
    trained: u64,
    static_bytes: f64,
    frame_bytes: f64,
    heads_bytes: f64,
    slice: f64,
}

impl Shape {
    /// `world` processes share frozen layers that are to be split.
    fn new(spec: &TrainingSpec, lm: &LmConfig, world: usize) -> Self {
        let size = |shape: &[i64]| shape.iter().product::<i64>().unsigned_abs();
        let inventory = lm_inventory(lm);
        let base: u64 = inventory.iter().map(|t| size(&t.shape)).sum();
        let trained = if spec.full_finetuning {
            base
        } else {
            let (rank, skip_depformer) = (i64::from(spec.lora.rank), spec.lora.skip_depformer);
            let lora = LoraConfig { rank, skip_depformer, ..LoraConfig::default() };
            let adapters: u64 = adapter_inventory(lm, &lora).iter().map(|t| size(&t.shape)).sum();
            let embeddings = inventory.iter().filter(|t| spec.lora.ft_embed && t.name.contains("emb"));
            adapters + embeddings.map(|t| size(&t.shape)).sum::<u64>()
        };
        let value = if spec.param_dtype == Some(FloatType::Float32) { 4.0 } else { 2.0 };
        let (dim, layers, hidden) = (lm.dim as f64, lm.num_layers as f64, lm.hidden() as f64);
        let recomputed = match (spec.gradient_checkpointing, spec.recompute_layers) {
            (false, _) => 0.0,
            (true, None) => layers,
            (true, Some(n)) => f64::from(n).min(layers),
        };
        let kept = (layers - recomputed) * value * (KEPT_VALUES.0 * dim + KEPT_VALUES.1 * hidden);
        // Of layers that are elsewhere one is on the device at a time, beside the own part of those that are split.
        let layer: u64 = sites(lm, true).iter().take(4).map(|s| (s.inputs * s.outputs).unsigned_abs()).sum();
        let away = match (spec.offload_frozen, spec.shard_frozen) {
            (true, _) => layer as f64 * (layers - 1.0),
            (false, true) if world > 1 => layer as f64 * (layers * (1.0 - 1.0 / world as f64) - 1.0),
            _ => 0.0,
        };
        let logits = (lm.dep_q * lm.card + lm.text_card) as f64;
        let scale = value / 2.0;
        Self {
            base,
            trained,
            static_bytes: value * (base as f64 - away) + TRAINED_BYTES * trained as f64,
            frame_bytes: scale * FRAME_BYTES * dim * layers / (4096.0 * 32.0) + kept,
            heads_bytes: scale * HEADS_BYTES * logits / (16.0 * 2048.0 + 32_000.0),
            slice: f64::from(spec.sliced_heads_frames),
        }
    }

    /// Activations of a micro-batch of so many frames.
    fn activations(&self, frames: f64) -> f64 {
        frames * self.frame_bytes + frames.min(self.slice) * self.heads_bytes
    }

    fn fits(&self, frames: f64, bytes: f64) -> bool {
        self.static_bytes + self.activations(frames) <= bytes
    }

    /// Fewer windows at a time and more micro-batches; then shorter windows.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
    fn proposal(&self, spec: &TrainingSpec, bytes: f64) -> Option<BatchProposal> {
        let windows = spec.batch_size * spec.num_microbatches;
        let frames = frames(spec);
        let divides = |b: &u32| windows.is_multiple_of(*b);
        let batch =
            (1..=spec.batch_size).rev().filter(divides).find(|b| self.fits(f64::from(*b) * frames, bytes));
        if let Some(batch_size) = batch {
            let num_microbatches = windows / batch_size;
            return Some(BatchProposal { batch_size, num_microbatches, duration_sec: spec.duration_sec });
        }
        let mut seconds = (spec.duration_sec / 10.0).floor() as u32 * 10;
        while f64::from(seconds) >= SHORTEST_S {
            if self.fits(f64::from(seconds) * FRAME_RATE, bytes) {
                let duration_sec = f64::from(seconds);
                return Some(BatchProposal { batch_size: 1, num_microbatches: windows, duration_sec });
            }
            seconds -= 10;
        }
        None
    }
}

fn frames(spec: &TrainingSpec) -> f64 {
    (spec.duration_sec * FRAME_RATE).floor()
}

/// What each of `world` processes of the training takes and what would fit on each device (name, usable GiB).
#[must_use]
pub fn estimate(spec: &TrainingSpec, lm: &LmConfig, world: usize, devices: &[(&str, f64)]) -> MemoryNumbers {
    let shape = Shape::new(spec, lm, world);
    let in_flight = f64::from(spec.batch_size) * frames(spec);
    let activations = shape.activations(in_flight);
    MemoryNumbers {
        base_parameters: shape.base,
        trainable_parameters: shape.trained,
        static_gib: shape.static_bytes / GIB,
        activations_gib: activations / GIB,
        total_gib: (shape.static_bytes + activations) / GIB,
        devices: devices
            .iter()
            .map(|(device, usable_gib)| DeviceFit {
                device: (*device).into(),
                usable_gib: *usable_gib,
                fits: shape.fits(in_flight, usable_gib * GIB),
                proposal: shape.proposal(spec, usable_gib * GIB),
            })
            .collect(),
    }
}

/// One line for people.
fn told(numbers: &MemoryNumbers, spec: &TrainingSpec) -> String {
    let [total, fixed, moving] =
        [numbers.total_gib, numbers.static_gib, numbers.activations_gib].map(|gib| size(gib * GIB));
    let mut text = format!(
        "{total}: {fixed} for weights and state ({} trained of {}), {moving} for {} windows of {} s at a time",
        numbers.trainable_parameters, numbers.base_parameters, spec.batch_size, spec.duration_sec
    );
    for device in &numbers.devices {
        let fit = match (&device.proposal, device.fits) {
            (_, true) => "fits".to_owned(),
            (Some(p), false) => format!(
                "would fit with batch_size {}, num_microbatches {}, duration_sec {}",
                p.batch_size, p.num_microbatches, p.duration_sec
            ),
            (None, false) => "does not fit".to_owned(),
        };
        text.push_str(&format!("; {} ({:.1} usable): {fit}", device.device, device.usable_gib));
    }
    text
}

/// An error when no device can hold it, else the numbers as a note.
pub(crate) fn judge(numbers: &MemoryNumbers, spec: &TrainingSpec, findings: &mut Findings) {
    let some = numbers.devices.is_empty() || numbers.devices.iter().any(|d| d.fits);
    let (severity, code) = if some { (Info, "memory") } else { (Error, "memory_short") };
    findings.say(severity, code, "/spec/batch_size", told(numbers, spec));
}

/// Whether a training fits into what a device has free: for the trainer, before it loads weights.
///
/// # Errors
/// The estimate and what would fit, for people.
pub fn fits(
    spec: &TrainingSpec,
    lm: &LmConfig,
    world: usize,
    device: &str,
    free_bytes: u64,
) -> Result<MemoryNumbers, String> {
    let devices = [(device, free_bytes as f64 / GIB)];
    let numbers = estimate(spec, lm, world, &devices);
    if numbers.devices.iter().all(|d| d.fits) {
        return Ok(numbers);
    }
    let mut text = told(&numbers, spec);
    let away = TrainingSpec { offload_frozen: true, shard_frozen: false, ..spec.clone() };
    if away.faults().is_empty() && estimate(&away, lm, world, &devices).devices.iter().all(|d| d.fits) {
        text.push_str("; with offload_frozen it would fit as it is, more slowly");
    }
    Err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weights::{ModelConfig, WeightsError};

    fn published() -> Result<LmConfig, WeightsError> {
        Ok(ModelConfig::preset("personaplex-7b")?.lm)
    }

    #[test]
    fn the_static_part_of_the_7b_is_that_of_the_table() -> Result<(), WeightsError> {
        for (rank, skip_depformer, wanted) in
            [(32, true, 16.8), (64, true, 17.9), (128, true, 20.2), (128, false, 23.9)]
        {
            let mut spec = TrainingSpec::default();
            (spec.lora.rank, spec.lora.skip_depformer) = (rank, skip_depformer);
            let found = estimate(&spec, &published()?, 1, &[]).static_gib;
            assert!((found - wanted).abs() < 0.4, "rank {rank}: {found}, not {wanted}");
        }
        Ok(())
    }

    #[test]
    fn a_24_gb_card_is_offered_what_the_table_says_it_can_hold() -> Result<(), WeightsError> {
        let spec = TrainingSpec { batch_size: 16, num_microbatches: 1, ..TrainingSpec::default() };
        let numbers = estimate(&spec, &published()?, 1, &DEVICES);
        let [small, middle, large] = &numbers.devices[..] else { panic!("three devices") };
        assert!(!small.fits && middle.fits && large.fits, "{numbers:?}");
        let offer = small.proposal.expect("fewer windows fit");
        let frames = f64::from(offer.batch_size) * 2048.0;
        assert!((6_000.0..12_000.0).contains(&frames), "about 11 200 frames fit: {offer:?}");
        assert_eq!(offer.batch_size * offer.num_microbatches, 16, "{offer:?}");
        assert!(
            fits(&spec, &published()?, 1, "cuda:0", 24 << 30).is_err_and(|e| e.contains("would fit with"))
        );
        Ok(())
    }

    #[test]
    fn shorter_windows_are_offered_when_not_even_one_fits_and_nothing_when_the_weights_do_not()
    -> Result<(), WeightsError> {
        let spec = TrainingSpec { duration_sec: 240.0, ..TrainingSpec::default() };
        let lm = published()?;
        let fixed = estimate(&spec, &lm, 1, &[]).static_gib;
        let numbers = estimate(&spec, &lm, 1, &[("small", fixed + 0.8), ("tiny", 8.0)]);
        let offer = numbers.devices[0].proposal.expect("a shorter window fits");
        assert!(offer.batch_size == 1 && offer.duration_sec < 240.0, "{offer:?}");
        assert_eq!(numbers.devices[1].proposal, None);
        let mut findings = Findings::default();
        judge(&numbers, &spec, &mut findings);
        assert_eq!(findings.finish()[0].code, "memory_short");
        Ok(())
    }

    #[test]
    fn keeping_inner_values_costs_more_than_recomputing_them() -> Result<(), WeightsError> {
        let lm = published()?;
        let kept = TrainingSpec { gradient_checkpointing: false, ..TrainingSpec::default() };
        let half = TrainingSpec { recompute_layers: Some(16), ..TrainingSpec::default() };
        let [all, half, none] =
            [TrainingSpec::default(), half, kept].map(|s| estimate(&s, &lm, 1, &[]).activations_gib);
        assert!(all < half && half < none, "{all} {half} {none}");
        Ok(())
    }

    #[test]
    fn layers_that_are_elsewhere_leave_room_and_are_offered_when_nothing_else_fits()
    -> Result<(), WeightsError> {
        let lm = published()?;
        let away = TrainingSpec { offload_frozen: true, ..TrainingSpec::default() };
        let split = TrainingSpec { shard_frozen: true, ..TrainingSpec::default() };
        let gib = |spec: &TrainingSpec, world| estimate(spec, &lm, world, &[]).static_gib;
        let whole = gib(&TrainingSpec::default(), 1);
        // 12.25 GiB of layers; measured on a device: 18.1 GiB with them, 6.2 without.
        assert!((whole - gib(&away, 1) - 11.9).abs() < 0.3, "{whole} {}", gib(&away, 1));
        assert!((gib(&split, 1) - whole).abs() < 1e-9, "one process has nobody to split with");
        assert!(gib(&split, 2) < whole - 5.0 && gib(&split, 8) < gib(&split, 2));
        let told =
            fits(&TrainingSpec { batch_size: 1, ..TrainingSpec::default() }, &lm, 1, "cuda:0", 12 << 30);
        assert!(told.is_err_and(|e| e.contains("with offload_frozen it would fit")));
        Ok(())
    }
}
