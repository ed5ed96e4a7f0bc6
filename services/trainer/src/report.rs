//! What the training thread tells the service while it works, and at the end.

use std::path::PathBuf;

use domain::run::MetricPoint;
use tokio::sync::oneshot;

/// One message of the training thread.
#[derive(Debug)]
pub enum Report {
    /// Numbers of a step.
    Metrics(Vec<MetricPoint>),
    /// Steps done and in all.
    Progress(u32, u32),
    /// A checkpoint lies whole in this local folder; the thread waits for the answer.
    Checkpoint {
        /// Optimizer updates so far.
        step: u32,
        /// Folder with its files.
        dir: PathBuf,
        /// Answered when the checkpoint is stored and listed.
        stored: oneshot::Sender<()>,
    },
}

/// What a finished training leaves.
#[derive(Debug)]
pub struct Outcome {
    /// Folder of the last adapter.
    pub adapter_dir: PathBuf,
    /// Trainable numbers.
    pub parameters: u64,
    /// Windows of the training and eval lists.
    pub windows: (usize, usize),
    /// Real frames per second over this attempt's steps; `None` when it had none left to do.
    pub frames_per_s: Option<f64>,
}
