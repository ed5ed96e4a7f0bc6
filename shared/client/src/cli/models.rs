//! `ppx models`, `ppx model` and `ppx voices`

use std::path::PathBuf;

use clap::Subcommand;

use client::{ClientError, Result};
use weights::{ModelInfo, WeightsError};

use super::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// Register a model directory that lies in the server's import folder.
    Register {
        /// Unique name.
        #[arg(long)]
        name: String,
        /// Path below the import folder.
        #[arg(long)]
        path: String,
    },
    /// The newest models.
    List,
    /// One model.
    Get {
        /// Id or name.
        model: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Write a model with random weights.
    Init {
        /// Which shape.
        #[arg(long, default_value = "tiny", value_parser = clap::builder::PossibleValuesParser::new(weights::preset_names()))]
        preset: String,
        /// Seed of the weights.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Directory to make.
        dir: PathBuf,
    },
    /// Show sizes, hashes and the configuration.
    Inspect {
        /// Model directory.
        dir: PathBuf,
    },
    /// Check that the files are whole and every tensor has its name and shape.
    Verify {
        /// Model directory.
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum VoicesCommand {
    /// Registered voices.
    List,
}

pub(crate) async fn registry(command: ModelsCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    match command {
        ModelsCommand::Register { name, path } => {
            context.out.show(&client.register_model(&name, &path).await?);
        }
        ModelsCommand::List => {
            let list = client.models(50).await?;
            context.out.table(&["id", "name", "kind", "base_id", "run_id", "created_at"], &list.data);
        }
        ModelsCommand::Get { model } => context.out.show(&client.model(&model).await?),
    }
    Ok(())
}

pub(crate) fn local(command: ModelCommand, context: &Context) -> Result<()> {
    let info = match command {
        ModelCommand::Init { preset, seed, dir } => weights::init_model(&dir, &preset, seed),
        ModelCommand::Inspect { dir } => weights::inspect(&dir),
        ModelCommand::Verify { dir } => weights::verify(&dir),
    };
    show(&info.map_err(|e| bad_model(&e))?, context);
    Ok(())
}

fn show(info: &ModelInfo, context: &Context) {
    if context.out.is_json() {
        return context.out.show(info);
    }
    context.out.line(&format!("name              {}", info.config.name));
    context.out.line(&format!("lm parameters     {}", info.lm_parameters));
    context.out.line(&format!("codec parameters  {}", info.mimi_parameters));
    context.out.table(&["name", "bytes", "sha256"], &info.files);
}

pub(crate) fn bad_model(error: &WeightsError) -> ClientError {
    ClientError::Usage(error.to_string())
}

pub(crate) async fn voices(context: &Context) -> Result<()> {
    let list = context.client()?.voices().await?;
    context.out.table(&["id", "name", "source", "duration_ms"], &list.data);
    Ok(())
}
