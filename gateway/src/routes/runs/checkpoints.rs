//! What a run has saved.

use actix_web::{HttpResponse, get};
use chrono::{DateTime, Utc};
use domain::dataset::DatasetFile;
use domain::{CheckpointId, ErrorCode, RunId};
use rest::{Asked, Id, List, Problem};
use serde::{Deserialize, Serialize};
use store::runs::{Checkpoint, Run};
use utoipa::{IntoParams, ToSchema};
use weights::lora::Layout;

use crate::routes::archive;
use crate::state::{Shared, State};

/// A saved adapter.
#[derive(Debug, Serialize, ToSchema)]
pub struct CheckpointView {
    id: CheckpointId,
    /// Always `checkpoint`.
    #[schema(example = "checkpoint")]
    object: &'static str,
    run_id: RunId,
    /// Optimizer update.
    step: u32,
    files: Vec<DatasetFile>,
    created_at: DateTime<Utc>,
}

/// List the checkpoints of a run.
#[utoipa::path(operation_id = "listRunCheckpoints", tag = "runs",
    params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The checkpoints kept, by step.", body = List<CheckpointView>)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/checkpoints")]
pub(super) async fn list_run_checkpoints(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    store::runs::get(&state.store, id.0).await?;
    let views = store::runs::checkpoints(&state.store, id.0)
        .await?
        .into_iter()
        .map(|c| CheckpointView {
            id: c.id,
            object: "checkpoint",
            run_id: c.run_id,
            step: c.step,
            files: c.files,
            created_at: c.created_at,
        })
        .collect();
    Ok(HttpResponse::Ok().json(List::whole(views)))
}

/// Names and files of an adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdapterLayout {
    /// `lora.safetensors` and `config.json`, as Moshi's own server loads them.
    #[default]
    Kyutai,
    /// `adapter_model.safetensors` and `adapter_config.json`, as PEFT names them.
    Peft,
}

/// Which adapter, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AdapterQuery {
    /// Optimizer update of a kept checkpoint; the newest without it.
    #[param(example = 64)]
    step: Option<u32>,
    /// Names and files.
    #[param(inline)]
    layout: Option<AdapterLayout>,
}

/// Download an adapter.
///
/// A tar with one folder, in the names of Moshi's own server (`kyutai`, the default) or of PEFT.
#[utoipa::path(operation_id = "exportRunAdapter", tag = "runs",
    params(("id" = RunId, Path, description = "The run."), AdapterQuery),
    responses((status = 200, description = "The archive.", body = Vec<u8>, content_type = "application/x-tar")),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/adapter")]
pub(super) async fn export_run_adapter(
    state: Shared,
    id: Id<RunId>,
    query: Asked<AdapterQuery>,
) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    if run.spec.full_finetuning {
        let detail = "this run trains every weight and has no adapter; its model is the result";
        return Err(Problem::new(ErrorCode::NotFound, detail));
    }
    let kept = store::runs::checkpoints(&state.store, id.0).await?;
    let wanted = |c: &&Checkpoint| query.0.step.is_none_or(|step| c.step == step);
    let Some(checkpoint) = kept.iter().rev().find(wanted) else {
        let steps: Vec<String> = kept.iter().map(|c| c.step.to_string()).collect();
        let detail = format!("no such checkpoint; kept are those of steps [{}]", steps.join(", "));
        return Err(Problem::new(ErrorCode::NotFound, detail));
    };
    let layout = query.0.layout.unwrap_or_default();
    let name = format!("{}-{:06}", run.name, checkpoint.step);
    let (folder, files) = match layout {
        AdapterLayout::Kyutai => {
            let is_adapter = |f: &DatasetFile| ["lora.safetensors", "config.json"].contains(&f.path.as_str());
            (checkpoint.prefix.clone(), checkpoint.files.iter().filter(|f| is_adapter(f)).cloned().collect())
        }
        AdapterLayout::Peft => peft(&state, &run, checkpoint).await?,
    };
    Ok(archive::answer(&state.artifacts, folder, &name, files))
}

/// Writes the adapter in PEFT's names into the checkpoint's folder, with which it goes. The same checkpoint always gives the
/// same files.
async fn peft(
    state: &State,
    run: &Run,
    checkpoint: &Checkpoint,
) -> Result<(String, Vec<DatasetFile>), Problem> {
    let base = store::models::get(&state.store, run.base_id).await?;
    let (base, adapter) =
        (state.artifacts.local_path(&base.prefix)?, state.artifacts.local_path(&checkpoint.prefix)?);
    let scratch = tempfile::tempdir().map_err(Problem::internal)?;
    let out = scratch.path().join("peft");
    let target = out.clone();
    let work = tokio::task::spawn_blocking(move || {
        weights::lora::export_adapter(&base, &adapter, &target, Layout::Peft)
    });
    work.await.map_err(Problem::internal)?.map_err(Problem::internal)?;
    let folder = format!("{}/peft", checkpoint.prefix);
    let mut files = Vec::new();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let stored = state.artifacts.put_file(&format!("{folder}/{name}"), &out.join(name)).await?;
        files.push(DatasetFile { path: name.into(), ..stored });
    }
    Ok((folder, files))
}
