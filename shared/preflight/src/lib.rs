//! Everything that can be known about a training before it starts (finetune.md 9 and 10): the specification, the
//! dataset's files, the windows that they will become, the base model, memory and disk. Needs no libtorch and no
//! weights in memory; windows are cut by the same code as in training, with the codec's silence in place of audio.
//!
//! What only the trainer can see stays with it: whether recordings have the hashes of the index, and whether the codec
//! gives the configured prompt codes.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod base;
mod data;
mod disk;
mod files;
mod findings;
pub mod memory;
mod secrets;
mod sidecar;
mod spec;
pub mod views;
mod windows;

use std::path::Path;

use domain::dataset::DatasetFile;
use domain::preflight::Preflight;
use domain::run::TrainingSpec;

use crate::findings::Findings;

/// What is to be trained, on what, from what.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Name of the run.
    pub name: &'a str,
    /// The specification.
    pub spec: &'a TrainingSpec,
    /// Specification of the run that is to be gone on from, and the step of its checkpoint.
    pub earlier: Option<(&'a TrainingSpec, u32)>,
    /// Folder of the published dataset.
    pub published: &'a Path,
    /// Content hash that the database holds for it.
    pub content_sha256: Option<&'a str>,
    /// Folder of the base model.
    pub base: &'a Path,
    /// Files that the database holds for it.
    pub base_files: &'a [DatasetFile],
    /// Folder whose disk takes codes, checkpoints and the merged model.
    pub storage: &'a Path,
    /// Names and usable memory (GiB) of devices; see [`memory::DEVICES`].
    pub devices: &'a [(&'a str, f64)],
}

/// Reads and checks everything. Blocking: reads every sidecar and tokenizes every text once.
#[must_use]
pub fn examine(inputs: &Inputs<'_>) -> Preflight {
    let mut findings = Findings::default();
    secrets::check_request(inputs, &mut findings);
    spec::check(inputs.spec, inputs.earlier, &mut findings);
    let base = base::read(inputs, &mut findings);
    let dialogues = data::read(inputs, &mut findings);
    let numbers = match &base {
        Some(base) if inputs.spec.faults().is_empty() => {
            Some(windows::count(inputs.spec, &dialogues, base, &mut findings))
        }
        _ => None,
    };
    let schedule = spec::schedule(inputs.spec, numbers.as_ref(), &mut findings);
    let memory = base.as_ref().map(|b| {
        let numbers = memory::estimate(inputs.spec, &b.config.lm, 1, inputs.devices);
        memory::judge(&numbers, inputs.spec, &mut findings);
        numbers
    });
    let disk = memory.as_ref().map(|m| {
        let seconds: f64 = dialogues.iter().map(|d| d.seconds).sum();
        disk::estimate(inputs, schedule.steps, m, seconds, &mut findings)
    });
    let findings = findings.finish();
    Preflight {
        object: "preflight".into(),
        passed: !findings.iter().any(|f| f.severity == domain::preflight::Severity::Error),
        findings,
        data: numbers,
        schedule,
        memory,
        disk,
    }
}
