//! Figures of the machine and of the process, and the table that shows them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nn::graph::MemoryStats;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tch::Device;
use weights::LmConfig;

use crate::Outcome;

const GIB: f64 = (1_u64 << 30) as f64;

/// What was measured, the figure, and what it must be or means.
#[derive(Default)]
pub struct Table {
    rows: Vec<[String; 3]>,
    failed: bool,
}

impl Table {
    pub fn row(&mut self, what: impl Into<String>, figure: impl Into<String>, remark: impl Into<String>) {
        self.rows.push([what.into(), figure.into(), remark.into()]);
    }

    /// A requirement.
    pub fn must(&mut self, what: impl Into<String>, figure: impl Into<String>, holds: bool, wanted: &str) {
        self.failed |= !holds;
        let verdict = if holds { "ok" } else { "FAILED" };
        self.row(what, figure, format!("{verdict}: {wanted}"));
    }

    pub fn memory(&mut self, what: &str, stats: Option<MemoryStats>) {
        if let Some(stats) = stats {
            let figure = format!("{} GiB", gib(stats.allocated_peak));
            let remark = format!("peak of tensors; {} GiB reserved at most", gib(stats.reserved_peak));
            self.row(what, figure, remark);
        }
    }

    pub fn holds(&self) -> bool {
        !self.failed
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        for [what, figure, remark] in &self.rows {
            let line = format!("{what:first$}  {figure:>second$}  {remark}");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

pub fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / GIB)
}

/// Device, driver, libtorch, cores: one line.
pub fn machine(device: Device) -> Outcome<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let on = match device {
        Device::Cpu => "CPU".to_string(),
        device => {
            let total = gib(nn::graph::memory_stats(device)?.total);
            format!("{} ({total} GiB), driver {}", nn::graph::device_name(device)?, driver())
        }
    };
    Ok(format!("{on}, libtorch {}, {cores} cores", nn::device::libtorch_version()))
}

/// Version of the NVIDIA driver, from its control program.
fn driver() -> String {
    let query = ["--query-gpu=driver_version", "--format=csv,noheader", "--id=0"];
    let output = std::process::Command::new("nvidia-smi").args(query).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        _ => "unknown".into(),
    }
}

/// Figures of the device's memory; none on the CPU.
pub fn device_memory(device: Device) -> Outcome<Option<MemoryStats>> {
    Ok(if device.is_cuda() { Some(nn::graph::memory_stats(device)?) } else { None })
}

pub fn reset_peak(device: Device) -> Outcome {
    if device.is_cuda() {
        nn::graph::empty_cache(device)?;
        nn::graph::reset_peak(device)?;
    }
    Ok(())
}

/// Milliseconds that `work` takes on the device.
pub fn timed<T>(device: Device, work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    nn::graph::synchronize(device)?;
    let start = Instant::now();
    let value = work()?;
    nn::graph::synchronize(device)?;
    Ok((start.elapsed().as_secs_f64() * 1e3, value))
}

/// The value that `share` of all values do not exceed.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

/// Memory of this process that no file backs, in bytes (Linux).
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Watches [`anonymous_bytes`] every two milliseconds.
pub struct HostMemory {
    before: u64,
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl HostMemory {
    pub fn watch() -> Self {
        let before = anonymous_bytes().unwrap_or(0);
        let (peak, stop) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (peak, stop) = (peak.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    peak.fetch_max(anonymous_bytes().unwrap_or(0), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        Self { before, peak, stop, thread }
    }

    /// Bytes before, and the most since above them.
    pub fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher does not panic");
        (self.before, self.peak.load(Ordering::Relaxed).saturating_sub(self.before))
    }
}

/// Random ids of all 17 streams.
pub fn random_frame(rng: &mut ChaCha8Rng, config: &LmConfig) -> personaplex::Frame {
    std::array::from_fn(|stream| {
        let high = if stream == 0 { config.text_card } else { config.card };
        rng.random_range(0..high) as i32
    })
}

/// Random codes of the user.
pub fn random_user(rng: &mut ChaCha8Rng, config: &LmConfig) -> [i32; 8] {
    std::array::from_fn(|_| rng.random_range(0..config.card) as i32)
}
