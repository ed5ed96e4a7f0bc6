//! Where files live: one API over `object_store`, a local directory in this form.
//!
//! Keys are relative paths with `/`. A file appears whole or not at all (staged, fsynced, renamed); its SHA-256 goes
//! into the database last, so that a listed file is always complete.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};

use domain::dataset::DatasetFile;

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// No such file.
    #[error("no artifact {0:?}")]
    NotFound(String),
    /// The key is not a clean relative path.
    #[error("{0:?} is not an artifact key: expected a relative path without `..`")]
    BadKey(String),
    /// The content is not what the database says.
    #[error("artifact {key:?} is damaged: sha256 is {found}, expected {expected}")]
    Damaged {
        /// The file.
        key: String,
        /// Hash of what is there.
        found: String,
        /// Hash of what was stored.
        expected: String,
    },
    /// A JSON artifact does not have the expected shape.
    #[error("artifact {key:?} cannot be read: {source}")]
    Json {
        /// The file.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The local disk refused.
    #[error("{path:?}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store refused.
    #[error("artifact store: {0}")]
    Store(#[source] object_store::Error),
}

/// Short form.
pub type Result<T> = std::result::Result<T, ArtifactsError>;

/// Handle on the store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Artifacts {
    store: Arc<LocalFileSystem>,
}

impl From<object_store::Error> for ArtifactsError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::NotFound(path),
            other => Self::Store(other),
        }
    }
}

fn parse(key: &str) -> Result<Key> {
    let clean = !key.is_empty()
        && key.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']));
    if !clean {
        return Err(ArtifactsError::BadKey(key.chars().take(200).collect()));
    }
    Key::parse(key).map_err(|_| ArtifactsError::BadKey(key.to_owned()))
}

