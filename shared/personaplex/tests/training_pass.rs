//! The training pass that recomputes layers and slices heads gives the loss and the gradients of the plain one.

mod common;
mod training_common;

use common::Outcome;
use personaplex::loss::{LossSettings, LossWeights, masked_loss};
use personaplex::{LoraConfig, LossScale, PassOptions};
use tch::{Device, Kind, Tensor};
use training_common::{Case, adapted, assert_same, base, case, gradients};

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
