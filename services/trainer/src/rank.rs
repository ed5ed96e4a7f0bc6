//! `trainer rank [DEVICES [THREADS]]`: one of the other processes of a run. It gets its work from rank 0, holds no connection
//! to database or broker, and ends with the run, or when rank 0 is gone.

use anyhow::Context;
use ranks::{Group, Membership, TcpGroup, Token};
use tch::Device;

use crate::crew;
use crate::plan::Order;
use crate::settings::TrainerSettings;
use crate::{TrainError, train};

/// Exit status of a process whose rank 0 is gone: the run is tried again.
const TRY_AGAIN: i32 = 75;

/// Joins, trains and ends. `arguments` are those after `rank`.
///
/// # Errors
/// When the environment is not that of a rank, the device is missing, or the training fails.
pub fn run(settings: &TrainerSettings, arguments: &[String]) -> anyhow::Result<()> {
    ranks::local::end_with_parent(|| std::process::exit(TRY_AGAIN))?;
    let member = Membership::from_lookup(chassis::variable)?;
    anyhow::ensure!(member.rank > 0, "RANK is 0: that is the trainer service (docs/TRAINING_RANKS.md)");
    let token = Token::from_lookup(chassis::variable)?;
    let device = device(settings, arguments.first().map(String::as_str), member.local_rank)?;
    let threads = arguments.get(1).map_or(Ok(settings.threads), |t| t.parse()).context("THREADS")?;
    if threads > 0 {
        nn::device::set_threads(threads);
    }
    tracing::info!(rank = member.rank, world = member.world, ?device, "joining");
    let options = settings.ranks.options();
    let control = TcpGroup::connect(&member, settings.ranks.listen.ip(), &token, &options)?;
    let group = crew::group(control, device)?;
    let order: Order = serde_json::from_slice(&group.broadcast(Vec::new())?).context("the work of rank 0")?;
    let plan = order.plan(device);
    match train(&plan, &group) {
        Ok(outcome) => {
            tracing::info!(steps = outcome.steps, "done");
            Ok(())
        }
        // Rank 0 tells the service why.
        Err(TrainError::Stopped(stopped)) => {
            tracing::info!(?stopped, "stopped");
            Ok(())
        }
        Err(error) => Err(error).context(crew::told(&member)),
    }
}

/// The device of a local rank: of the list, else of the settings, else the GPU of that number.
fn device(settings: &TrainerSettings, list: Option<&str>, local_rank: usize) -> anyhow::Result<Device> {
    let names = list.unwrap_or(&settings.device);
    let several: Vec<&str> = names.split(',').map(str::trim).collect();
    let name = match several[..] {
        [one] if one != "cuda" => one.to_owned(),
        ["cuda"] => format!("cuda:{local_rank}"),
        _ => (*several.get(local_rank).with_context(|| {
            format!("local rank {local_rank} has no device: there are {}", several.len())
        })?)
        .to_owned(),
    };
    Ok(nn::device::choose(&name)?)
}