/// Hex SHA-256.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl Artifacts {
    /// Opens a local directory, made when missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root).map_err(|source| ArtifactsError::Io { path: root.into(), source })?;
        let store = LocalFileSystem::new_with_prefix(root)?.with_fsync(true);
        Ok(Self { store: Arc::new(store) })
    }

    /// Stores a small file whole; a file of that key is replaced in one step.
    ///
    /// # Errors
    /// When the key is bad or the store refuses.
    pub async fn put(&self, key: &str, bytes: impl Into<Bytes>) -> Result<DatasetFile> {
        let bytes: Bytes = bytes.into();
        let file = DatasetFile { path: key.into(), bytes: bytes.len() as u64, sha256: sha256_hex(&bytes) };
        self.store.put(&parse(key)?, PutPayload::from_bytes(bytes)).await?;
        Ok(file)
    }

    /// Stores a JSON document.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn put_json<T: serde::Serialize + Sync>(&self, key: &str, value: &T) -> Result<DatasetFile> {
        let mut bytes = serde_json::to_vec_pretty(value)
            .map_err(|source| ArtifactsError::Json { key: key.into(), source })?;
        bytes.push(b'\n');
        self.put(key, bytes).await
    }

    /// Streams a local file into the store.
    ///
    /// # Errors
    /// When the file cannot be read or the store refuses; nothing appears under the key then.
    pub async fn put_file(&self, key: &str, from: &Path) -> Result<DatasetFile> {
        let mut upload = object_store::WriteMultipart::new(self.store.put_multipart(&parse(key)?).await?);
        match stream(from, &mut upload).await {
            Ok((bytes, sha256)) => {
                upload.finish().await?;
                Ok(DatasetFile { path: key.into(), bytes, sha256 })
            }
            Err(error) => {
                // What was staged goes; the reason for it is the error that counts.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Copies inside the store.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn copy(&self, from: &str, to: &str) -> Result<()> {
        Ok(self.store.copy(&parse(from)?, &parse(to)?).await?)
    }

    /// Reads a file whole.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn get(&self, key: &str) -> Result<Bytes> {
        Ok(self.store.get(&parse(key)?).await?.bytes().await?)
    }

    /// Reads a file whole and checks it against the hash that the database holds.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`.
    pub async fn get_verified(&self, key: &str, sha256: &str) -> Result<Bytes> {
        let bytes = self.get(key).await?;
        let found = sha256_hex(&bytes);
        if found == sha256 {
            Ok(bytes)
        } else {
            Err(ArtifactsError::Damaged { key: key.into(), found, expected: sha256.into() })
        }
    }

    /// Reads a large file piece by piece; the stream ends with `Damaged` instead of its end when the hash is another.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn stream_verified(
        &self,
        key: &str,
        sha256: &str,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        let pieces = self.store.get(&parse(key)?).await?.into_stream();
        let (key, expected) = (key.to_owned(), sha256.to_owned());
        Ok(futures::stream::try_unfold(Some((pieces, Sha256::new())), move |state| {
            let (key, expected) = (key.clone(), expected.clone());
            async move {
                let Some((mut pieces, mut hash)) = state else { return Ok(None) };
                if let Some(piece) = pieces.try_next().await? {
                    hash.update(&piece);
                    return Ok(Some((piece, Some((pieces, hash)))));
                }
                let found = hex::encode(hash.finalize());
                if found == expected {
                    Ok(None)
                } else {
                    Err(ArtifactsError::Damaged { key, found, expected })
                }
            }
        }))
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    /// `NotFound`, `Json`.
    pub async fn get_json<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T> {
        serde_json::from_slice(&self.get(key).await?)
            .map_err(|source| ArtifactsError::Json { key: key.into(), source })
    }

    /// Path of a file or folder on the local disk, for memory maps and for programs that want a path.
    ///
    /// # Errors
    /// `BadKey`.
    pub fn local_path(&self, key: &str) -> Result<PathBuf> {
        Ok(self.store.path_to_filesystem(&parse(key)?)?)
    }

    /// Keys below a folder, sorted.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = parse(prefix)?;
        let mut keys: Vec<String> =
            self.store.list(Some(&prefix)).map_ok(|meta| meta.location.to_string()).try_collect().await?;
        keys.sort();
        Ok(keys)
    }

    /// Removes everything below a folder.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<()> {
        for key in self.list(prefix).await? {
            match self.store.delete(&parse(&key)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Feeds a file into an upload; returns its size and hash.
async fn stream(from: &Path, upload: &mut object_store::WriteMultipart) -> Result<(u64, String)> {
    use tokio::io::AsyncReadExt;
    let io = |source| ArtifactsError::Io { path: from.into(), source };
    let mut file = tokio::fs::File::open(from).await.map_err(io)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0u64, vec![0u8; 1 << 20]);
    loop {
        let n = file.read(&mut buffer).await.map_err(io)?;
        if n == 0 {
            return Ok((bytes, hex::encode(hash.finalize())));
        }
        let chunk = buffer.get(..n).expect("read returns at most the buffer's length");
        hash.update(chunk);
        bytes += n as u64;
        upload.write(chunk);
        upload.wait_for_capacity(4).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_put_comes_back_with_its_hash_and_damage_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let artifacts = Artifacts::open(dir.path()).expect("opens");
        let file = artifacts.put("a/b.txt", "hello").await.expect("puts");
        assert_eq!(file.bytes, 5);
        assert_eq!(artifacts.get_verified("a/b.txt", &file.sha256).await.expect("same"), "hello");
        std::fs::write(artifacts.local_path("a/b.txt").expect("path"), "hellO").expect("writes");
        let error = artifacts.get_verified("a/b.txt", &file.sha256).await.expect_err("damaged");
        assert!(matches!(error, ArtifactsError::Damaged { .. }), "{error}");
        let read = async |sha256: &str| {
            let stream = artifacts.stream_verified("a/b.txt", sha256).await.expect("opens");
            std::pin::pin!(stream).try_collect::<Vec<_>>().await
        };
        assert_eq!(read(&sha256_hex(b"hellO")).await.expect("whole").concat(), b"hellO");
        assert!(matches!(read(&file.sha256).await, Err(ArtifactsError::Damaged { .. })));
        let copied = artifacts
            .put_file("c/d.txt", &artifacts.local_path("a/b.txt").expect("path"))
            .await
            .expect("streams");
        assert_eq!(copied.sha256, sha256_hex(b"hellO"));
        assert_eq!(artifacts.list("c").await.expect("lists"), ["c/d.txt"]);
        artifacts.delete_prefix("c").await.expect("deletes");
        assert!(matches!(artifacts.get("c/d.txt").await, Err(ArtifactsError::NotFound(_))));
    }

    #[tokio::test]
    async fn keys_that_would_leave_the_root_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let artifacts = Artifacts::open(dir.path()).expect("opens");
        for key in ["", "../x", "/etc/passwd", "a/../../x", "a//b", "a/./b", "a\\b", "a\0b"] {
            assert!(matches!(artifacts.get(key).await, Err(ArtifactsError::BadKey(_))), "{key:?}");
        }
    }
}
