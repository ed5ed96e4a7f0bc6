//! Writing a checkpoint with every core, in one file or in shards.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::index::{self, index_path, shard_path};
use crate::{TensorPlan, WeightsError, temporary_beside, writer};

/// How [`write_checkpoint`] writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Most bytes of tensors in one file; more are split into shards with an index. One file when `None`. A tensor is
    /// never split.
    pub shard_size: Option<u64>,
    /// Threads; as many as there are cores when `None`.
    pub threads: Option<usize>,
}

/// Takes the next bytes of the tensor being written.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), WeightsError> + 'a;

/// Writes the tensors of `plan` to `path`, or to shards beside it with an index `path.index.json` when they do not fit into
/// one of `options`' size. `fill` gives the bytes of one tensor piece by piece; it runs on several threads at once, largest
/// tensors first. Files appear under their names only when all is written. Returns their paths, the index first.
pub fn write_checkpoint(
    path: &Path,
    plan: &[TensorPlan],
    metadata: &BTreeMap<String, String>,
    options: WriteOptions,
    fill: impl Fn(&TensorPlan, &mut Sink<'_>) -> Result<(), WeightsError> + Sync,
) -> Result<Vec<PathBuf>, WeightsError> {
    let groups = group(plan, options.shard_size)?;
    let count = groups.len();
    let mut shards = Vec::new();
    for (i, tensors) in groups.into_iter().enumerate() {
        let path = if count == 1 { path.to_path_buf() } else { shard_path(path, i + 1, count) };
        shards.push(Shard::create(path, tensors, metadata)?);
    }
    let mut jobs: Vec<(&Shard, &TensorPlan, u64)> =
        shards.iter().flat_map(|s| s.plan.iter().zip(&s.starts).map(move |(t, at)| (s, t, *at))).collect();
    jobs.sort_by_key(|(_, t, _)| std::cmp::Reverse(t.bytes()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    run(options.threads.unwrap_or(cores).clamp(1, jobs.len().max(1)), &jobs, &fill)?;
    finish(path, shards)
}

struct Shard {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    plan: Vec<TensorPlan>,
    starts: Vec<u64>,
}

impl Shard {
    fn create(
        path: PathBuf,
        plan: Vec<TensorPlan>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self, WeightsError> {
        let (header, starts) = writer::header(&plan, metadata);
        let temporary = temporary_beside(&path);
        let file = File::create(&temporary).map_err(WeightsError::io("create", &temporary))?;
        let shard = Self { path, temporary, file, plan, starts };
        shard.file.write_all_at(&header, 0).map_err(WeightsError::io("write", &shard.temporary))?;
        Ok(shard)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // After the rename the temporary name is gone and this does nothing.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// Consecutive tensors of at most `limit` bytes together.
fn group(plan: &[TensorPlan], limit: Option<u64>) -> Result<Vec<Vec<TensorPlan>>, WeightsError> {
    let Some(limit) = limit else { return Ok(vec![plan.to_vec()]) };
    let mut groups: Vec<Vec<TensorPlan>> = vec![Vec::new()];
    let mut filled = 0;
    for tensor in plan {
        let bytes = tensor.bytes();
        if bytes > limit {
            let detail = format!("{} has {bytes}", tensor.name);
            return Err(WeightsError::BadShardSize { bytes: limit, detail });
        }
        if filled + bytes > limit {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        groups.last_mut().expect("starts with one group").push(tensor.clone());
    }
    Ok(groups)
}

fn run<F>(threads: usize, jobs: &[(&Shard, &TensorPlan, u64)], fill: &F) -> Result<(), WeightsError>
where
    F: Fn(&TensorPlan, &mut Sink<'_>) -> Result<(), WeightsError> + Sync,
{
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || -> Result<(), WeightsError> {
        while !failed.load(Ordering::Relaxed) {
            let Some((shard, tensor, start)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(error) = write_one(shard, tensor, *start, fill) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends =
            workers.into_iter().map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn write_one<F>(shard: &Shard, tensor: &TensorPlan, start: u64, fill: &F) -> Result<(), WeightsError>
where
    F: Fn(&TensorPlan, &mut Sink<'_>) -> Result<(), WeightsError>,
{
    let expected = tensor.bytes();
    let wrong = |found| WeightsError::WrongWrite { name: tensor.name.clone(), expected, found };
    let mut written = 0;
    fill(tensor, &mut |bytes: &[u8]| {
        let end = written + bytes.len() as u64;
        if end > expected {
            return Err(wrong(end));
        }
        let wrote = shard.file.write_all_at(bytes, start + written);
        written = end;
        wrote.map_err(WeightsError::io("write", &shard.temporary))
    })?;
    if written == expected { Ok(()) } else { Err(wrong(written)) }
}

fn finish(path: &Path, shards: Vec<Shard>) -> Result<Vec<PathBuf>, WeightsError> {
    for shard in &shards {
        shard.file.sync_all().map_err(WeightsError::io("sync", &shard.temporary))?;
    }
    for shard in &shards {
        std::fs::rename(&shard.temporary, &shard.path)
            .map_err(WeightsError::io("rename", &shard.temporary))?;
    }
    let mut paths: Vec<PathBuf> = shards.iter().map(|s| s.path.clone()).collect();
    if shards.len() > 1 {
        let mut map = BTreeMap::new();
        for shard in &shards {
            let name = shard.path.file_name().unwrap_or_default().to_string_lossy();
            map.extend(shard.plan.iter().map(|t| (t.name.clone(), name.clone().into_owned())));
        }
        let total = shards.iter().flat_map(|s| &s.plan).map(TensorPlan::bytes).sum();
        let index = index_path(path);
        let temporary = temporary_beside(&index);
        std::fs::write(&temporary, index::text(total, &map))
            .map_err(WeightsError::io("write", &temporary))?;
        std::fs::rename(&temporary, &index).map_err(WeightsError::io("rename", &temporary))?;
        paths.insert(0, index);
    }
    Ok(paths)
}
