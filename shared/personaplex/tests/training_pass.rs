//! The training pass that recomputes layers and slices heads gives the loss and the gradients of the plain one.

mod common;

use common::{Data, Outcome, assert_close, golden, lm_config};
use personaplex::loss::{LossSettings, LossWeights, masked_loss};
use personaplex::{Lm, LoraConfig, LossScale, PassOptions};
use tch::{Device, Kind, Tensor};

fn base(kind: Kind) -> Outcome<Lm> {
    let config = lm_config("finetune/c_lora", "expected.json")?;
    let path = golden("finetune/c_lora/base_personaplex_names.safetensors");
    Ok(Lm::from_file(&path, &config, Device::Cpu, kind)?)
}

/// A model whose adapters have a non-zero B.
fn adapted(skip_depformer: bool, kind: Kind) -> Outcome<Lm> {
    tch::manual_seed(4);
    let mut lm = base(kind)?;
    lm.add_lora(&LoraConfig { rank: 3, skip_depformer, ..LoraConfig::default() }, 1)?;
    tch::no_grad(|| {
        for mut param in lm.trainable().into_iter().filter(|p| p.is_b()) {
            let noise = Tensor::empty_like(&param.tensor).uniform_(-0.1, 0.1);
            param.tensor.copy_(&noise);
        }
    });
    Ok(lm)
}

struct Case {
    codes: Tensor,
    weights: LossWeights,
    scale: LossScale,
}

fn case(lm: &Lm) -> Outcome<Case> {
    let codes = Data::open("finetune/c_lora/io.safetensors")?.i64("codes");
    let settings =
        LossSettings { text_padding_weight: 0.3, epad_weight: Some(0.7), ..LossSettings::default() };
    let (b, t) = (codes.size()[0], codes.size()[2]);
    let context = Tensor::zeros([b, t], (Kind::Bool, Device::Cpu));
    let _ = context.narrow(1, t / 2, 2).fill_(1);
    let prompts: Vec<i64> = (0..b).map(|i| 2 * i).collect();
    let weights = LossWeights::new(&codes, lm.config(), &prompts, Some(&context), &settings)?;
    let scale = LossScale { text: 1.0 / weights.text_sum(), audio: 0.5 / weights.audio_sum(), kl: 0.0 };
    Ok(Case { codes, weights, scale })
}

fn gradients(lm: &Lm) -> Vec<(String, Tensor)> {
    let take = |p: personaplex::Param| {
        let gradient = p.tensor.grad().copy();
        let _ = p.tensor.grad().zero_();
        (p.name, gradient)
    };
    lm.trainable().into_iter().map(take).collect()
}

fn assert_same(found: &[(String, Tensor)], wanted: &[(String, Tensor)], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        let largest = wanted.abs().max().double_value(&[]);
        assert!(largest > 0.0, "{name} has a gradient");
        assert_close(name, found, wanted, tolerance * largest + 1e-9);
    }
}

#[test]
fn any_number_of_recomputed_layers_and_any_slice_gives_the_plain_gradients() -> Outcome {
    for skip_depformer in [true, false] {
        let lm = adapted(skip_depformer, Kind::Float)?;
        let Case { codes, weights, scale } = case(&lm)?;
        let plain = masked_loss(&lm.forward_train(&codes)?, &codes, &weights);
        (&plain.text_sum * scale.text + &plain.audio_sum * scale.audio).backward();
        let wanted = gradients(&lm);
        for (recompute_layers, slice_rows) in [(0, 1), (1, 7), (usize::MAX, 13), (usize::MAX, 1000)] {
            let options = PassOptions { recompute_layers, slice_rows, ..PassOptions::default() };
            let sums = lm.backward(&codes, &weights, scale, &options)?;
            assert_same(&gradients(&lm), &wanted, 2e-5);
            let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} is not {b}");
            close(sums.text_sum, plain.text_sum.double_value(&[]));
            close(sums.audio_sum, plain.audio_sum.double_value(&[]));
            assert_eq!((sums.text_weight, sums.audio_weight), (plain.text_weight, plain.audio_weight));
            close(sums.metrics.real_loss_sum, plain.metrics.real_loss_sum);
            let counts = |m: &personaplex::loss::LossMetrics| {
                (m.real_count, m.pad_count, m.predicted_pad, m.context_frames, m.audio_counts.clone())
            };
            assert_eq!(counts(&sums.metrics), counts(&plain.metrics));
            for (a, b) in sums.metrics.audio_loss_sums.iter().zip(&plain.metrics.audio_loss_sums) {
                close(*a, *b);
            }
            let without = lm.losses(&codes, &weights, slice_rows)?;
            close(without.text_sum, sums.text_sum);
        }
    }
    Ok(())
}

