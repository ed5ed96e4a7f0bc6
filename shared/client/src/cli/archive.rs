//! Archives that the API sends, as files or folders.

use std::path::{Path, PathBuf};

use client::{Client, ClientError, Result};

use super::Context;

/// Downloads a tar with one folder to `out`, which must not exist: as it is when the name ends in `.tar`, else unpacked.
/// Returns the bytes of the archive.
pub(crate) async fn fetch(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
    out: &Path,
    context: &Context,
) -> Result<u64> {
    if out.exists() {
        return Err(ClientError::Usage(format!("{} exists; name a path that does not", out.display())));
    }
    let as_archive = out.extension().is_some_and(|e| e == "tar");
    let tar = if as_archive { out.to_owned() } else { beside(out, "tar.part") };
    let bar = context.out.bar("export");
    let written = client
        .download_into(path, query, &tar, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })
        .await;
    bar.finish_and_clear();
    let bytes = written?;
    if !as_archive {
        let unpacked = unpack(&tar, out).await;
        let _ = std::fs::remove_file(&tar);
        unpacked?;
    }
    Ok(bytes)
}

fn beside(out: &Path, end: &str) -> PathBuf {
    let name = out.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    out.with_file_name(format!(".{name}.{end}"))
}

/// The archive's only folder becomes `out`, whole or not at all.
async fn unpack(tar: &Path, out: &Path) -> Result<()> {
    let (from, part, target) = (tar.to_owned(), beside(out, "part"), out.to_owned());
    let shown = out.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&part)?;
        let done = (|| {
            tar::Archive::new(std::fs::File::open(from)?).unpack(&part)?;
            let inside = std::fs::read_dir(&part)?.next().transpose()?;
            let inside = inside.ok_or_else(|| std::io::Error::other("the archive is empty"))?;
            std::fs::rename(inside.path(), &target)
        })();
        std::fs::remove_dir_all(&part)?;
        done
    });
    let unpacked =
        unpacked.await.map_err(|e| ClientError::Usage(format!("cannot unpack the export: {e}")))?;
    unpacked.map_err(|source| ClientError::File { path: shown.display().to_string(), source })
}
