//! Datasets: asked for here, built or imported by jobs.

mod design;
mod export;
mod import;
mod release;
mod report;

use std::str::FromStr;

use actix_web::body::SizedStream;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::dataset::{DatasetFile, DatasetName, DatasetSpec, DatasetSummary, ImportSpec};
use domain::job::{JobKind, JobSpec, JobState, Progress, RowRange};
use domain::run::FieldFault;
use domain::{DatasetId, ErrorCode, JobId};
use futures::TryStreamExt;
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::datasets::Dataset;
use store::jobs::{self, NewJob};
use store::{StoreError, Tx};
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::{Shared, State};
use rest::names;

/// Jobs of one dataset are written in one transaction; more shards than this would hold it too long.
const MAX_SHARDS: u32 = 1_250;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(create_dataset)
        .service(import::upload_archive)
        .service(import::import_dataset)
        .service(list_datasets)
        .service(get_dataset)
        .service(get_dataset_files)
        .service(export::export_dataset)
        .service(report::get_dataset_report)
        .service(design::get_dataset_design)
        .service(release::release_dataset);
}

/// Request to build a dataset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "insurance-small", "domain": "insurance_brokerage", "dialogues": 24, "seed": 7}))]
pub struct CreateDataset {
    /// Becomes a file name. A name that exists gets the next version.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// Id of a domain pack.
    domain: String,
    /// Number of dialogues.
    #[schema(minimum = 2, maximum = 5000)]
    dialogues: u32,
    /// Seed of the design; the same seed gives the same dataset.
    #[serde(default)]
    #[schema(default = 0)]
    seed: u64,
    /// Dialogues per job.
    #[schema(minimum = 1, maximum = 500, default = 4)]
    shard_size: Option<u32>,
    /// Share held out for evaluation.
    #[schema(minimum = 0.0, maximum = 0.5, default = 0.05)]
    eval_fraction: Option<f64>,
    /// Whether dialogues wait for a person: only approved ones are rendered, once the dataset is released.
    #[serde(default)]
    #[schema(default = false)]
    approved_only: bool,
    /// A dataset of the same domain, version and seed whose dialogues are taken over: `dialogues` is the number of both
    /// together, and the design continues the one of that dataset.
    #[schema(value_type = Option<DatasetId>)]
    extends: Option<String>,
}

impl CreateDataset {
    async fn parse(self, state: &State) -> Result<(String, DatasetSpec), Problem> {
        let base = json!({ "domain": self.domain, "dialogues": self.dialogues, "seed": self.seed });
        let mut spec: DatasetSpec = serde_json::from_value(base).expect("the other fields have defaults");
        spec.shard_size = self.shard_size.unwrap_or(spec.shard_size);
        spec.eval_fraction = self.eval_fraction.unwrap_or(spec.eval_fraction);
        spec.approved_only = self.approved_only;
        let mut faults = spec.faults();
        match library::domains::version_for(&state.library, &spec.domain).await? {
            Ok(version) => spec.domain_version = Some(version),
            Err(detail) => faults.push(FieldFault { pointer: "/domain".into(), detail }),
        }
        if let Some(base) = self.extends {
            faults.extend(extend(state, &base, &mut spec).await?);
        }
        let shards = spec.dialogues.div_ceil(spec.shard_size.max(1));
        if shards > MAX_SHARDS && spec.shard_size > 0 && spec.dialogues <= 5_000 {
            let detail = format!("would make {shards} shards; at most {MAX_SHARDS} are made");
            faults.push(FieldFault { pointer: "/shard_size".into(), detail });
        }
        names::check(&self.name, faults)?;
        Ok((self.name, spec))
    }
}

/// Makes the specification one that continues another's design; or says why it cannot.
async fn extend(state: &State, base: &str, spec: &mut DatasetSpec) -> Result<Option<FieldFault>, Problem> {
    let fault = |pointer: &str, detail: String| Ok(Some(FieldFault { pointer: pointer.into(), detail }));
    let id = match base.parse::<DatasetId>() {
        Ok(id) => id,
        Err(error) => return fault("/extends", error.to_string()),
    };
    let base = match store::datasets::get(&state.store, id).await {
        Ok(base) if base.import.is_none() => base.spec,
        Ok(_) => return fault("/extends", format!("{id} was imported; it has no design")),
        Err(StoreError::NotFound { .. }) => return fault("/extends", format!("there is no dataset {id}")),
        Err(error) => return Err(error.into()),
    };
    if (&base.domain, base.seed) != (&spec.domain, spec.seed) {
        return fault(
            "/extends",
            format!("{id} has the domain {:?} and the seed {}", base.domain, base.seed),
        );
    }
    if base.dialogues >= spec.dialogues {
        return fault("/dialogues", format!("must be more than the {} of {id}", base.dialogues));
    }
    // Its version, not the newest: one design has one pack.
    spec.domain_version = base.domain_version;
    spec.blocks = base.design_blocks();
    spec.blocks.push(spec.dialogues - base.dialogues);
    spec.extends = Some(id);
    Ok(None)
}

