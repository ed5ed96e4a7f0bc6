//! `ppx models` and `ppx voices`

use clap::Subcommand;

use client::Result;

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

pub(crate) async fn voices(context: &Context) -> Result<()> {
    let list = context.client()?.voices().await?;
    context.out.table(&["id", "name", "source", "duration_ms"], &list.data);
    Ok(())
}
