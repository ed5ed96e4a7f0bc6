//! `ppx bench`: the speed of this machine, beside the published packages.

use std::ffi::OsString;

use clap::Subcommand;
use client::{ClientError, Result};

use super::launch::beside;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Updates of a training on random ids; `--peer PYTHON` runs PyPI's moshi in the same call. `-- --help` lists the options.
    Train {
        /// Folder of the base model, then options of the trainer's own `bench`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "MODEL OPTIONS",
            required = true
        )]
        arguments: Vec<OsString>,
    },
}

pub(crate) fn bench(command: BenchCommand) -> Result<()> {
    let BenchCommand::Train { arguments } = command;
    let program = beside("trainer")?;
    let shown = program.to_string_lossy().into_owned();
    let ran = std::process::Command::new(&program).arg("bench").args(arguments).status();
    let status = ran.map_err(|source| ClientError::File { path: shown, source })?;
    match status.code() {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}
