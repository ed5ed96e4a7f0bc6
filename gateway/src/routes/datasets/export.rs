//! A published dataset as one archive, written while it is sent.

use actix_web::body::SizedStream;
use actix_web::http::header;
use actix_web::{HttpResponse, get};
use artifacts::Artifacts;
use bytes::Bytes;
use domain::DatasetId;
use domain::dataset::DatasetFile;
use futures::{Stream, StreamExt, TryStreamExt};
use rest::{Id, Problem};
use store::datasets::Dataset;

use super::{Published, published};
use crate::state::Shared;

/// Tar is made of blocks.
const BLOCK: u64 = 512;
const CARD: &str = "dataset.json";

/// Download a published dataset.
///
/// A tar with one folder: `README.md` (the dataset card), manifests, wavs, sidecars, records, scripts and voices. Importing it
/// gives a dataset with the same content hash. Each file is checked against its hash on the way; a damaged one cuts the answer
/// short.
#[utoipa::path(operation_id = "exportDataset", tag = "datasets",
    params(("id" = DatasetId, Path, description = "The dataset.")),
    responses((status = 200, description = "The archive.", body = Vec<u8>, content_type = "application/x-tar")),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets/{id}/export")]
pub(super) async fn export_dataset(state: Shared, id: Id<DatasetId>) -> Result<HttpResponse, Problem> {
    let dataset = published(&state, id.0).await?;
    let folder = format!("{}/published", Dataset::prefix(id.0));
    let card = state.artifacts.get(&format!("{folder}/{CARD}")).await?;
    let mut files: Vec<DatasetFile> =
        serde_json::from_slice::<Published>(&card).map_err(Problem::internal)?.files;
    let sha256 = artifacts::sha256_hex(&card);
    files.push(DatasetFile { path: CARD.into(), bytes: card.len() as u64, sha256 });
    let total = files.iter().map(|f| BLOCK + f.bytes.next_multiple_of(BLOCK)).sum::<u64>() + 2 * BLOCK;
    let name = dataset.name;
    let body = archive(state.artifacts.clone(), folder, name.clone(), files).map_err(|error| {
        tracing::error!(%error, "an export was cut");
        actix_web::error::ErrorInternalServerError("damaged")
    });
    Ok(HttpResponse::Ok()
        .content_type("application/x-tar")
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.tar\"")))
        .body(SizedStream::new(total, Box::pin(body))))
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
