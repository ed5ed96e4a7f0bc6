//! Datasets made elsewhere: an archive is uploaded, then imported by a job.

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, post, put, web};
use chrono::{DateTime, Utc};
use domain::dataset::{DatasetSpec, ImportSource, ImportSpec};
use domain::job::{JobSpec, JobState, Progress};
use domain::run::FieldFault;
use domain::{DatasetId, ErrorCode, UploadId};
use futures::StreamExt;
use rest::once::Created;
use rest::{Id, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{Tx, jobs};
use tokio::io::AsyncWriteExt;
use utoipa::ToSchema;

use super::DatasetView;
use crate::routes::new_job;
use crate::state::{Shared, State};
use rest::names;

/// Uploads that nobody imported are removed after this long.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Media types of archives.
const ARCHIVES: [&str; 5] = [
    "application/x-tar",
    "application/gzip",
    "application/x-gzip",
    "application/tar+gzip",
    "application/octet-stream",
];

/// An archive that can be imported.
#[derive(Debug, Serialize, ToSchema)]
pub struct UploadView {
    id: UploadId,
    /// Always `upload`.
    #[schema(example = "upload")]
    object: &'static str,
    /// Size.
    bytes: u64,
    /// Hex SHA-256 of what arrived.
    sha256: String,
    /// When it is removed.
    expires_at: DateTime<Utc>,
}

/// Upload an archive.
///
/// A `.tar` or `.tar.gz` with a dataset, under an identifier that the client chooses: the same request may be repeated. It is
/// kept for a day.
#[utoipa::path(operation_id = "uploadArchive", tag = "datasets",
    params(("id" = UploadId, Path, description = "Chosen by the client: `upl_` and 32 hexadecimal digits of a UUID.")),
    request_body(content((Vec<u8> = "application/x-tar"), (Vec<u8> = "application/gzip")), description = "The archive."),
    responses((status = 200, description = "The archive is stored.", body = UploadView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[put("/v1/datasets/uploads/{id}")]
pub(super) async fn upload_archive(
    state: Shared,
    id: Id<UploadId>,
    req: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    media_type(&req)?;
    let limit = state.gateway.max_upload_bytes;
    let told = req.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    remove_old(&state).await;
    let target = state.artifacts.local_path(&format!("uploads/{}/archive", id.0))?;
    // Two sends at once must not write into one file; whoever is whole last stays.
    let part = target.with_extension(format!("part-{}", uuid::Uuid::now_v7().simple()));
    let received = receive(payload, &part, limit).await;
    let (bytes, sha256) = match received {
        Ok(received) => received,
        Err(problem) => {
            let _ = tokio::fs::remove_file(&part).await;
            return Err(problem);
        }
    };
    tokio::fs::rename(&part, &target).await.map_err(Problem::internal)?;
    let expires_at = Utc::now() + KEPT;
    Ok(HttpResponse::Ok().json(UploadView { id: id.0, object: "upload", bytes, sha256, expires_at }))
}

fn media_type(req: &HttpRequest) -> Result<(), Problem> {
    let given = req.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if ARCHIVES.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let shown: String = given.chars().take(80).collect();
    Err(Problem::new(
        ErrorCode::UnsupportedMediaType,
        format!("expected Content-Type application/x-tar or application/gzip, found {shown:?}"),
    ))
}

fn too_large(limit: u64) -> Problem {
    Problem::new(
        ErrorCode::PayloadTooLarge,
        format!("the archive is larger than {limit} bytes; put it into the server's import folder instead"),
    )
}

async fn receive(mut payload: web::Payload, part: &Path, limit: u64) -> Result<(u64, String), Problem> {
    if let Some(folder) = part.parent() {
        tokio::fs::create_dir_all(folder).await.map_err(Problem::internal)?;
    }
    let mut file = tokio::fs::File::create(part).await.map_err(Problem::internal)?;
    let (mut hash, mut bytes) = (Sha256::new(), 0u64);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| {
            Problem::new(ErrorCode::InvalidRequest, format!("the archive could not be read: {error}"))
        })?;
        bytes += chunk.len() as u64;
        if bytes > limit {
            return Err(too_large(limit));
        }
        hash.update(&chunk);
        file.write_all(&chunk).await.map_err(Problem::internal)?;
    }
    if bytes == 0 {
        return Err(Problem::new(ErrorCode::InvalidRequest, "the archive is empty"));
    }
    file.sync_all().await.map_err(Problem::internal)?;
    let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok((bytes, digest))
}

/// Removes uploads that are past their time; a failure is only told.
async fn remove_old(state: &State) {
    let outcome = async {
        let folder = state.artifacts.local_path("uploads")?;
        let Ok(mut entries) = tokio::fs::read_dir(&folder).await else { return Ok(()) };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let Ok(modified) = entry.metadata().await.and_then(|m| m.modified()) else { continue };
            if SystemTime::now().duration_since(modified).is_ok_and(|age| age > KEPT) {
                let _ = tokio::fs::remove_dir_all(entry.path()).await;
            }
        }
        Ok::<(), artifacts::ArtifactsError>(())
    };
    if let Err(error) = outcome.await {
        tracing::warn!(%error, "cannot remove old uploads");
    }
}

