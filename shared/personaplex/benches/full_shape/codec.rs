//! Encoding and decoding of a batch of conversations, eagerly and as CUDA graphs.

use std::path::PathBuf;
use std::time::Instant;

use nn::graph::synchronize;
use personaplex::Mimi;
use tch::{Device, Kind, Tensor};

use crate::Outcome;
use crate::measure::{Table, device_memory, quantile, reset_peak};

#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    sessions: Vec<i64>,
    #[arg(long, default_value_t = 150)]
    frames: usize,
    #[arg(long, default_value_t = 10)]
    warm_up: usize,
}

pub fn run(args: &Args, device: Device, table: &mut Table) -> Outcome {
    let mimi = Mimi::load(&args.dir, device)?;
    for &sessions in &args.sessions {
        let eager = stepped(&mimi, sessions, args, device, false, table)?;
        if device.is_cuda() {
            let graphs = stepped(&mimi, sessions, args, device, true, table)?;
            let share = eager.eq_tensor(&graphs).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
            let wanted = "of the codes the same as graphs and eagerly (ties of centroids fall either way)";
            table.must(
                format!("codec, {sessions} sessions: codes"),
                format!("{share:.4}"),
                share > 0.95,
                wanted,
            );
        }
    }
    Ok(())
}

/// The codes of all frames.
fn stepped(
    mimi: &Mimi,
    sessions: i64,
    args: &Args,
    device: Device,
    graphs: bool,
    table: &mut Table,
) -> Outcome<Tensor> {
    reset_peak(device)?;
    let (mut encoder, mut decoder) =
        (mimi.new_encoder_batch(sessions, 1), mimi.new_decoder_batch(sessions, 1));
    if graphs {
        mimi.record_encoder(&mut encoder)?;
        mimi.record_decoder(&mut decoder)?;
    }
    let active = vec![true; sessions as usize];
    tch::manual_seed(sessions);
    let (mut codes, mut times) = (Vec::new(), [Vec::new(), Vec::new()]);
    for frame in 0..args.warm_up + args.frames {
        let size = [sessions, 1, mimi.frame_size() as i64];
        let pcm = Tensor::randn(size, (Kind::Float, Device::Cpu)) * 0.1;
        let start = Instant::now();
        let ids = mimi.encode_step(&mut encoder, &pcm.to_device(device), &active)?.to_device(Device::Cpu);
        let encoded = Instant::now();
        let wave = mimi.decode_step(&mut decoder, &ids, &active)?.to_device(Device::Cpu);
        let decoded = Instant::now();
        if !wave.isfinite().all().int64_value(&[]).eq(&1) {
            return Err(format!("the wave of frame {frame} is not finite").into());
        }
        if frame >= args.warm_up {
            times[0].push((encoded - start).as_secs_f64() * 1e3);
            times[1].push((decoded - encoded).as_secs_f64() * 1e3);
        }
        codes.push(ids);
    }
    synchronize(device)?;
    let name = format!("codec, {sessions} sessions, {}", if graphs { "graph" } else { "eager" });
    for (direction, times) in ["encode", "decode"].into_iter().zip(&times) {
        let median = format!("{:.2} ms", quantile(times, 0.5));
        table.row(
            format!("{name}: {direction}"),
            median,
            format!("median; p95 {:.2} ms", quantile(times, 0.95)),
        );
    }
    table.memory(&format!("{name}: memory"), device_memory(device)?);
    Ok(Tensor::cat(&codes, 2))
}
