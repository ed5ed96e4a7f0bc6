//! A published dataset as one archive.

use actix_web::{HttpResponse, get};
use domain::DatasetId;
use domain::dataset::DatasetFile;
use rest::{Id, Problem};
use store::datasets::Dataset;

use super::{Published, published};
use crate::routes::archive;
use crate::state::Shared;

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
    Ok(archive::answer(&state.artifacts, folder, &dataset.name, files))
}
