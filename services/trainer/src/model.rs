//! The model of a run, with what is trained of it, and where the run stands.

use domain::run::{FloatType, TrainingSpec};
use personaplex::{Adapter, HostLayers, Lm, LoraConfig};
use ranks::{Group, Shared};
use tch::{Device, Kind};
use weights::ModelDir;

use crate::optim::AdamW;
use crate::plan::{Plan, State, Take};
use crate::shards::ShardedLayers;
use crate::{TrainError, checkpointing};

/// Loads the base with what is trained of it: as it begins, or as the checkpoint that the plan names left it.
pub(crate) fn load(plan: &Plan, max_steps: u32, group: &Shared) -> Result<(Lm, AdamW, State), TrainError> {
    check_memory(plan, group.world())?;
    let spec = &plan.spec;
    let (state, take) = match &plan.resume {
        None => (State::new(plan, max_steps), None),
        Some(resume) => {
            let saved = checkpointing::read_state(&resume.dir)?;
            (saved.taken(plan, resume.take, max_steps)?, Some(resume))
        }
    };
    let mut lm = base(plan, group)?;
    match take {
        _ if spec.full_finetuning => lm.train_all()?,
        None => lm.add_lora(&lora(spec), spec.seed)?,
        Some(resume) => lm.set_adapter(&Adapter::load(&resume.dir, lm.config())?)?,
    }
    let mut optim = AdamW::new(lm.trainable(), &spec.optim, spec.lora_b_decay);
    if let Some(resume) = take.filter(|resume| resume.take != Take::Weights) {
        checkpointing::restore(&resume.dir, &mut optim, state.updates)?;
    }
    Ok((lm, optim, state))
}

/// The adapters that a specification asks for.
pub(crate) fn lora(spec: &TrainingSpec) -> LoraConfig {
    LoraConfig {
        rank: i64::from(spec.lora.rank),
        scaling: spec.lora.factor(),
        skip_depformer: spec.lora.skip_depformer,
        embeddings: spec.lora.ft_embed,
    }
}

/// The weights that training starts from, on the device or where the specification wants the frozen layers.
fn base(plan: &Plan, group: &Shared) -> Result<Lm, TrainError> {
    let (place, spec) = ((plan.device, plan.kind()), &plan.spec);
    if spec.offload_frozen {
        return Ok(Lm::load_streamed(&plan.base, place, Box::<HostLayers>::default(), 1)?);
    }
    if spec.shard_frozen && group.world() > 1 {
        let multiple = i64::try_from(group.world()).expect("a few processes");
        let layers = Box::new(ShardedLayers::new(group.clone()));
        return Ok(Lm::load_streamed(&plan.base, place, layers, multiple)?);
    }
    match &plan.resume {
        Some(resume) if spec.full_finetuning => {
            let config = ModelDir::new(&plan.base).load_config()?.lm;
            Ok(Lm::from_file(&resume.dir.join(checkpointing::WHOLE), &config, plan.device, plan.kind())?)
        }
        _ => Ok(Lm::load(&plan.base, plan.device, plan.kind())?),
    }
}

/// Whether the device has room for what the estimate of the preflight says, before any weight is read.
fn check_memory(plan: &Plan, world: usize) -> Result<(), TrainError> {
    let Some(free) = free_memory(plan.device) else { return Ok(()) };
    let kind = if plan.kind() == Kind::Float { FloatType::Float32 } else { FloatType::Bfloat16 };
    let spec = TrainingSpec { param_dtype: Some(kind), ..plan.spec.clone() };
    let lm = ModelDir::new(&plan.base).load_config()?.lm;
    let numbers = preflight::memory::fits(&spec, &lm, world, &format!("{:?}", plan.device), free)
        .map_err(TrainError::Memory)?;
    tracing::info!(estimated_gib = numbers.total_gib, free_gib = free as f64 / GIB, "memory");
    Ok(())
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Bytes that the device has left, with what libtorch holds but does not use; none when that cannot be told.
pub(crate) fn free_memory(device: Device) -> Option<u64> {
    if device.is_cuda() {
        let stats = nn::graph::memory_stats(device).ok()?;
        return Some(stats.free + stats.reserved - stats.allocated);
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
