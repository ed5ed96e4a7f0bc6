//! Training on a GPU: streamed layers and full fine-tuning give there what they give on the CPU. Without a GPU there is
//! nothing to compare.

mod common;
mod training_common;

use common::{Outcome, golden, lm_config};
use personaplex::{HostLayers, Lm, LoraConfig, PassOptions};
use tch::{Cuda, Device, Kind, Tensor};
use training_common::{Case, assert_same, base, case, gradients, perturb};

fn on_gpu(kind: Kind) -> Outcome<Lm> {
    let path = golden("finetune/c_lora/base_personaplex_names.safetensors");
    let config = lm_config("finetune/c_lora", "expected.json")?;
    Ok(Lm::from_file(&path, &config, Device::Cuda(0), kind)?)
}

fn adapt(lm: &mut Lm) -> Outcome {
    lm.add_lora(
        &LoraConfig { rank: 3, skip_depformer: false, embeddings: true, ..LoraConfig::default() },
        1,
    )?;
    perturb(lm, |p| !p.name.contains("lora_A"));
    Ok(())
}

/// Gradients of a pass, on the CPU.
fn found(lm: &Lm) -> Outcome<Vec<(String, Tensor)>> {
    let Case { codes, weights, scale } = case(lm)?;
    lm.backward(&codes, &weights, scale, &PassOptions::default())?;
    Ok(gradients(lm).into_iter().map(|(name, t)| (name, t.to_device(Device::Cpu))).collect())
}

#[test]
fn gradients_on_a_gpu_are_those_of_the_cpu() -> Outcome {
    if !Cuda::is_available() {
        return Ok(());
    }
    let mut cpu = base(Kind::Float)?;
    adapt(&mut cpu)?;
    let wanted = found(&cpu)?;
    let mut gpu = on_gpu(Kind::Float)?;
    adapt(&mut gpu)?;
    assert_same(&found(&gpu)?, &wanted, 1e-4);
    // What the source keeps is pinned host memory here.
    let streamed = gpu.stream_layers(Box::<HostLayers>::default(), 8)?;
    for _ in 0..2 {
        assert_same(&found(&streamed)?, &wanted, 1e-4);
    }

    let (mut cpu, mut gpu) = (base(Kind::Float)?, on_gpu(Kind::Float)?);
    cpu.train_all()?;
    gpu.train_all()?;
    assert_same(&found(&gpu)?, &found(&cpu)?, 1e-4);
    Ok(())
}

#[test]
fn bf16_gradients_on_a_gpu_are_those_of_f32_within_their_precision() -> Outcome {
    if !Cuda::is_available() {
        return Ok(());
    }
    for adapters in [true, false] {
        let (mut exact, mut gpu) = (base(Kind::Float)?, on_gpu(Kind::BFloat16)?);
        for lm in [&mut exact, &mut gpu] {
            if adapters { adapt(lm)? } else { lm.train_all()? }
        }
        for ((name, found), (_, wanted)) in found(&gpu)?.into_iter().zip(found(&exact)?) {
            let error = (found - &wanted).norm().double_value(&[]) / wanted.norm().double_value(&[]);
            assert!(error < 0.15, "{name}: {error}");
        }
    }
    Ok(())
}
