//! Full forward of the language model against numbers of the published package (golden set lm_tiny).

mod common;

use common::{Data, Outcome, assert_close, assert_equal, lm_tiny};
use personaplex::loss::{LossSettings, LossWeights, masked_loss};
use tch::{Kind, Reduction, Tensor};

fn per_position_loss(logits: &Tensor, targets: &Tensor, mask: &Tensor) -> Tensor {
    let vocabulary = *logits.size().last().expect("not a scalar");
    let flat = logits.reshape([-1, vocabulary]).to_kind(Kind::Float);
    let targets = targets.clamp_min(0).reshape([-1]);
    let loss = flat.cross_entropy_loss::<&Tensor>(&targets, None, Reduction::None, -100, 0.0);
    loss.view(&mask.size()[..]) * mask
}

fn check_forward(lm: &personaplex::Lm, file: &str, logits_tolerance: f64) -> Outcome {
    let data = Data::open(file)?;
    let codes = data.i64("codes");
    let out = tch::no_grad(|| lm.forward_train(&codes))?;
    let hidden = tch::no_grad(|| lm.hidden_states(&codes))?;
    assert_close("hidden", &hidden, &data.f32("hidden"), logits_tolerance / 4.0);
    assert_equal("text_mask", &out.text_mask.unsqueeze(1), &data.i64("text_mask"));
    assert_equal("audio_mask", &out.audio_mask, &data.i64("audio_mask"));
    assert_close("text_logits", &out.text_logits.unsqueeze(1), &data.f32("text_logits"), logits_tolerance);
    // A trimmed set keeps the audio logits of some files only; the losses below are of all of them.
    if let Some(wanted) = data.maybe("audio_logits") {
        assert_close("audio_logits", &out.audio_logits, &wanted, logits_tolerance);
    }
    let streams = codes.size()[1];
    let text = per_position_loss(&out.text_logits, &codes.select(1, 0), &out.text_mask);
    assert_close("text_ce", &text.unsqueeze(1), &data.f32("text_ce"), logits_tolerance);
    let audio = per_position_loss(&out.audio_logits, &codes.narrow(1, 1, streams - 1), &out.audio_mask);
    assert_close("audio_ce", &audio, &data.f32("audio_ce"), logits_tolerance);
    Ok(())
}

#[test]
fn forward_in_f32_equals_the_published_package() -> Outcome {
    check_forward(&lm_tiny(Kind::Float)?, "personaplex/lm_tiny/forward_f32.safetensors", 2e-4)
}

#[test]
fn forward_in_bf16_equals_the_published_package_in_bf16() -> Outcome {
    let data = Data::open("personaplex/lm_tiny/forward_bf16.safetensors")?;
    let lm = lm_tiny(Kind::BFloat16)?;
    let hidden = tch::no_grad(|| lm.hidden_states(&data.i64("codes")))?;
    // The sets' README allows 0.1; with the same rounding points only the order of sums is left.
    assert_close("hidden", &hidden, &data.f32("hidden"), 0.05);
    Ok(())
}

#[test]
fn a_window_shorter_than_the_sequence_limits_attention() -> Outcome {
    let mut config = common::lm_config("personaplex/lm_tiny", "config.json")?;
    config.context = 8;
    let weights = common::golden("personaplex/lm_tiny/weights.safetensors");
    let lm = personaplex::Lm::from_file(&weights, &config, tch::Device::Cpu, Kind::Float)?;
    check_forward(&lm, "personaplex/lm_tiny/forward_ctx8_f32.safetensors", 2e-4)
}

#[test]
fn codes_out_of_range_and_wrong_shapes_are_refused() -> Outcome {
    let lm = lm_tiny(Kind::Float)?;
    let t = Tensor::zeros([1, 17, 4], (Kind::Int64, tch::Device::Cpu));
    assert!(lm.forward_train(&(&t + lm.config().card)).is_err());
    assert!(lm.forward_train(&(&t - 2)).is_err());
    assert!(lm.forward_train(&t.narrow(1, 0, 16)).is_err());
    Ok(())
}

#[test]
fn a_batch_without_targets_has_zero_loss_and_zero_gradient() -> Outcome {
    let mut lm = lm_tiny(Kind::Float)?;
    lm.add_lora(&personaplex::LoraConfig { rank: 2, ..Default::default() }, 1)?;
    let codes = Tensor::full([1, 17, 6], -1, (Kind::Int64, tch::Device::Cpu));
    let weights = LossWeights::new(&codes, lm.config(), &[0], None, &LossSettings::default())?;
    let sums = masked_loss(&lm.forward_train(&codes)?, &codes, &weights);
    assert_eq!((sums.text_weight, sums.audio_weight), (0.0, 0.0));
    let total = &sums.text_sum + &sums.audio_sum;
    assert_eq!(total.double_value(&[]), 0.0);
    total.backward();
    for p in lm.trainable() {
        let gradient = p.tensor.grad();
        assert!(!gradient.defined() || gradient.abs().max().double_value(&[]) == 0.0, "{}", p.name);
    }
    Ok(())
}
