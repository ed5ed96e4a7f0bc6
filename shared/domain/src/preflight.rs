//! What is found before a training starts: faults, doubts and numbers in one document (finetune.md 9).

use serde::{Deserialize, Serialize};

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The run cannot start.
    Error,
    /// The run starts only when the request acknowledges it.
    Warning,
    /// Worth knowing.
    Info,
}

/// One thing that was found, at one place or at many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Finding {
    /// Weight.
    pub severity: Severity,
    /// Stable code.
    #[schema(example = "lr_high")]
    pub code: String,
    /// RFC 6901 pointer into the request; empty when it is about data, model or machine.
    #[schema(example = "/spec/optim/lr")]
    pub pointer: String,
    /// What was found and what was expected, with numbers.
    pub detail: String,
    /// Places, e.g. files; at most twenty.
    pub places: Vec<String>,
    /// Places in all.
    pub count: u32,
}

/// What the data is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DataNumbers {
    /// Dialogues for training.
    pub train_dialogues: u32,
    /// Dialogues held out.
    pub eval_dialogues: u32,
    /// Hours of training audio.
    pub train_hours: f64,
    /// Hours of held-out audio.
    pub eval_hours: f64,
    /// Windows for training.
    pub train_windows: u32,
    /// Held-out windows.
    pub eval_windows: u32,
    /// Frames of all training windows, prompts included.
    pub train_frames: u64,
    /// Mean length of a prompt, frames of 80 ms.
    pub mean_prompt_frames: f64,
    /// Longest prompt, frames.
    pub longest_prompt_frames: u32,
    /// Frames of a window, prompt included.
    pub window_frames: u32,
    /// Turns of a dialogue, mean.
    pub mean_turns: f64,
    /// Words of the agent.
    pub agent_words: u64,
    /// Text tokens per agent word.
    pub tokens_per_word: f64,
    /// Share of agent text tokens that found no frame.
    pub dropped_text_share: f64,
    /// Injections in the sidecars.
    pub injections: u32,
    /// Tokens of their contexts.
    pub context_tokens: u64,
    /// Context tokens that stand in exactly the windows to be trained on.
    pub context_tokens_in_windows: u64,
    /// The second in relation to the first; 1 when nothing is lost.
    pub injection_yield: f64,
}

/// How the optimizer will move.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScheduleNumbers {
    /// Updates.
    pub steps: u64,
    /// Windows of an update, of one process.
    pub windows_per_step: u64,
    /// Passes over the training windows.
    pub epochs: f64,
    /// Updates that warm up.
    pub warm_up_steps: f64,
}

/// What a device has to hold, GiB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MemoryNumbers {
    /// Parameters of the base.
    pub base_parameters: u64,
    /// Parameters that are trained.
    pub trainable_parameters: u64,
    /// Weights, gradients and optimizer state.
    pub static_gib: f64,
    /// Activations of a micro-batch.
    pub activations_gib: f64,
    /// Both.
    pub total_gib: f64,
    /// Whether it fits, by device.
    pub devices: Vec<DeviceFit>,
}

/// One device and what would fit on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeviceFit {
    /// Name.
    #[schema(example = "80 GB")]
    pub device: String,
    /// Memory that a training can use, GiB.
    pub usable_gib: f64,
    /// Whether the specification fits as it is.
    pub fits: bool,
    /// Settings that fit with the same windows per update, when there are any.
    pub proposal: Option<BatchProposal>,
}

/// Settings that fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BatchProposal {
    /// Windows of a micro-batch.
    pub batch_size: u32,
    /// Micro-batches of an update.
    pub num_microbatches: u32,
    /// Seconds of a window.
    pub duration_sec: f64,
}

/// What the artifact store has to hold, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiskNumbers {
    /// Codes of the recordings.
    pub codes_bytes: u64,
    /// Checkpoints that are kept, and one being written.
    pub checkpoint_bytes: u64,
    /// The merged model.
    pub model_bytes: u64,
    /// All of it.
    pub needed_bytes: u64,
    /// What is free; none where the system does not say.
    pub free_bytes: Option<u64>,
}

/// Everything found before a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Preflight {
    /// Always `preflight`.
    #[schema(example = "preflight")]
    pub object: String,
    /// Whether there is no error.
    pub passed: bool,
    /// Errors first, then warnings.
    pub findings: Vec<Finding>,
    /// The data; none when it could not be read.
    pub data: Option<DataNumbers>,
    /// The steps.
    pub schedule: ScheduleNumbers,
    /// The device; none when the base could not be read.
    pub memory: Option<MemoryNumbers>,
    /// The disk; none when the base could not be read.
    pub disk: Option<DiskNumbers>,
}

impl Preflight {
    /// Errors, and warnings that are not acknowledged: what keeps a run from starting.
    pub fn obstacles<'a>(&'a self, acknowledge: &'a Acknowledge) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(|f| match f.severity {
            Severity::Error => true,
            Severity::Warning => !acknowledge.covers(&f.code),
            Severity::Info => false,
        })
    }
}

/// Warnings that the caller has read and accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Acknowledge {
    /// All of them, or none.
    All(bool),
    /// Those of these codes.
    Codes(Vec<String>),
}

impl Default for Acknowledge {
    fn default() -> Self {
        Self::All(false)
    }
}

impl Acknowledge {
    /// Whether a warning of this code is accepted.
    #[must_use]
    pub fn covers(&self, code: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Codes(codes) => codes.iter().any(|c| c == code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, code: &str) -> Finding {
        let (pointer, detail, places, count) = (String::new(), String::new(), Vec::new(), 1);
        Finding { severity, code: code.into(), pointer, detail, places, count }
    }

    #[test]
    fn an_acknowledgement_covers_warnings_and_never_errors() {
        let findings = vec![
            finding(Severity::Error, "disk_full"),
            finding(Severity::Warning, "lr_high"),
            finding(Severity::Info, "memory"),
        ];
        let report = Preflight {
            object: "preflight".into(),
            passed: false,
            findings,
            data: None,
            schedule: ScheduleNumbers::default(),
            memory: None,
            disk: None,
        };
        let left = |a: &Acknowledge| report.obstacles(a).map(|f| f.code.clone()).collect::<Vec<_>>();
        assert_eq!(left(&Acknowledge::default()), ["disk_full", "lr_high"]);
        assert_eq!(left(&Acknowledge::All(true)), ["disk_full"]);
        let codes = Acknowledge::Codes(vec!["lr_high".into(), "disk_full".into()]);
        assert_eq!(left(&codes), ["disk_full"]);
        assert_eq!(left(&Acknowledge::Codes(vec!["x".into()])), ["disk_full", "lr_high"]);
    }
}
