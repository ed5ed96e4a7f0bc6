//! Training steps in the full shape: adapters, or every tensor.

use std::path::PathBuf;

use personaplex::loss::{LossSettings, LossWeights};
use personaplex::{HostLayers, Lm, LoraConfig, LossScale, PassOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

use crate::Outcome;
use crate::measure::{Table, device_memory, quantile, reset_peak, timed};

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
    /// The embedding tables too
    #[arg(long)]
    embeddings: bool,
    /// No adapters: every tensor is trained
    #[arg(long, conflicts_with_all = ["rank", "all", "embeddings", "offload_frozen"])]
    full_finetuning: bool,
    /// Frozen layer weights stay in host memory; all layers are recomputed
    #[arg(long, conflicts_with = "recompute")]
    offload_frozen: bool,
    /// Rows that the heads see at a time
    #[arg(long, default_value_t = 1024)]
    slice: i64,
    /// Learning rate of the plain descent
    #[arg(long, default_value_t = 1e-4)]
    rate: f64,
    /// Timed steps, after one that is not
    #[arg(long, default_value_t = 3)]
    steps: usize,
}

pub fn run(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    let lm = prepared(args, device, kind)?;
    let trained: usize = lm.trainable().iter().map(|p| p.tensor.numel()).sum();
    let codes = random_codes(&lm, args);
    let weights =
        LossWeights::new(&codes, lm.config(), &vec![0; args.batch as usize], None, &LossSettings::default())?;
    reset_peak(device)?;
    let (mut times, mut losses, mut finite) = (Vec::new(), Vec::new(), true);
    let mut predicted = 0.0;
    for i in 0..=args.steps {
        let (time, (loss, squares)) = timed(device, || step(&lm, &codes, &weights, args))?;
        let good = loss.is_finite() && squares.is_finite();
        predicted -= if i < args.steps { args.rate * squares } else { 0.0 };
        if i > 0 {
            times.push(time);
        }
        losses.push(loss);
        finite &= good;
    }
    let name = name(args);
    let median = quantile(&times, 0.5);
    let speed = (args.batch * args.frames) as f64 / median * 1e3;
    let millions = trained as f64 / 1e6;
    table.row(
        format!("{name}: step"),
        format!("{median:.1} ms"),
        format!("median; {speed:.0} frames/s, {millions:.1} M trained"),
    );
    let figure = format!("{:.4} to {:.4}", losses[0], losses[losses.len() - 1]);
    table.must(format!("{name}: loss"), figure, finite, "losses, gradients and what is trained are finite");
    table.row(format!("{name}: change"), format!("{predicted:.2e}"), "of the loss, to first order");
    table.memory(&format!("{name}: memory"), device_memory(device)?);
    Ok(())
}

/// The model with what is trained of it.
fn prepared(args: &Args, device: Device, kind: Kind) -> Outcome<Lm> {
    let mut lm = crate::open(&args.dir, device, kind)?;
    if args.full_finetuning {
        lm.train_all()?;
        return Ok(lm);
    }
    let Args { rank, all, embeddings, .. } = *args;
    lm.add_lora(&LoraConfig { rank, skip_depformer: !all, embeddings, ..LoraConfig::default() }, 1)?;
    if args.offload_frozen {
        lm = lm.stream_layers(Box::<HostLayers>::default(), 1)?;
    }
    Ok(lm)
}

fn name(args: &Args) -> String {
    let Args { rank, batch, frames, recompute, .. } = args;
    let what = if args.full_finetuning { "all weights".into() } else { format!("LoRA rank {rank}") };
    let tables = if args.embeddings { " and tables" } else { "" };
    let layers = if args.offload_frozen {
        "layers in host memory".into()
    } else {
        format!("{recompute} layers recomputed")
    };
    format!("{what}{tables}, batch {batch}, {frames} frames, {layers}")
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

/// Forward, backward, one plain descent step. Returns the loss and the sum of the gradients' squares, which is not finite
/// when a gradient or what was trained is not.
fn step(lm: &Lm, codes: &Tensor, weights: &LossWeights, args: &Args) -> Outcome<(f64, f64)> {
    let scale = LossScale { text: 1.0 / weights.text_sum(), audio: 1.0 / weights.audio_sum(), kl: 0.0 };
    let recompute_layers = if args.offload_frozen { usize::MAX } else { args.recompute };
    let options = PassOptions { recompute_layers, slice_rows: args.slice, ..PassOptions::default() };
    let sums = lm.backward(codes, weights, scale, &options)?;
    let loss = sums.text_sum * scale.text + sums.audio_sum * scale.audio;
    let mut squares = Vec::new();
    tch::no_grad(|| {
        for param in lm.trainable() {
            let mut tensor = param.tensor;
            let mut grad = tensor.grad();
            squares.push(grad.norm_scalaropt_dtype(2.0, Kind::Float).square());
            let _ = tensor.g_sub_(&(&grad * args.rate));
            // Zero, or not a number when the tensor holds one that is not finite.
            squares.push(tensor.sum(Kind::Float) * 0.0);
            let _ = grad.zero_();
        }
    });
    Ok((loss, Tensor::stack(&squares, 0).sum(Kind::Double).double_value(&[])))
}
