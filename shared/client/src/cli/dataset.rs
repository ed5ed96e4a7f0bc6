//! `ppx dataset`

use clap::Subcommand;

use client::Result;
use domain::dataset::DatasetSpec;

use super::{Context, WaitArgs, progress};

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Generate, speak, align and publish a dataset.
    Create {
        /// Unique name.
        #[arg(long)]
        name: String,
        /// Domain pack.
        #[arg(long, default_value = "pharma_adherence")]
        domain: String,
        /// Number of dialogues.
        #[arg(long)]
        dialogues: u32,
        /// Seed of every choice.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Dialogues per job.
        #[arg(long, default_value_t = 4)]
        shard_size: u32,
        /// Share held out for evaluation.
        #[arg(long, default_value_t = 0.05)]
        eval_fraction: f64,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// The newest datasets.
    List,
    /// One dataset, by id or name.
    Get {
        /// Id or name.
        dataset: String,
        #[command(flatten)]
        wait: WaitArgs,
    },
}

pub(crate) async fn run(command: DatasetCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    let (view, wait) = match command {
        DatasetCommand::Create { name, domain, dialogues, seed, shard_size, eval_fraction, wait } => {
            let spec = DatasetSpec { domain, dialogues, seed, shard_size, eval_fraction };
            (client.create_dataset(&name, &spec).await?, wait)
        }
        DatasetCommand::Get { dataset, wait } => (client.find_dataset(&dataset).await?, wait),
        DatasetCommand::List => {
            let list = client.datasets(50).await?;
            context.out.table(&["id", "name", "state", "progress", "created_at"], &list.data);
            return Ok(());
        }
    };
    if !wait.wait {
        context.out.show(&view);
        return Ok(());
    }
    let view = progress::dataset(context, &view, &wait.options()).await?;
    context.out.show(&view);
    Ok(())
}
