//! The windows of a run, made by all its processes together and then held by each.

use chassis::JobError;
use ranks::Group;

use crate::loader::{Counts, Encoder, RawDialogue, Sample};
use crate::plan::Plan;
use crate::{Report, TrainError};

/// Windows of both sides.
pub(crate) struct Samples {
    pub train: Vec<Sample>,
    pub eval: Vec<Sample>,
    pub counts: Counts,
}

/// Encodes what the cache lacks, every process its share, and cuts the windows.
pub(crate) fn samples(plan: &Plan, group: &dyn Group) -> Result<Samples, TrainError> {
    let mut encoder = Encoder::load(&plan.base, plan.device, &plan.spec, plan.codes.as_deref())?;
    encoder.check_constants(plan.strict_constants)?;
    if group.world() > 1 && plan.codes.is_some() {
        let all = plan.data.train.iter().chain(&plan.data.eval);
        for dialogue in all.skip(group.rank()).step_by(group.world()) {
            stop_check(plan)?;
            encoder.windows(dialogue)?;
        }
        group.sum(&mut [0.0])?;
        encoder.forget_counts();
    }
    let total = plan.data.train.len() + plan.data.eval.len();
    let mut done = 0;
    let mut side = |dialogues: &[RawDialogue]| -> Result<Vec<Sample>, TrainError> {
        let mut windows = Vec::new();
        for dialogue in dialogues {
            stop_check(plan)?;
            windows.extend(encoder.windows(dialogue)?);
            done += 1;
            if group.rank() == 0 {
                let _gone = plan.reports.blocking_send(Report::Encoded { done, total });
            }
        }
        Ok(windows)
    };
    let (train, mut eval) = (side(&plan.data.train)?, side(&plan.data.eval)?);
    if train.is_empty() {
        return Err(TrainError::Empty(format!("{} dialogues in train.jsonl", plan.data.train.len())));
    }
    if !plan.spec.do_eval {
        eval.clear();
    }
    keep_first_by_hash(&mut eval, plan.spec.eval_max_windows as usize);
    Ok(Samples { train, eval, counts: encoder.counts() })
}

fn stop_check(plan: &Plan) -> Result<(), TrainError> {
    (plan.stop)().map_or(Ok(()), |stop| Err(JobError::Stopped(stop).into()))
}

/// The same windows at every evaluation of every run on a dataset, whatever the order of the manifest.
fn keep_first_by_hash(samples: &mut Vec<Sample>, limit: usize) {
    if samples.len() > limit {
        samples.sort_by_cached_key(|s| {
            artifacts::sha256_hex(format!("{}#{}", s.dialogue, s.window.index).as_bytes())
        });
        samples.truncate(limit);
    }
}
