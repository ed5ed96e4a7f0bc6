//! LoRA training steps in the full shape.

use std::path::PathBuf;

use personaplex::loss::{LossSettings, LossWeights};
use personaplex::{Lm, LoraConfig, LossScale, PassOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

use crate::Outcome;
use crate::measure::{Table, device_memory, quantile, reset_peak, timed};

const LEARNING_RATE: f64 = 1e-4;

#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
    #[arg(long, default_value_t = 128)]
    rank: i64,
    #[arg(long, default_value_t = 1)]
    batch: i64,
    #[arg(long, default_value_t = 256)]
    frames: i64,
    /// Temporal layers that are computed a second time instead of kept
    #[arg(long, default_value_t = 0)]
    recompute: usize,
    /// Adapters in the depformer and its heads too
    #[arg(long)]
    all: bool,
    /// Rows that the heads see at a time
    #[arg(long, default_value_t = 1024)]
    slice: i64,
    /// Timed steps, after one that is not
    #[arg(long, default_value_t = 3)]
    steps: usize,
}

pub fn run(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    let mut lm = crate::open(&args.dir, device, kind)?;
    lm.add_lora(&LoraConfig { rank: args.rank, skip_depformer: !args.all, ..LoraConfig::default() }, 1)?;
    let trained: usize = lm.trainable().iter().map(|p| p.tensor.numel()).sum();
    let codes = random_codes(&lm, args);
    let weights =
        LossWeights::new(&codes, lm.config(), &vec![0; args.batch as usize], None, &LossSettings::default())?;
    reset_peak(device)?;
    let (mut times, mut losses, mut finite) = (Vec::new(), Vec::new(), true);
    for i in 0..=args.steps {
        let (time, (loss, good)) = timed(device, || step(&lm, &codes, &weights, args))?;
        if i > 0 {
            times.push(time);
        }
        losses.push(loss);
        finite &= good;
    }
    let Args { rank, batch, frames, recompute, .. } = args;
    let name = format!("LoRA rank {rank}, batch {batch}, {frames} frames, {recompute} layers recomputed");
    let median = quantile(&times, 0.5);
    let speed = (args.batch * args.frames) as f64 / median * 1e3;
    let millions = trained as f64 / 1e6;
    table.row(
        format!("{name}: step"),
        format!("{median:.1} ms"),
        format!("median; {speed:.0} frames/s, {millions:.1} M trained"),
    );
    let figure = format!("{:.4} to {:.4}", losses[0], losses[losses.len() - 1]);
    table.must(format!("{name}: loss"), figure, finite, "losses, gradients and adapters are finite");
    table.memory(&format!("{name}: memory"), device_memory(device)?);
    Ok(())
}

/// Random ids, `[B, 17, T]` on the device.
fn random_codes(lm: &Lm, args: &Args) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let c = lm.config();
    let streams = c.streams() as i64;
    let mut ids = Vec::new();
    for _ in 0..args.batch {
        for stream in 0..streams {
            let high = if stream == 0 { c.text_card } else { c.card };
            ids.extend((0..args.frames).map(|_| rng.random_range(0..high)));
        }
    }
    Tensor::from_slice(&ids).view([args.batch, streams, args.frames]).to_device(lm.device())
}

/// Forward, backward, one plain descent step. Returns the loss and whether everything stayed finite.
fn step(lm: &Lm, codes: &Tensor, weights: &LossWeights, args: &Args) -> Outcome<(f64, bool)> {
    let scale = LossScale { text: 1.0 / weights.text_sum(), audio: 1.0 / weights.audio_sum(), kl: 0.0 };
    let options =
        PassOptions { recompute_layers: args.recompute, slice_rows: args.slice, ..PassOptions::default() };
    let sums = lm.backward(codes, weights, scale, &options)?;
    let loss = sums.text_sum * scale.text + sums.audio_sum * scale.audio;
    let mut finite = Vec::new();
    tch::no_grad(|| {
        for param in lm.trainable() {
            let mut tensor = param.tensor;
            let mut grad = tensor.grad();
            finite.push(grad.isfinite().all());
            let _ = tensor.g_sub_(&(&grad * LEARNING_RATE));
            finite.push(tensor.isfinite().all());
            let _ = grad.zero_();
        }
    });
    let finite = Tensor::stack(&finite, 0).all().int64_value(&[]) == 1;
    Ok((loss, finite && loss.is_finite()))
}
