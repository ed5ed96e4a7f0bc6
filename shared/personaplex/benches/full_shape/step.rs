//! The step of a batch of conversations, eager and as CUDA graphs.

use std::path::PathBuf;
use std::time::Instant;

use personaplex::{BatchOptions, Emitted, Given, Lm, LmBatch, Order, Prefix, Prompt, Sampler, Sampling};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind};

use crate::Outcome;
use crate::measure::{Table, device_memory, quantile, random_frame, random_user, reset_peak};

#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    sessions: Vec<usize>,
    /// Frames of the prompt, and so cached rows when the timing starts
    #[arg(long, value_delimiter = ',', default_value = "60,750")]
    rows: Vec<usize>,
    #[arg(long, default_value_t = 60)]
    frames: usize,
    #[arg(long, default_value_t = 10)]
    warm_up: usize,
}

/// One way of stepping, measured.
struct Run {
    /// Per timed frame.
    milliseconds: Vec<f64>,
    /// Per frame and slot, warm-up included.
    emitted: Vec<Vec<Option<Emitted>>>,
}

pub fn run(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    let lm = crate::open(&args.dir, device, kind)?;
    for &rows in &args.rows {
        let mut rng = ChaCha8Rng::seed_from_u64(rows as u64);
        let frames = (0..rows).map(|_| random_frame(&mut rng, lm.config())).collect();
        let start = Instant::now();
        let prefix = lm.prefill(&Prompt::of_frames(frames), Order::Early)?;
        nn::graph::synchronize(device)?;
        table.row(
            format!("prefill of {rows} frames"),
            ms(start.elapsed().as_secs_f64() * 1e3),
            "first call of its length",
        );
        for &sessions in &args.sessions {
            compare(&lm, &prefix, sessions, args, table)?;
        }
    }
    Ok(())
}

/// Steps eagerly, then, on CUDA, as graphs; both must give the same ids.
fn compare(lm: &Lm, prefix: &Prefix, sessions: usize, args: &Args, table: &mut Table) -> Outcome {
    let name = format!("{sessions} sessions, {} rows", prefix.frames());
    let eager = stepped(lm, prefix, sessions, args, false, &name, table)?;
    if !lm.device().is_cuda() {
        return Ok(());
    }
    let again = stepped(lm, prefix, sessions, args, false, &format!("{name}, again"), table)?;
    let repeats = eager.emitted.iter().zip(&again.emitted).position(|(a, b)| a != b);
    table.row(format!("{name}: eager twice"), format!("{repeats:?}"), "first frame that differs");
    let graphs = stepped(lm, prefix, sessions, args, true, &name, table)?;
    let different = eager.emitted.iter().zip(&graphs.emitted).position(|(a, b)| a != b);
    let figure = match different {
        None => format!("{} frames", graphs.emitted.len()),
        Some(frame) => format!("frame {frame}"),
    };
    let wanted = "the same ids as graphs and eagerly (else: the first frame that differs)";
    table.must(format!("{name}: ids"), figure, different.is_none(), wanted);
    Ok(())
}

fn stepped(
    lm: &Lm,
    prefix: &Prefix,
    sessions: usize,
    args: &Args,
    graphs: bool,
    name: &str,
    table: &mut Table,
) -> Outcome<Run> {
    reset_peak(lm.device())?;
    let mut batch = LmBatch::new(lm, sessions, BatchOptions { graphs, ..BatchOptions::default() })?;
    for slot in 0..sessions {
        let sampler = Sampler::new(Sampling::default(), slot as u64);
        lm.open(&mut batch, slot, prefix, sampler)?;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(sessions as u64);
    let mut run = Run { milliseconds: Vec::new(), emitted: Vec::new() };
    for frame in 0..args.warm_up + args.frames {
        let given: Vec<_> = (0..sessions)
            .map(|_| Some(Given { user: Some(random_user(&mut rng, lm.config())), ..Given::default() }))
            .collect();
        // The ids come back to the host, so the device is done when the call returns.
        let start = Instant::now();
        let emitted = lm.step(&mut batch, &given)?;
        if frame >= args.warm_up {
            run.milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
        }
        run.emitted.push(emitted);
    }
    let way = if graphs { "graph" } else { "eager" };
    let remark = format!("median; p95 {}", ms(quantile(&run.milliseconds, 0.95)));
    table.row(format!("{name}: {way} step"), ms(quantile(&run.milliseconds, 0.5)), remark);
    table.memory(&format!("{name}: {way} memory"), device_memory(lm.device())?);
    Ok(run)
}

fn ms(value: f64) -> String {
    format!("{value:.2} ms")
}
