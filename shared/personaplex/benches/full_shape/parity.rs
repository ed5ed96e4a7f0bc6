//! A stream in bf16 against prefill of the frames that it emitted: the hidden state of the same row.

use std::path::PathBuf;

use personaplex::{BatchOptions, Frame, Given, LmBatch, Order, Prompt, Sampler, Sampling};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

use crate::Outcome;
use crate::measure::{Table, random_user};

/// Largest difference of one element that bf16 may make.
const MOST: f64 = 0.1;

#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
    /// Frames to stream
    #[arg(long, default_value_t = 200)]
    frames: usize,
    /// A comparison every so many frames
    #[arg(long, default_value_t = 20)]
    every: usize,
}

pub fn run(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    let lm = crate::open(&args.dir, device, kind)?;
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    let empty = lm.prefill(&Prompt::default(), Order::Early)?;
    lm.open(&mut batch, 0, &empty, Sampler::new(Sampling::default(), 1))?;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut frames: Vec<Frame> = Vec::new();
    let mut worst = (0.0_f64, 0);
    let (mut mean, mut size, mut compared) = (0.0, 0.0, 0);
    for i in 1..=args.frames {
        let given = Given { user: Some(random_user(&mut rng, lm.config())), ..Given::default() };
        let emitted = lm.step(&mut batch, &[Some(given)])?;
        let emitted = emitted[0].ok_or("the early order emits at every call")?;
        frames.push(emitted.frame);
        if i % args.every != 0 && i != args.frames {
            continue;
        }
        let whole = lm.prefill(&Prompt::of_frames(frames.clone()), Order::Early)?;
        let streamed = batch.hidden().ok_or("the batch has stepped")?;
        let (largest, average, length) = difference(whole.hidden().ok_or("rows were fed")?, streamed);
        if largest > worst.0 || !largest.is_finite() {
            worst = (largest, i);
        }
        (mean, size, compared) = (mean + average, size + length, compared + 1);
    }
    let (mean, size) = (mean / f64::from(compared), size / f64::from(compared));
    let (largest, at) = worst;
    let wanted = format!("at most {MOST} in any element; the largest was after frame {at}");
    table.must("stream against prefill: largest", format!("{largest:.4}"), largest <= MOST, &wanted);
    let remark = format!("{compared} rows up to row {}, mean size of an element {size:.3}", args.frames);
    table.row("stream against prefill: mean", format!("{mean:.5}"), remark);
    Ok(())
}

/// Largest and mean difference of two hidden states, and the mean size of the first.
fn difference(wanted: &Tensor, found: &Tensor) -> (f64, f64, f64) {
    let wanted = wanted.flatten(0, -1).to_kind(Kind::Double);
    let apart = (&wanted - found.flatten(0, -1).to_kind(Kind::Double)).abs();
    let value = |t: Tensor| t.double_value(&[]);
    (value(apart.max()), value(apart.mean(Kind::Double)), value(wanted.abs().mean(Kind::Double)))
}
