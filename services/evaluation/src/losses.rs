//! The held-out loss that training measured for a model, where a run on the same dataset did.

use serde::{Deserialize, Serialize};

use domain::{DatasetId, RunId};
use store::models::Model;
use store::{PageRequest, Store, StoreError, metrics, runs};

const EVAL_LOSS: &str = "eval/loss";
/// Runs that are looked through for one that began with a base model.
const RUNS: u32 = 100;

/// A loss with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EvalLoss {
    pub value: f64,
    pub step: u32,
    pub run_id: RunId,
}

/// Last loss of the run that made the model, or the loss before the first step of the newest run that began with it.
pub(crate) async fn of_model(
    store: &Store,
    model: &Model,
    dataset: DatasetId,
) -> Result<Option<EvalLoss>, StoreError> {
    if let Some(id) = model.run_id {
        if runs::get(store, id).await?.dataset_id != dataset {
            return Ok(None);
        }
        let points = metrics::of_run(store, id, Some(EVAL_LOSS)).await?;
        return Ok(points.last().map(|p| EvalLoss { value: p.value, step: p.step, run_id: id }));
    }
    let page = PageRequest { limit: RUNS, after: None, descending: true };
    for run in runs::list(store, page).await?.items {
        if run.base_id != model.id || run.dataset_id != dataset {
            continue;
        }
        let points = metrics::of_run(store, run.id, Some(EVAL_LOSS)).await?;
        if let Some(first) = points.first().filter(|p| p.step == 0) {
            return Ok(Some(EvalLoss { value: first.value, step: 0, run_id: run.id }));
        }
    }
    Ok(None)
}