/// A dataset.
#[derive(Debug, Serialize, ToSchema)]
pub struct DatasetView {
    id: DatasetId,
    /// Always `dataset`.
    #[schema(example = "dataset")]
    object: &'static str,
    #[schema(example = "insurance-small")]
    name: String,
    /// Number among the datasets of this name, from 1.
    #[schema(minimum = 1, example = 1)]
    version: u32,
    spec: DatasetSpec,
    /// What is imported; none for a dataset that is generated.
    import: Option<ImportSpec>,
    /// State of its jobs: the worst of them, or how far they are.
    state: JobState,
    progress: Progress,
    /// What was built, once published.
    summary: Option<DatasetSummary>,
    created_at: DateTime<Utc>,
    published_at: Option<DateTime<Utc>>,
    /// When the review of its dialogues was closed; only for one with `approved_only`.
    released_at: Option<DateTime<Utc>>,
    /// The last job: it publishes the dataset. None while dialogues wait for approval.
    job_id: Option<JobId>,
}

async fn view(state: &State, dataset: Dataset) -> Result<DatasetView, Problem> {
    let subject = dataset.id.to_string();
    let jobs = jobs::subject_state(&state.store, &subject).await?;
    let publishes = if dataset.import.is_some() { JobKind::Import } else { JobKind::Assemble };
    let last = match jobs::for_subject(&state.store, &subject, publishes).await {
        Ok(job) => Some(job.id),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(DatasetView {
        id: dataset.id,
        object: "dataset",
        name: dataset.name,
        version: dataset.version,
        spec: dataset.spec,
        import: dataset.import,
        state: jobs.state,
        progress: Progress { done: count(jobs.done), total: count(jobs.total), unit: "jobs".into() },
        summary: dataset.summary,
        created_at: dataset.created_at,
        published_at: dataset.published_at,
        released_at: dataset.released_at,
        job_id: last,
    })
}

/// Create a dataset.
///
/// Writes the dataset and all of its jobs: per shard generate, render and align; then assemble, which publishes it. With
/// `approved_only` those after generate are written when the dataset is released.
#[utoipa::path(operation_id = "createDataset", tag = "datasets", request_body = CreateDataset,
    responses((status = 201, description = "The dataset is queued.", body = DatasetView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/datasets")]
async fn create_dataset(
    state: Shared,
    trace: Trace,
    posted: Posted<CreateDataset>,
) -> Result<HttpResponse, Problem> {
    let write = async |tx: &mut Tx, (name, spec): (String, DatasetSpec)| {
        let id = DatasetId::generate();
        let version = store::datasets::insert(tx, id, &name, &spec).await?;
        let new_job = |spec, needs| NewJob { needs, ..super::new_job(&state, &trace, spec) };
        let (total, job_id) = enqueue(tx, id, &spec, new_job).await?;
        let view = DatasetView {
            id,
            object: "dataset",
            name,
            version,
            spec,
            import: None,
            state: JobState::Queued,
            progress: Progress { done: 0, total, unit: "jobs".into() },
            summary: None,
            created_at: store::transaction_time(tx).await?,
            published_at: None,
            released_at: None,
            job_id,
        };
        Ok(Created { location: format!("/v1/datasets/{id}"), view })
    };
    posted.once(&state.store, &[], async |body: CreateDataset| body.parse(&state).await, write).await
}

/// Writes the jobs of a dataset; returns their number and the last, unless people come in between.
async fn enqueue(
    tx: &mut Tx,
    dataset_id: DatasetId,
    spec: &DatasetSpec,
    new_job: impl Fn(JobSpec, Vec<JobId>) -> NewJob,
) -> Result<(u64, Option<JobId>), Problem> {
    let mut written = Vec::new();
    for rows in RowRange::shards(spec.dialogues, spec.shard_size) {
        let generate = new_job(JobSpec::Generate { dataset_id, rows }, Vec::new());
        jobs::enqueue(tx, &generate).await?;
        written.push((rows, vec![generate.id]));
    }
    let generates = written.len() as u64;
    if spec.approved_only {
        return Ok((generates, None));
    }
    let (others, last) = enqueue_speech(tx, dataset_id, written, new_job).await?;
    Ok((generates + others, Some(last)))
}

/// Writes the jobs that follow on written dialogues: render and align by shard, then assemble.
async fn enqueue_speech(
    tx: &mut Tx,
    dataset_id: DatasetId,
    written: Vec<(RowRange, Vec<JobId>)>,
    new_job: impl Fn(JobSpec, Vec<JobId>) -> NewJob,
) -> Result<(u64, JobId), Problem> {
    let mut aligned = Vec::new();
    for (rows, needs) in written {
        let render = new_job(JobSpec::Render { dataset_id, rows }, needs);
        let align = new_job(JobSpec::Align { dataset_id, rows }, vec![render.id]);
        for job in [&render, &align] {
            jobs::enqueue(tx, job).await?;
        }
        aligned.push(align.id);
    }
    let total = 2 * aligned.len() as u64 + 1;
    let last = new_job(JobSpec::Assemble { dataset_id }, aligned);
    jobs::enqueue(tx, &last).await?;
    Ok((total, last.id))
}

/// Which datasets.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DatasetsQuery {
    /// Only the versions of this name; with `@` and a number only that one.
    #[param(example = "insurance-small@2")]
    name: Option<String>,
}

/// List datasets.
#[utoipa::path(operation_id = "listDatasets", tag = "datasets", params(DatasetsQuery, PageQuery),
    responses((status = 200, description = "A page of datasets.", body = List<DatasetView>)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets")]
async fn list_datasets(
    state: Shared,
    req: HttpRequest,
    query: Asked<DatasetsQuery>,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let bad = |e| Problem::new(ErrorCode::InvalidRequest, format!("query parameter \"name\": {e}"));
    let named = query.0.name.as_deref().map(DatasetName::from_str).transpose().map_err(bad)?;
    let page = page.0.request(DatasetId::uuid)?;
    let page = store::datasets::list(&state.store, named.as_ref(), page).await?;
    let mut views = Vec::with_capacity(page.items.len());
    for dataset in page.items {
        views.push(view(&state, dataset).await?);
    }
    Ok(List::page(views, |v| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a dataset.
#[utoipa::path(operation_id = "getDataset", tag = "datasets", params(("id" = DatasetId, Path, description = "The dataset.")),
    responses((status = 200, description = "The dataset.", body = DatasetView)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets/{id}")]
async fn get_dataset(state: Shared, id: Id<DatasetId>) -> Result<HttpResponse, Problem> {
    let dataset = store::datasets::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok().json(view(&state, dataset).await?))
}

/// Which file.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FileQuery {
    /// Path below the published dataset; without it the files are listed.
    #[param(example = "dataset/train.jsonl")]
    path: Option<String>,
}

#[derive(Deserialize)]
struct Published {
    files: Vec<DatasetFile>,
}

/// A dataset that is published, or 409.
async fn published(state: &State, id: DatasetId) -> Result<Dataset, Problem> {
    let dataset = store::datasets::get(&state.store, id).await?;
    if dataset.published_at.is_none() {
        return Err(Problem::new(ErrorCode::Conflict, format!("dataset {id} is not published yet")));
    }
    Ok(dataset)
}

/// List or download the files of a published dataset.
///
/// Without `path` the answer lists the files with their sizes and hashes; with it, it is that file, checked against its hash.
#[utoipa::path(operation_id = "getDatasetFiles", tag = "datasets",
    params(("id" = DatasetId, Path, description = "The dataset."), FileQuery),
    responses((status = 200, description = "The list, or the file.",
        content((List<DatasetFile> = "application/json"), (Vec<u8> = "application/octet-stream")))),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets/{id}/files")]
async fn get_dataset_files(
    state: Shared,
    id: Id<DatasetId>,
    query: Asked<FileQuery>,
) -> Result<HttpResponse, Problem> {
    published(&state, id.0).await?;
    let folder = format!("{}/published", Dataset::prefix(id.0));
    let index = format!("{folder}/dataset.json");
    let Some(path) = query.0.path else {
        let published: Published = state.artifacts.get_json(&index).await?;
        return Ok(HttpResponse::Ok().json(List::whole(published.files)));
    };
    if path == "dataset.json" {
        let bytes = state.artifacts.get(&index).await?;
        return Ok(HttpResponse::Ok().content_type("application/json").body(bytes));
    }
    let published: Published = state.artifacts.get_json(&index).await?;
    let Some(file) = published.files.into_iter().find(|f| f.path == path) else {
        let shown: String = path.chars().take(200).collect();
        return Err(Problem::new(ErrorCode::NotFound, format!("dataset {} has no file {shown:?}", id.0)));
    };
    let key = format!("{folder}/{path}");
    let name = path.rsplit('/').next().unwrap_or("file").replace(['"', '\\'], "_");
    let mut answer = HttpResponse::Ok();
    answer
        .content_type(media_type(&path))
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")));
    if file.bytes <= CHECKED_FIRST {
        return Ok(answer.body(state.artifacts.get_verified(&key, &file.sha256).await?));
    }
    // A damaged file cuts the connection short of its length: never a whole answer with wrong content.
    let content = state.artifacts.stream_verified(&key, &file.sha256).await?.map_err(|error| {
        tracing::error!(%error, "a download was cut");
        actix_web::error::ErrorInternalServerError("damaged")
    });
    Ok(answer.body(SizedStream::new(file.bytes, Box::pin(content))))
}

/// Files up to this size are checked before the first byte is sent, so that damage is a problem document; larger ones
/// are checked on the way.
const CHECKED_FIRST: u64 = 8 << 20;

/// Media type of a published file.
fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("wav") => "audio/wav",
        Some("json") => "application/json",
        Some("jsonl") => "application/x-ndjson",
        Some("md") => "text/markdown; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
