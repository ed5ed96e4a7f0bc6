//! `trainer bench`: whole updates of the product's own loop on random ids, beside the published package in one run.

mod peer;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use domain::run::{FloatType, TrainingSpec};
use personaplex::Lm;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use streams::Window;
use tch::{Device, Kind};

use crate::loader::Sample;
use crate::model::lora;
use crate::optim::AdamW;
use crate::schedule::LrPlan;
use crate::update::{Rules, loss_settings, pass_options};

/// What to measure.
#[derive(Debug, Parser)]
#[command(
    name = "trainer bench",
    about = "Updates per second of the training loop, beside the published package"
)]
struct Args {
    /// Folder of the base model.
    model: PathBuf,
    /// cpu, cuda or cuda:N.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Windows of an update.
    #[arg(long, value_delimiter = ',', default_value = "4,16")]
    batch: Vec<u32>,
    /// Frames of a window.
    #[arg(long, default_value_t = 750)]
    frames: usize,
    /// Rank of the adapters.
    #[arg(long, default_value_t = 128)]
    rank: u32,
    /// No adapters in the depformer; the peer has them always.
    #[arg(long)]
    backbone_only: bool,
    /// Temporal layers to compute a second time instead of keeping their inner values; all without it.
    #[arg(long)]
    recompute: Option<u32>,
    /// Rows that the heads see at a time.
    #[arg(long, default_value_t = 512)]
    slice: u32,
    /// Timed updates, after one that is not.
    #[arg(long, default_value_t = 3)]
    steps: usize,
    /// A Python with moshi, einops and sphn: runs the peer as well.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
}

/// What one side took for one batch size.
#[derive(Debug, Deserialize)]
struct Figure {
    batch: u32,
    ms: f64,
    frames_per_s: f64,
    /// Most memory in tensors; none on the CPU.
    peak_gib: Option<f64>,
    trained: u64,
    first_loss: f64,
    last_loss: f64,
}

/// Measures and prints. `arguments` are those after `bench`.
///
/// # Errors
/// When the model cannot be loaded, a number is not finite, or the peer fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let named = std::iter::once("trainer bench".to_owned()).chain(arguments.iter().cloned());
    let args = Args::try_parse_from(named).unwrap_or_else(|e| e.exit());
    let device = nn::device::choose(&args.device)?;
    let ours = ours(&args, device)?;
    let theirs = match &args.peer {
        Some(python) => peer::run(python, &args)?,
        None => Vec::new(),
    };
    print(&args, device, &ours, &theirs);
    Ok(())
}

fn ours(args: &Args, device: Device) -> anyhow::Result<Vec<Figure>> {
    let kind = if device.is_cuda() { Kind::BFloat16 } else { Kind::Float };
    let mut lm = Lm::load(&args.model, device, kind).context("the base model")?;
    let mut spec = spec(args);
    lm.add_lora(&lora(&spec), spec.seed)?;
    let mut optim = AdamW::new(lm.trainable(), &spec.optim, spec.lora_b_decay);
    let mut figures = Vec::new();
    for batch in &args.batch {
        spec.batch_size = *batch;
        let samples: Vec<Sample> = (0..*batch).map(|i| sample(&lm, args.frames, i)).collect();
        let windows: Vec<&Sample> = samples.iter().collect();
        let rules = Rules {
            spec: &spec,
            loss: loss_settings(&spec),
            pass: pass_options(&spec),
            plan: LrPlan::new(&spec.optim, spec.max_steps, 0),
            device,
        };
        if device.is_cuda() {
            nn::graph::reset_peak(device)?;
        }
        let (mut times, mut losses) = (Vec::new(), Vec::new());
        for i in 0..=args.steps {
            let began = Instant::now();
            let step = u32::try_from(i).unwrap_or(0) + 1;
            let update = rules.update(step, &windows, &lm, &mut optim, &ranks::Alone)?;
            nn::graph::synchronize(device)?;
            anyhow::ensure!(update.fault.is_none(), "{}", update.fault.unwrap_or_default());
            losses.push(update.points.get("loss").context("a loss")?);
            if i > 0 {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let ms = times[times.len() / 2];
        figures.push(Figure {
            batch: *batch,
            ms,
            frames_per_s: f64::from(*batch) * args.frames as f64 / ms * 1e3,
            peak_gib: nn::graph::memory_stats(device).ok().map(|m| m.allocated_peak as f64 / 1024f64.powi(3)),
            trained: optim.parameters(),
            first_loss: losses[0],
            last_loss: losses[losses.len() - 1],
        });
    }
    Ok(figures)
}

fn spec(args: &Args) -> TrainingSpec {
    let mut spec = TrainingSpec {
        num_microbatches: 1,
        recompute_layers: args.recompute,
        sliced_heads_frames: args.slice,
        grad_accum_dtype: FloatType::Float32,
        ..TrainingSpec::default()
    };
    (spec.lora.rank, spec.lora.skip_depformer) = (args.rank, args.backbone_only);
    spec
}

/// A window of random ids without prompt or context.
fn sample(lm: &Lm, frames: usize, number: u32) -> Sample {
    let mut rng = ChaCha8Rng::seed_from_u64(u64::from(number));
    let config = lm.config();
    let (text, audio) = (config.text_card, config.card);
    let mut id = |high: i64| i32::try_from(rng.random_range(0..high)).unwrap_or(0);
    let frame = |_| std::array::from_fn(|k| if k == 0 { id(text) } else { id(audio) });
    Sample {
        dialogue: format!("random-{number}"),
        outcome: None,
        window: Window {
            frames: (0..frames).map(frame).collect(),
            prompt_len: 0,
            context_mask: vec![false; frames],
            valid_frames: frames,
            index: 0,
            start: 0,
            end: frames,
            weight: 1.0,
        },
    }
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn print(args: &Args, device: Device, ours: &[Figure], theirs: &[Figure]) {
    let name = nn::graph::device_name(device).unwrap_or_else(|_| "CPU".into());
    println!("{name}; rank {}, windows of {} frames, {} timed updates", args.rank, args.frames, args.steps);
    println!("| batch | side | update | frames/s | peak memory | trained | loss |");
    println!("|---|---|---|---|---|---|---|");
    for figure in ours {
        let peer = theirs.iter().find(|p| p.batch == figure.batch);
        let times =
            peer.map_or(String::new(), |p| format!(" ({:.2} times)", figure.frames_per_s / p.frames_per_s));
        for (side, f, times) in
            [Some(("ours", figure, times.as_str())), peer.map(|p| ("moshi", p, ""))].into_iter().flatten()
        {
            println!(
                "| {} | {side} | {:.0} ms | {:.0}{times} | {} | {:.1} M | {:.3} to {:.3} |",
                f.batch,
                f.ms,
                f.frames_per_s,
                f.peak_gib.map_or("-".into(), |g| format!("{g:.1} GiB")),
                f.trained as f64 / 1e6,
                f.first_loss,
                f.last_loss
            );
        }
    }
}
