//! Stored files as one tar, written while it is sent.

use actix_web::HttpResponse;
use actix_web::body::SizedStream;
use actix_web::http::header;
use artifacts::Artifacts;
use bytes::Bytes;
use domain::dataset::DatasetFile;
use futures::{Stream, StreamExt, TryStreamExt};

/// Tar is made of blocks.
const BLOCK: u64 = 512;

/// A tar with the folder `name`, of files below the artifact folder `from`. Each is checked against its hash on the way; a
/// damaged one cuts the answer short.
pub(super) fn answer(
    artifacts: &Artifacts,
    from: String,
    name: &str,
    files: Vec<DatasetFile>,
) -> HttpResponse {
    let total = files.iter().map(|f| BLOCK + f.bytes.next_multiple_of(BLOCK)).sum::<u64>() + 2 * BLOCK;
    let body = archive(artifacts.clone(), from, name.to_owned(), files).map_err(|error| {
        tracing::error!(%error, "an export was cut");
        actix_web::error::ErrorInternalServerError("damaged")
    });
    HttpResponse::Ok()
        .content_type("application/x-tar")
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.tar\"")))
        .body(SizedStream::new(total, Box::pin(body)))
}

fn archive(
    artifacts: Artifacts,
    folder: String,
    name: String,
    files: Vec<DatasetFile>,
) -> impl Stream<Item = anyhow::Result<Bytes>> {
    let parts = futures::stream::iter(files).then(move |file| {
        let (artifacts, folder, name) = (artifacts.clone(), folder.clone(), name.clone());
        async move {
            let head = header_of(&format!("{name}/{}", file.path), file.bytes)?;
            let content = artifacts.stream_verified(&format!("{folder}/{}", file.path), &file.sha256).await?;
            let rest = file.bytes.next_multiple_of(BLOCK) - file.bytes;
            let padding = Bytes::from(vec![0; usize::try_from(rest)?]);
            let around = |bytes: Bytes| futures::stream::once(async move { anyhow::Ok(bytes) });
            anyhow::Ok(around(head).chain(content.map_err(Into::into)).chain(around(padding)))
        }
    });
    let end = Bytes::from(vec![0; 2 * BLOCK as usize]);
    parts.try_flatten().chain(futures::stream::once(async move { Ok(end) }))
}

fn header_of(path: &str, bytes: u64) -> anyhow::Result<Bytes> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_size(bytes);
    header.set_mode(0o644);
    // The same dataset gives the same archive.
    header.set_mtime(0);
    header.set_cksum();
    Ok(Bytes::copy_from_slice(header.as_bytes()))
}
