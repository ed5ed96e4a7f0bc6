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
    /// Python with PyPI `moshi` 0.2.13, measured beside ours on the same device
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Most that ours may take of the peer's time, one for each number of sessions
    #[arg(long, value_delimiter = ',', default_value = "0.61,0.50,0.44")]
    wanted: Vec<f64>,
}

/// One way of stepping, measured.
struct Run {
    /// Per timed frame.
    milliseconds: Vec<f64>,
    /// Per frame and slot, warm-up included.
    emitted: Vec<Vec<Option<Emitted>>>,
}

pub fn run(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    let ours = measure(args, device, kind, table)?;
    if let Some(python) = &args.peer {
        nn::graph::empty_cache(device)?;
        for (theirs, wanted) in
            peer(python, args)?.iter().zip(args.wanted.iter().chain(std::iter::repeat(&1.0)))
        {
            let name = format!("{} sessions: moshi 0.2.13", theirs.sessions);
            table.row(name, ms(theirs.median_ms), format!("median; p95 {}", ms(theirs.p95_ms)));
            for (_, rows, ours) in ours.iter().filter(|(sessions, ..)| *sessions == theirs.sessions) {
                let ratio = ours / theirs.median_ms;
                let name = format!("{} sessions, {rows} rows: ours / theirs", theirs.sessions);
                table.must(name, format!("{ratio:.3}"), ratio <= *wanted, &format!("at most {wanted}"));
            }
        }
    }
    Ok(())
}

/// What the peer's script prints for one number of sessions.
#[derive(serde::Deserialize)]
struct Theirs {
    sessions: usize,
    median_ms: f64,
    p95_ms: f64,
}

fn peer(python: &std::path::Path, args: &Args) -> Outcome<Vec<Theirs>> {
    let sessions = args.sessions.iter().map(ToString::to_string);
    let output = std::process::Command::new(python)
        .args(["-c", include_str!("peer_step.py"), "--sessions"])
        .args(sessions)
        .args(["--frames", &args.frames.to_string(), "--warm-up", &args.warm_up.to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Sessions, rows and median milliseconds of the fastest way.
fn measure(args: &Args, device: Device, kind: Kind, table: &mut Table) -> Outcome<Vec<(usize, usize, f64)>> {
    let mut ours = Vec::new();
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
            ours.push((sessions, rows, compare(&lm, &prefix, sessions, args, table)?));
        }
    }
    Ok(ours)
}

/// Steps eagerly, then, on CUDA, as graphs; both must give the same ids. Gives the median of the last.
fn compare(lm: &Lm, prefix: &Prefix, sessions: usize, args: &Args, table: &mut Table) -> Outcome<f64> {
    let name = format!("{sessions} sessions, {} rows", prefix.frames());
    let eager = stepped(lm, prefix, sessions, args, false, &name, table)?;
    if !lm.device().is_cuda() {
        return Ok(quantile(&eager.milliseconds, 0.5));
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
    Ok(quantile(&graphs.milliseconds, 0.5))
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
