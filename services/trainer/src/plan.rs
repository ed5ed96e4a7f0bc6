//! What a training needs, and what its states belong to.

use std::path::PathBuf;

use artifacts::sha256_hex;
use chassis::Stop;
use domain::RunId;
use domain::run::TrainingSpec;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use tokio::sync::mpsc;

use crate::loader::RawDataset;
use crate::{Report, TrainError};

/// Everything that a training needs, on the local disk.
pub struct Plan {
    /// The specification.
    pub spec: TrainingSpec,
    /// The run.
    pub run: RunId,
    /// Folder of the base model.
    pub base: PathBuf,
    /// SHA-256 of its `model.safetensors`.
    pub base_sha256: String,
    /// Content hash of the dataset.
    pub dataset_sha256: String,
    /// The dataset's files.
    pub data: RawDataset,
    /// Where to go on from.
    pub resume: Option<Resume>,
    /// Folder for checkpoints before they are stored.
    pub scratch: PathBuf,
    /// Folder of cached codes; none computes them every time.
    pub codes: Option<PathBuf>,
    /// Where to compute.
    pub device: Device,
    /// Whether a codec that does not give the configured prompt codes is refused (else a warning).
    pub strict_constants: bool,
    /// Whether and why to stop.
    pub stop: Box<dyn Fn() -> Option<Stop> + Send>,
    /// Where reports go.
    pub reports: mpsc::Sender<Report>,
}

/// The part of a plan that rank 0 hands to the other processes of a run. Its paths are the same on every machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    spec: TrainingSpec,
    run: RunId,
    base: PathBuf,
    base_sha256: String,
    dataset_sha256: String,
    data: RawDataset,
    resume: Option<Resume>,
    codes: Option<PathBuf>,
    strict_constants: bool,
}

impl Order {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            spec: plan.spec.clone(),
            run: plan.run,
            base: plan.base.clone(),
            base_sha256: plan.base_sha256.clone(),
            dataset_sha256: plan.dataset_sha256.clone(),
            data: plan.data.clone(),
            resume: plan.resume.clone(),
            codes: plan.codes.clone(),
            strict_constants: plan.strict_constants,
        }
    }

    /// The plan of a process that neither reports nor saves and stops when rank 0 says so.
    pub(crate) fn plan(self, device: Device) -> Plan {
        Plan {
            spec: self.spec,
            run: self.run,
            base: self.base,
            base_sha256: self.base_sha256,
            dataset_sha256: self.dataset_sha256,
            data: self.data,
            resume: self.resume,
            scratch: PathBuf::new(),
            codes: self.codes,
            device,
            strict_constants: self.strict_constants,
            stop: Box::new(|| None),
            reports: mpsc::channel(1).0,
        }
    }
}

/// A checkpoint to start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Its folder.
    pub dir: PathBuf,
    /// What of it is taken.
    pub take: Take,
}

/// What is taken of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// Everything: it is of this run, which goes on as if it had never stopped.
    Own,
    /// Everything of another run: this one goes on with its own specification.
    Other,
    /// The weights alone: a new run from step 0.
    Weights,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("run", &self.run).field("device", &self.device).finish_non_exhaustive()
    }
}

impl Plan {
    /// Type of the frozen weights and of the arithmetic.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.spec.param_dtype {
            Some(domain::run::FloatType::Bfloat16) => Kind::BFloat16,
            Some(domain::run::FloatType::Float32) => Kind::Float,
            None if self.device.is_cuda() => Kind::BFloat16,
            None => Kind::Float,
        }
    }
}

/// Where a training stands: what must be known to go on from a checkpoint exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Run.
    pub run_id: RunId,
    /// SHA-256 of the training specification.
    pub spec_sha256: String,
    /// SHA-256 of the base's weights.
    pub base_sha256: String,
    /// Content hash of the dataset.
    pub dataset_sha256: String,
    /// Steps so far.
    pub step: u32,
    /// Steps at the end.
    pub max_steps: u32,
    /// Updates among them; steps that were skipped are none.
    pub updates: u32,
    /// Windows drawn so far, by all processes.
    pub drawn: u64,
    /// Frames seen so far, by all processes.
    pub frames: u64,
    /// Step from which the learning rate was planned.
    pub planned_from: u32,
    /// Steps skipped in a row because a number was not finite.
    pub skipped_in_a_row: u32,
    /// Steps skipped in all.
    pub skipped: u32,
    /// What the alarms have seen.
    pub alarms: crate::alarms::Alarms,
}

impl State {
    /// The state before the first step.
    #[must_use]
    pub fn new(plan: &Plan, max_steps: u32) -> Self {
        Self {
            run_id: plan.run,
            spec_sha256: spec_sha256(&plan.spec),
            base_sha256: plan.base_sha256.clone(),
            dataset_sha256: plan.dataset_sha256.clone(),
            step: 0,
            max_steps,
            updates: 0,
            drawn: 0,
            frames: 0,
            planned_from: 0,
            skipped_in_a_row: 0,
            skipped: 0,
            alarms: crate::alarms::Alarms::default(),
        }
    }

    /// The state in which `plan` goes on from a checkpoint in the state `self`.
    ///
    /// # Errors
    /// `Checkpoint` when it does not belong to what is to be trained.
    pub fn taken(self, plan: &Plan, take: Take, max_steps: u32) -> Result<Self, TrainError> {
        let fresh = Self::new(plan, max_steps);
        let path = plan.resume.as_ref().map(|r| r.dir.clone()).unwrap_or_default();
        let bad = |detail: String| TrainError::Checkpoint { path: path.clone(), detail };
        if self.base_sha256 != fresh.base_sha256 {
            let (found, wanted) = (&self.base_sha256, &fresh.base_sha256);
            return Err(bad(format!("was trained on base {found}, this run has base {wanted}")));
        }
        match take {
            Take::Own if (self.run_id, &self.spec_sha256) != (fresh.run_id, &fresh.spec_sha256) => {
                Err(bad("belongs to another run or specification".into()))
            }
            Take::Own if self.dataset_sha256 != fresh.dataset_sha256 => {
                Err(bad("belongs to another dataset".into()))
            }
            Take::Own => Ok(self),
            Take::Weights => Ok(fresh),
            Take::Other if max_steps <= self.step => {
                Err(bad(format!("has done {} steps already, this run is to have {max_steps}", self.step)))
            }
            Take::Other => {
                let planned_from = if plan.spec.schedule_restart { self.step } else { self.planned_from };
                Ok(Self {
                    step: self.step,
                    updates: self.updates,
                    drawn: self.drawn,
                    frames: self.frames,
                    planned_from,
                    ..fresh
                })
            }
        }
    }
}

fn spec_sha256(spec: &TrainingSpec) -> String {
    sha256_hex(&serde_json::to_vec(spec).expect("specifications are plain numbers and text"))
}

/// Identity of the language model of a model folder, from the hashes that its registration recorded.
#[must_use]
pub fn model_sha256(files: &[domain::dataset::DatasetFile]) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let files: Vec<_> = files.iter().map(|f| (name(&f.path), f.sha256.as_str())).collect();
    weights::lm_sha256(files.iter().map(|(name, hash)| (name.as_str(), *hash))).unwrap_or_default()
}
