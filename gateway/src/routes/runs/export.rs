//! The numbers of a run, as JSON and as what other programs read.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get};
use domain::run::MetricPoint;
use domain::{ErrorCode, RunId};
use rest::{Asked, Id, List, Problem};
use runlog::{Curve, Point, RunlogError};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::state::{Shared, State};

const CSV: &str = "text/csv; charset=utf-8";
const PARQUET: &str = "application/vnd.apache.parquet";
const JSON_LINES: &str = "application/x-ndjson";
const EVENTS: &str = "application/octet-stream";

/// A form of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A list of points.
    Json,
    /// One row a number.
    Csv,
    /// The same as columns.
    Parquet,
    /// One line a step, in the shape of W&B's offline history.
    Jsonl,
    /// An event file of TensorBoard.
    Tfevents,
}

/// Which metric, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MetricsQuery {
    /// Only this metric.
    #[param(example = "train/loss")]
    name: Option<String>,
    /// Form of the answer; goes before `Accept`.
    #[param(inline)]
    format: Option<Format>,
}

/// The form that `Accept` names first.
fn accepted(req: &HttpRequest) -> Format {
    let accept = req.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    let essence = |range: &str| range.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    accept
        .split(',')
        .find_map(|range| match essence(range).as_str() {
            "application/json" => Some(Format::Json),
            "text/csv" => Some(Format::Csv),
            PARQUET => Some(Format::Parquet),
            JSON_LINES => Some(Format::Jsonl),
            _ => None,
        })
        .unwrap_or(Format::Json)
}

async fn points(state: &State, run: RunId, name: Option<&str>) -> Result<Vec<Point>, Problem> {
    let timed = store::metrics::timed(&state.store, run, name).await?;
    Ok(timed.into_iter().map(|(p, at)| Point { step: p.step, name: p.name, value: p.value, at }).collect())
}

/// List the metrics of a run.
///
/// As a list, as CSV or Parquet (by `Accept` or `format`), as W&B's history lines, or as a TensorBoard event file.
#[utoipa::path(operation_id = "listRunMetrics", tag = "runs",
    params(("id" = RunId, Path, description = "The run."), MetricsQuery),
    responses((status = 200, description = "All points so far, by step.", content(
        (List<MetricPoint> = "application/json"), (String = "text/csv"),
        (String = "application/vnd.apache.parquet"), (String = "application/x-ndjson"),
        (String = "application/octet-stream")
    ))),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/metrics")]
pub(super) async fn list_run_metrics(
    state: Shared,
    req: HttpRequest,
    id: Id<RunId>,
    query: Asked<MetricsQuery>,
) -> Result<HttpResponse, Problem> {
    store::runs::get(&state.store, id.0).await?;
    let name = query.0.name.as_deref().filter(|n| !n.contains('\0'));
    let format = query.0.format.unwrap_or_else(|| accepted(&req));
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::VARY, "Accept"));
    if format == Format::Json {
        let points = store::metrics::of_run(&state.store, id.0, name).await?;
        return Ok(answer.json(List::whole(points)));
    }
    let points = points(&state, id.0, name).await?;
    let (kind, ending, body) = match format {
        Format::Json | Format::Csv => (CSV, "csv", runlog::csv(&points).into_bytes()),
        Format::Parquet => (PARQUET, "parquet", runlog::parquet(&points).map_err(Problem::internal)?),
        Format::Jsonl => (JSON_LINES, "jsonl", runlog::history(&points).into_bytes()),
        Format::Tfevents => (EVENTS, "tfevents", runlog::event_file(&points)),
    };
    let disposition = format!("attachment; filename=\"{}-metrics.{ending}\"", id.0);
    Ok(answer.content_type(kind).insert_header((header::CONTENT_DISPOSITION, disposition)).body(body))
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CurveQuery {
    /// Metrics to draw, separated by commas, at most six; without it the losses of training and evaluation.
    #[param(example = "train/loss,eval/loss")]
    names: Option<String>,
}

/// Get a picture of the losses of a run.
#[utoipa::path(operation_id = "getRunLossCurve", tag = "runs",
    params(("id" = RunId, Path, description = "The run."), CurveQuery),
    responses((status = 200, description = "A PNG of 960 x 540.", content_type = "image/png", body = String)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/loss.png")]
pub(super) async fn get_run_loss_curve(
    state: Shared,
    id: Id<RunId>,
    query: Asked<CurveQuery>,
) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    let names = query.0.names.as_deref().unwrap_or("train/loss,eval/loss");
    let names: Vec<String> =
        names.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    let points = points(&state, id.0, None).await?;
    let curve = Curve { title: run.name, names };
    let drawn = tokio::task::spawn_blocking(move || runlog::curve_png(&points, &curve)).await;
    match drawn.map_err(Problem::internal)? {
        Ok(picture) => Ok(HttpResponse::Ok()
            .content_type("image/png")
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .body(picture)),
        Err(error @ RunlogError::Empty { .. }) => Err(Problem::new(ErrorCode::Conflict, error.to_string())),
        Err(error) => Err(Problem::internal(error)),
    }
}
