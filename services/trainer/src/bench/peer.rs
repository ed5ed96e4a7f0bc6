use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::{Args, Figure};

/// The peer's program.
const SCRIPT: &str = include_str!("peer.py");

/// Runs the published package on the same shape.
pub(super) fn run(python: &Path, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let script = dir.path().join("peer.py");
    std::fs::write(&script, SCRIPT)?;
    let mut command = Command::new(python);
    command.arg(&script);
    let numbers =
        [("--rank", u64::from(args.rank)), ("--frames", args.frames as u64), ("--steps", args.steps as u64)];
    for (name, value) in numbers {
        command.args([name, &value.to_string()]);
    }
    command.arg("--batch").args(args.batch.iter().map(u32::to_string));
    let shown = python.display().to_string();
    let ran = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {shown}"))?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let figures: Vec<Figure> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    anyhow::ensure!(
        ran.status.success() && figures.len() == args.batch.len(),
        "the peer ended with {} after {} of {} batch sizes: it needs a GPU and the packages moshi, einops and sphn",
        ran.status,
        figures.len(),
        args.batch.len()
    );
    Ok(figures)
}