/// Request to import a dataset: from an upload, or from the server's import folder.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "pharma-sample", "upload_id": "upl_01938f6e0c3b7a54b1f2a0c4d5e6f708"}))]
pub struct ImportDataset {
    /// A name that exists gets the next version.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// An archive that was uploaded before.
    upload_id: Option<UploadId>,
    /// A folder, `.tar` or `.tar.gz` below the server's import folder.
    path: Option<String>,
    /// Label of the agent's words; without it the known labels are looked for.
    #[schema(example = "SPEAKER_BROKER")]
    main_speaker_label: Option<String>,
    /// Share held out where the source has no eval manifest.
    #[schema(minimum = 0.0, maximum = 0.5, default = 0.05)]
    eval_fraction: Option<f64>,
    /// Seed of that choice.
    #[serde(default)]
    #[schema(default = 0)]
    seed: u64,
    /// Licence for the card, an SPDX id in lower case; without it that of the source's `README.md`.
    #[schema(example = "cc-by-4.0")]
    license: Option<String>,
    /// Import without voice prompts.
    #[serde(default)]
    #[schema(default = false)]
    drop_voices: bool,
    /// Write the script's words in the place of recognised ones.
    #[serde(default)]
    #[schema(default = false)]
    script_words: bool,
}

impl ImportDataset {
    fn parse(self, state: &State) -> Result<(String, DatasetSpec, ImportSpec), Problem> {
        let mut faults = Vec::new();
        let mut refuse = |pointer: &str, detail: String| {
            faults.push(FieldFault { pointer: pointer.into(), detail });
        };
        let source = match (self.upload_id, self.path) {
            (Some(id), None) => {
                let there =
                    state.artifacts.local_path(&format!("uploads/{id}/archive")).is_ok_and(|p| p.is_file());
                if !there {
                    refuse("/upload_id", format!("there is no upload {id}; it may have expired"));
                }
                Some(ImportSource::Upload(id))
            }
            (None, Some(path)) => {
                if !is_clean(&path) {
                    let shown: String = path.chars().take(200).collect();
                    refuse("/path", format!("must be a relative path without `..`, not {shown:?}"));
                } else if !is_there(&state.import_dir, &path) {
                    refuse("/path", format!("there is no {path:?} in the import folder"));
                }
                Some(ImportSource::Path(path))
            }
            _ => {
                refuse("/upload_id", "exactly one of upload_id and path says what to import".into());
                None
            }
        };
        let eval_fraction = self.eval_fraction.unwrap_or(0.05);
        if !(0.0..=0.5).contains(&eval_fraction) {
            refuse("/eval_fraction", format!("must be 0 to 0.5, not {eval_fraction}"));
        }
        for (pointer, text) in
            [("/main_speaker_label", &self.main_speaker_label), ("/license", &self.license)]
        {
            if text.as_ref().is_some_and(|t| t.is_empty() || t.len() > 64 || t.chars().any(char::is_control))
            {
                refuse(pointer, "must have 1 to 64 printable characters".into());
            }
        }
        names::check(&self.name, faults)?;
        let source = source.expect("its absence is a fault, and faults end above");
        let spec = DatasetSpec {
            domain: "imported".into(),
            dialogues: 0,
            seed: self.seed,
            shard_size: 1,
            eval_fraction,
            ..DatasetSpec::default()
        };
        let import = ImportSpec {
            source,
            main_speaker_label: self.main_speaker_label,
            eval_fraction,
            seed: self.seed,
            license: self.license,
            drop_voices: self.drop_voices,
            script_words: self.script_words,
        };
        Ok((self.name, spec, import))
    }
}

fn is_clean(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\0', '\\'])
        && Path::new(path).components().all(|c| matches!(c, Component::Normal(_)))
}

fn is_there(root: &Path, path: &str) -> bool {
    let inside =
        |root: PathBuf| root.join(path).canonicalize().is_ok_and(|p| p.starts_with(&root) && p != root);
    root.canonicalize().is_ok_and(inside)
}

/// Import a dataset.
///
/// Reads the published on-disk format in both record variants and single-speaker data. All of the source is imported or
/// nothing: every fault is told with file and line, in the job's error and in the dataset's report.
#[utoipa::path(operation_id = "importDataset", tag = "datasets", request_body = ImportDataset,
    responses((status = 201, description = "The import is queued.", body = DatasetView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/datasets/imports")]
pub(super) async fn import_dataset(
    state: Shared,
    trace: Trace,
    posted: Posted<ImportDataset>,
) -> Result<HttpResponse, Problem> {
    let write = async |tx: &mut Tx, (name, spec, import): (String, DatasetSpec, ImportSpec)| {
        let id = DatasetId::generate();
        let version = store::datasets::insert_import(tx, id, &name, &spec, &import).await?;
        let job = new_job(&state, &trace, JobSpec::Import { dataset_id: id });
        jobs::enqueue(tx, &job).await?;
        let view = DatasetView {
            id,
            object: "dataset",
            name,
            version,
            spec,
            import: Some(import),
            state: JobState::Queued,
            progress: Progress { done: 0, total: 1, unit: "jobs".into() },
            summary: None,
            created_at: store::transaction_time(tx).await?,
            published_at: None,
            released_at: None,
            job_id: Some(job.id),
        };
        Ok(Created { location: format!("/v1/datasets/{id}"), view })
    };
    posted.once(&state.store, &[], async |body: ImportDataset| body.parse(&state), write).await
}
