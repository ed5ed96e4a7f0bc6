use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{LM_FILE, MIMI_FILE, SafetensorsFile, TensorEntry, WeightsError, index, index_path, sha256_file};

/// The tensors of one checkpoint, in one file or in shards, under the names that the files use. Memory-mapped.
#[derive(Debug)]
pub struct CheckpointSource {
    path: PathBuf,
    index: Option<PathBuf>,
    files: Vec<SafetensorsFile>,
    /// Tensor name to position in `files`.
    places: BTreeMap<String, usize>,
}

impl CheckpointSource {
    /// Opens a safetensors file, a shard index, or a directory with `model.safetensors` or its index. A file name whose
    /// file is not there stands for the index beside it, so that a caller need not know which form a checkpoint has.
    /// Fails when both forms are there, when a shard is missing, and when index and shards disagree.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        match resolve(path)? {
            Form::One(path) => {
                let file = SafetensorsFile::open(&path)?;
                let places = file.tensors().map(|(name, _)| (name.to_string(), 0)).collect();
                Ok(Self { path, index: None, files: vec![file], places })
            }
            Form::Sharded(index) => Self::open_shards(index),
        }
    }

    fn open_shards(index: PathBuf) -> Result<Self, WeightsError> {
        let map = index::read(&index)?;
        let shards: BTreeSet<&String> = map.values().collect();
        let mut files = Vec::new();
        for shard in &shards {
            let path = index.with_file_name(shard);
            if !path.exists() {
                return Err(WeightsError::MissingShard { index, shard: shard.to_string() });
            }
            files.push(SafetensorsFile::open(&path)?);
        }
        for (file, shard) in files.iter().zip(&shards) {
            if let Some((name, _)) = file.tensors().find(|(name, _)| map.get(*name) != Some(shard)) {
                return Err(WeightsError::NotInIndex { name: name.into(), shard: shard.to_string(), index });
            }
        }
        let mut places = BTreeMap::new();
        for (name, shard) in &map {
            let at = shards.iter().position(|s| *s == shard).expect("the set was made of these");
            if files[at].tensor(name).is_err() {
                return Err(WeightsError::NotInShard { name: name.clone(), shard: shard.clone(), index });
            }
            places.insert(name.clone(), at);
        }
        Ok(Self { path: index.clone(), index: Some(index), files, places })
    }

    /// The file, or the index of the shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every file read: the index, if there is one, and the weight files.
    pub fn paths(&self) -> Vec<&Path> {
        self.index.iter().map(PathBuf::as_path).chain(self.files.iter().map(SafetensorsFile::path)).collect()
    }

    /// Tensors by name, in name order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.places.iter().map(|(name, at)| {
            let (entry, _) = self.files[*at].tensor(name).expect("placed when opened");
            (name.as_str(), entry)
        })
    }

    /// Type, shape and bytes of one tensor.
    pub fn tensor(&self, name: &str) -> Result<(&TensorEntry, &[u8]), WeightsError> {
        match self.places.get(name) {
            Some(at) => self.files[*at].tensor(name),
            None => Err(WeightsError::NoTensor { path: self.path.clone(), name: name.into() }),
        }
    }

    /// See [`SafetensorsFile::release`].
    pub fn release(&self, name: &str) {
        if let Some(at) = self.places.get(name) {
            self.files[*at].release(name);
        }
    }

    /// The free-form strings of all headers.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.files.iter().flat_map(|f| f.metadata().clone()).collect()
    }

    /// Number of elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.files.iter().map(SafetensorsFile::elements).sum()
    }
}

enum Form {
    One(PathBuf),
    Sharded(PathBuf),
}

fn resolve(path: &Path) -> Result<Form, WeightsError> {
    if path.is_dir() {
        return resolve(&path.join(LM_FILE));
    }
    if path.extension().is_some_and(|e| e == "json") {
        return Ok(Form::Sharded(path.into()));
    }
    let index = index_path(path);
    match (path.exists(), index.exists()) {
        (true, true) => Err(WeightsError::Ambiguous { file: path.into(), index }),
        (false, true) => Ok(Form::Sharded(index)),
        _ => Ok(Form::One(path.into())),
    }
}

/// Files of the checkpoint at `path` without reading tensors: the one file, or the index and its shards in name order.
pub fn checkpoint_files(path: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    match resolve(path)? {
        Form::One(path) => Ok(vec![path]),
        Form::Sharded(index) => {
            let shards: BTreeSet<String> = index::read(&index)?.into_values().collect();
            let shards = shards.iter().map(|s| index.with_file_name(s)).collect::<Vec<_>>();
            Ok([vec![index], shards].concat())
        }
    }
}

/// Identity of a checkpoint: SHA-256 of the one file, or, of a sharded one, [`identity_of_shards`] of all its files.
pub fn checkpoint_sha256(path: &Path) -> Result<String, WeightsError> {
    let files = checkpoint_files(path)?;
    if let [one] = files.as_slice()
        && one.extension().is_none_or(|e| e != "json")
    {
        return sha256_file(one);
    }
    let mut hashes = Vec::new();
    for file in &files {
        hashes
            .push((file.file_name().unwrap_or_default().to_string_lossy().into_owned(), sha256_file(file)?));
    }
    Ok(identity_of_shards(hashes.iter().map(|(name, hash)| (name.as_str(), hash.as_str()))))
}

/// Identity of a language model from the names and hashes of its directory's files, as a registration keeps them: the
/// same value as [`checkpoint_sha256`] of the directory, without reading it. `None` when there are no weights among them.
pub fn lm_sha256<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let files: Vec<(&str, &str)> = files.collect();
    if let Some((_, hash)) = files.iter().find(|(name, _)| *name == LM_FILE) {
        return Some(hash.to_string());
    }
    let index = index_path(Path::new(LM_FILE)).to_string_lossy().into_owned();
    files.iter().any(|(name, _)| *name == index).then(|| {
        let is_shard = |name: &str| name.ends_with(".safetensors") && name != MIMI_FILE;
        identity_of_shards(files.iter().copied().filter(|(name, _)| *name == index || is_shard(name)))
    })
}

/// SHA-256 over one line `hash  name` for each file, in name order.
pub(crate) fn identity_of_shards<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let sorted: BTreeMap<&str, &str> = files.collect();
    let mut hash = Sha256::new();
    for (name, sha256) in sorted {
        hash.update(format!("{sha256}  {name}\n"));
    }
    hex::encode(hash.finalize())
}
