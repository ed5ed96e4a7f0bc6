//! Room for codes, checkpoints and the merged model (finetune.md 9, 33).

use domain::frame::FRAME_RATE;
use domain::preflight::Severity::{Error, Info, Warning};
use domain::preflight::{DiskNumbers, MemoryNumbers};

use crate::Inputs;
use crate::findings::{Findings, size};

/// Two sides of eight 16-bit codes.
const CODES_BYTES: f64 = 2.0 * 8.0 * 2.0;
/// A checkpoint in relation to its trained weights in f32: weights, both moments, small files.
const STATE: f64 = 3.2;
/// Share of the free room above which it is called short.
const SHORT: f64 = 0.8;

/// Bytes that the run leaves on the disk, and the room there is.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of files")]
pub fn estimate(
    inputs: &Inputs<'_>,
    steps: u64,
    memory: &MemoryNumbers,
    seconds: f64,
    findings: &mut Findings,
) -> DiskNumbers {
    let spec = inputs.spec;
    let saves = if !spec.do_ckpt || spec.ckpt_freq == 0 { 1 } else { steps / u64::from(spec.ckpt_freq) + 1 };
    // The best one and the one being written come on top of those that are kept.
    let kept = spec.num_ckpt_keep.map_or(saves, |keep| saves.min(u64::from(keep) + 2));
    let checkpoint = memory.trainable_parameters as f64 * 4.0 * STATE;
    let model_bytes: u64 = inputs.base_files.iter().map(|f| f.bytes).sum();
    let codes_bytes = (seconds * FRAME_RATE * CODES_BYTES) as u64;
    let checkpoint_bytes = (kept as f64 * checkpoint) as u64;
    let needed_bytes = codes_bytes + checkpoint_bytes + model_bytes;
    let free_bytes = rustix::fs::statvfs(inputs.storage).ok().map(|s| s.f_bavail * s.f_frsize);
    let told = format!(
        "{}: {} for codes, {} for checkpoints ({kept} of them), {} for the merged model; {} free",
        size(needed_bytes as f64),
        size(codes_bytes as f64),
        size(checkpoint_bytes as f64),
        size(model_bytes as f64),
        free_bytes.map_or_else(|| "unknown".into(), |f| size(f as f64))
    );
    let (severity, code) = match free_bytes {
        Some(free) if needed_bytes > free => (Error, "disk_full"),
        Some(free) if needed_bytes as f64 > SHORT * free as f64 => (Warning, "disk_short"),
        _ => (Info, "disk"),
    };
    findings.say(severity, code, "/spec/num_ckpt_keep", told);
    DiskNumbers { codes_bytes, checkpoint_bytes, model_bytes, needed_bytes, free_bytes }
}
