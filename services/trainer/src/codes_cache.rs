//! Codes of recordings, computed once: `<codec sha256>/<recording sha256>.safetensors`, one `[8, n]` i16 tensor a channel.

use std::path::{Path, PathBuf};

use streams::Codes;
use tch::{Kind, Tensor};

use crate::TrainError;

/// A folder of codes that one codec gave. Several processes may share it.
#[derive(Debug, Clone)]
pub struct CodesCache {
    dir: PathBuf,
}

impl CodesCache {
    /// The part of `root` that belongs to a codec; made when missing.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(root: &Path, codec_sha256: &str) -> Result<Self, TrainError> {
        let dir = root.join(codec_sha256);
        std::fs::create_dir_all(&dir).map_err(|source| TrainError::Io { path: dir.clone(), source })?;
        Ok(Self { dir })
    }

    /// Where the codes of a recording are or will be.
    #[must_use]
    pub fn path(&self, recording_sha256: &str) -> PathBuf {
        self.dir.join(format!("{recording_sha256}.safetensors"))
    }

    /// The codes of a recording with `channels` channels; none when they are not there or not whole.
    #[must_use]
    pub fn get(&self, recording_sha256: &str, channels: usize) -> Option<Vec<Vec<Codes>>> {
        let path = self.path(recording_sha256);
        if !path.exists() {
            return None;
        }
        match read(&path, channels) {
            Ok(codes) => Some(codes),
            Err(detail) => {
                tracing::warn!(?path, detail, "cached codes cannot be used and are computed again");
                None
            }
        }
    }

    /// Keeps the codes of a recording. The file appears whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put(&self, recording_sha256: &str, channels: &[&[Codes]]) -> Result<(), TrainError> {
        let path = self.path(recording_sha256);
        let tensors: Vec<(String, Tensor)> = channels
            .iter()
            .enumerate()
            .map(|(i, codes)| (format!("channel.{i}"), to_tensor(codes)))
            .collect();
        let staged = tempfile::NamedTempFile::new_in(&self.dir)
            .map_err(|source| TrainError::Io { path: path.clone(), source })?;
        Tensor::write_safetensors(&tensors, staged.path())?;
        staged.persist(&path).map_err(|e| TrainError::Io { path, source: e.error })?;
        Ok(())
    }
}

/// `[8, n]` i16.
fn to_tensor(codes: &[Codes]) -> Tensor {
    let flat: Vec<i32> = codes.iter().flatten().copied().collect();
    Tensor::from_slice(&flat).view([-1, 8]).transpose(0, 1).to_kind(Kind::Int16).contiguous()
}

fn read(path: &Path, channels: usize) -> Result<Vec<Vec<Codes>>, String> {
    let mut tensors = Tensor::read_safetensors(path).map_err(|e| e.to_string())?;
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    if tensors.len() != channels {
        return Err(format!("{} channels instead of {channels}", tensors.len()));
    }
    let one = |(name, tensor): &(String, Tensor)| match tensor.size()[..] {
        [8, _] => {
            let flat = tensor.transpose(0, 1).to_kind(Kind::Int).flatten(0, -1);
            let flat = Vec::<i32>::try_from(flat).map_err(|e| e.to_string())?;
            Ok(flat.chunks_exact(8).map(|c| std::array::from_fn(|k| c[k])).collect())
        }
        ref size => Err(format!("{name} is {size:?} instead of [8, n]")),
    };
    tensors.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_as_they_were_and_a_damaged_file_counts_as_none() -> Result<(), TrainError> {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = CodesCache::open(dir.path(), "codec")?;
        let agent: Vec<Codes> = (0..5).map(|i| std::array::from_fn(|k| i * 8 + k as i32)).collect();
        let user: Vec<Codes> = agent.iter().map(|c| c.map(|x| 2047 - x)).collect();
        assert!(cache.get("a", 2).is_none());
        cache.put("a", &[&agent, &user])?;
        assert_eq!(cache.get("a", 2), Some(vec![agent, user]));
        assert!(cache.get("a", 1).is_none(), "another number of channels");
        std::fs::write(cache.path("a"), b"half a file").expect("written");
        assert!(cache.get("a", 2).is_none());
        Ok(())
    }
}
