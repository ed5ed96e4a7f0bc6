//! What the training thread tells the service while it works, and at the end.

use std::path::PathBuf;

use domain::run::MetricPoint;
use tokio::sync::oneshot;

use crate::alarms::Alarm;

/// One message of the training thread.
#[derive(Debug)]
pub enum Report {
    /// Numbers of a step.
    Metrics(Vec<MetricPoint>),
    /// Dialogues made ready and in all.
    Encoded {
        /// Ready.
        done: usize,
        /// All.
        total: usize,
    },
    /// Steps done and in all.
    Progress(u32, u32),
    /// Something that a person should look at.
    Alarm(Alarm),
    /// A checkpoint lies whole in this local folder; the thread waits for the answer.
    Checkpoint {
        /// Optimizer updates so far.
        step: u32,
        /// Folder with its files.
        dir: PathBuf,
        /// Whether no step follows.
        last: bool,
        /// Answered when the checkpoint is stored and listed.
        stored: oneshot::Sender<()>,
    },
}

/// What a finished training leaves.
#[derive(Debug)]
pub struct Outcome {
    /// Folder of the last adapter.
    pub adapter_dir: PathBuf,
    /// Steps of the run.
    pub steps: u32,
    /// Trainable numbers.
    pub parameters: u64,
    /// Windows of the training and eval lists.
    pub windows: (usize, usize),
    /// Real frames per second over this attempt's steps; `None` when it had none left to do.
    pub frames_per_s: Option<f64>,
    /// Steps skipped because a number was not finite.
    pub skipped: u32,
    /// Alarms raised.
    pub alarms: Vec<Alarm>,
}