#[test]
fn adapters_gather_f32_gradients_on_a_bf16_model() -> Outcome {
    let lm = adapted(false, Kind::BFloat16)?;
    let Case { codes, weights, scale } = case(&lm)?;
    lm.backward(&codes, &weights, scale, &PassOptions::default())?;
    let found = gradients(&lm);
    let exact = adapted(false, Kind::Float)?;
    exact.backward(&codes, &weights, scale, &PassOptions::default())?;
    for ((name, found), (_, wanted)) in found.iter().zip(gradients(&exact)) {
        assert_eq!(found.kind(), Kind::Float);
        let error = (found - &wanted).norm().double_value(&[]) / wanted.norm().double_value(&[]);
        assert!(error < 0.15, "{name}: {error}");
    }
    Ok(())
}

#[test]
fn the_divergence_from_the_base_is_zero_at_the_start_and_pulls_back_later() -> Outcome {
    let mut fresh = base(Kind::Float)?;
    fresh.add_lora(&LoraConfig { rank: 3, ..LoraConfig::default() }, 1)?;
    let Case { codes, weights, .. } = case(&fresh)?;
    let options = PassOptions { kl_base_weight: 1.0, ..PassOptions::default() };
    let only_kl = LossScale { text: 0.0, audio: 0.0, kl: 1.0 / weights.text_frames() };
    let sums = fresh.backward(&codes, &weights, only_kl, &options)?;
    assert!(sums.kl_sum.abs() < 1e-4, "{}", sums.kl_sum);
    let lm = adapted(true, Kind::Float)?;
    let before = lm.backward(&codes, &weights, only_kl, &options)?.kl_sum;
    assert!(before > 1e-3, "{before}");
    tch::no_grad(|| {
        for (mut param, (_, gradient)) in lm.trainable().into_iter().zip(gradients(&lm)) {
            let _ = param.tensor.g_sub_(&(gradient * 0.05));
        }
    });
    let after = lm.backward(&codes, &weights, only_kl, &options)?.kl_sum;
    assert!(after < before, "{after} is not below {before}");
    Ok(())
}

#[test]
fn noise_on_the_inputs_changes_the_loss_a_little_and_only_when_asked_for() -> Outcome {
    let lm = adapted(true, Kind::Float)?;
    let Case { codes, weights, scale } = case(&lm)?;
    let loss = |alpha| {
        let options = PassOptions { neftune_alpha: alpha, ..PassOptions::default() };
        lm.backward(&codes, &weights, scale, &options).map(|s| s.text_sum)
    };
    let (plain, again, noisy) = (loss(0.0)?, loss(0.0)?, loss(5.0)?);
    assert_eq!(plain, again);
    assert!(noisy != plain && (noisy / plain - 1.0).abs() < 0.5, "{noisy} beside {plain}");
    Ok(())
}

#[test]
fn a_batch_without_targets_leaves_zero_gradients() -> Outcome {
    let lm = adapted(true, Kind::Float)?;
    let size = case(&lm)?.codes.size();
    let codes = Tensor::full(&size[..], -1, (Kind::Int64, Device::Cpu));
    let weights =
        LossWeights::new(&codes, lm.config(), &vec![0; size[0] as usize], None, &LossSettings::default())?;
    let scale = LossScale { text: 0.0, audio: 0.0, kl: 0.0 };
    let sums = lm.backward(&codes, &weights, scale, &PassOptions::default())?;
    assert_eq!((sums.text_sum, sums.audio_sum), (0.0, 0.0));
    for p in lm.trainable() {
        let gradient = p.tensor.grad();
        assert!(!gradient.defined() || gradient.abs().max().double_value(&[]) == 0.0, "{}", p.name);
    }
    Ok(())
}
