//! Live calls for a long time: nothing is missed and nothing grows. A minute here; `make soak` makes it half an hour.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use inference::engine::{Absent, Conversation, Engine, Notice, Pace, Pushed};
use streams::inject_queue::When;
use weights::ModelConfig;

use crate::engine::{item, pcm, request};
use crate::house::{Files, settings};

const CALLS: usize = 8;
/// Frames after which a call ends and the next one begins in its place, another number for each.
const LENGTH: usize = 2_700;
/// From so many seconds on it is a soak: the machine is for it alone.
const LONG: u64 = 300;

#[expect(clippy::disallowed_methods, reason = "how long is the choice of who runs it")]
fn seconds() -> u64 {
    std::env::var("PPX_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60)
}

/// Resident memory of this process, bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).context("VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse::<u64>()? << 10)
}

/// What one caller has seen.
#[derive(Default)]
struct Seen {
    frames: u64,
    absent: u64,
    dropped: u64,
    refreshes: u64,
    longest_gap: Duration,
}

/// Speaks a frame every 80 ms and listens, until `end`.
async fn call(
    engine: &Engine,
    files: &Files,
    model: &store::models::NewModel,
    n: usize,
    end: Instant,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut round = 0;
    while Instant::now() < end {
        let mut plan = request(files, model, (n * 1_000 + round) as u64)?;
        plan.pace = Pace::Realtime { absent: Absent::Silence };
        // The place of the call before is free a moment after it has ended.
        let place = testkit::wait_for("a place", Duration::from_secs(5), async || engine.reserve()).await?;
        let conversation = engine.open(plan, place).await?;
        talk(conversation, &mut seen, LENGTH + n * 97, end).await?;
        round += 1;
    }
    Ok(seen)
}

async fn talk(mut conversation: Conversation, seen: &mut Seen, frames: usize, end: Instant) -> Result<()> {
    let mut beat = tokio::time::interval(Duration::from_millis(80));
    let (mut spoken, mut index, mut last) = (0, 0, None::<Instant>);
    while spoken < frames && Instant::now() < end {
        tokio::select! {
            _ = beat.tick() => {
                let Pushed::Taken { dropped } = conversation.push(pcm(spoken % 50)) else { break };
                seen.dropped += dropped as u64;
                spoken += 1;
                if spoken % 200 == 0 {
                    let id = spoken.to_string();
                    let _ = conversation.injector().offer(item(&id, vec![50; 12], When::Immediate)).await;
                }
            }
            frame = conversation.next() => {
                let frame = frame.context("the call goes on")??;
                ensure!(frame.index == index, "frame {} came, {index} was due", frame.index);
                index += 1;
                seen.frames += 1;
                seen.absent += u64::from(frame.was_absent);
                let refreshed = |n: &&Notice| matches!(n, Notice::WindowRefreshed { .. });
                seen.refreshes += frame.notices.iter().filter(refreshed).count() as u64;
                let now = Instant::now();
                seen.longest_gap = seen.longest_gap.max(last.map_or(Duration::ZERO, |last| now - last));
                last = Some(now);
            }
        }
    }
    Ok(())
}

/// Bytes a minute by which `memory` (second, bytes) grows: the slope of the line through its points.
fn slope(memory: &[(f64, f64)]) -> f64 {
    let n = memory.len() as f64;
    let (x, y) = memory.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let (xy, xx) = memory
        .iter()
        .fold((0.0, 0.0), |(xy, xx), p| (xy + (p.0 - x) * (p.1 - y), xx + (p.0 - x) * (p.0 - x)));
    60.0 * xy / xx
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_calls_in_real_time_miss_nothing_and_memory_stays_flat() -> Result<()> {
    let files = Files::new()?;
    // A window of forty seconds, so that it is filled anew many times.
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.context = 500;
    let model = files.model_of(&config, 1)?;
    let engine = Engine::start(&settings(&[("MAX_SESSIONS", "8")])?)?;
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds());
    let watch = async {
        let mut memory = Vec::new();
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            memory.push((started.elapsed().as_secs_f64(), resident()? as f64));
        }
        Ok::<_, anyhow::Error>(memory)
    };
    let calls = futures::future::try_join_all((0..CALLS).map(|n| call(&engine, &files, &model, n, end)));
    let (memory, calls) = tokio::try_join!(watch, calls)?;
    let frames: u64 = calls.iter().map(|c| c.frames).sum();
    let absent: u64 = calls.iter().map(|c| c.absent).sum();
    let dropped: u64 = calls.iter().map(|c| c.dropped).sum();
    let refreshes: u64 = calls.iter().map(|c| c.refreshes).sum();
    let gap = calls.iter().map(|c| c.longest_gap).max().unwrap_or_default();
    // The first third warms up: allocators, caches, first windows.
    let settled = &memory[memory.len() / 3..];
    let growth = slope(settled) / f64::from(1 << 20);
    let (first, last) = (settled[0].1 / 1048576.0, settled[settled.len() - 1].1 / 1048576.0);
    let load = engine.load_figures().await?;
    eprintln!(
        "{CALLS} calls, {} s: {frames} frames, {absent} of silence for late ones, {dropped} dropped, {refreshes} fresh \
         windows, longest gap {} ms, ticks {} late {} longest {} ms, memory {first:.1} to {last:.1} MiB, {growth:.2} MiB/min",
        started.elapsed().as_secs(),
        gap.as_millis(),
        load.ticks,
        load.late,
        load.longest.as_millis(),
    );
    let wanted = CALLS as u64 * seconds() * 1_000 / 80;
    if seconds() >= LONG {
        ensure!(frames >= wanted * 99 / 100, "{frames} frames of {wanted}");
        ensure!(dropped + absent == 0, "{dropped} frames dropped, {absent} of silence: the engine was late");
        ensure!(growth < 1.0, "memory grows by {growth:.2} MiB a minute");
    } else {
        // Other tests want the same processors, so late ticks are no fault here; numbers without a gap are checked above.
        ensure!(frames >= wanted / 2, "{frames} frames of {wanted}");
        ensure!(growth < 10.0, "memory grows by {growth:.2} MiB a minute");
    }
    Ok(())
}
