//! A tiny model, a batch for it, and the gradients that a pass leaves.
#![allow(dead_code, reason = "each test binary uses its own part")]

use personaplex::loss::{LossSettings, LossWeights, masked_loss};
use personaplex::{Lm, LoraConfig, LossScale, Param};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

use crate::common::{Data, Outcome, assert_close, golden, lm_config};

pub fn base(kind: Kind) -> Outcome<Lm> {
    let config = lm_config("finetune/c_lora", "expected.json")?;
    let path = golden("finetune/c_lora/base_personaplex_names.safetensors");
    Ok(Lm::from_file(&path, &config, Device::Cpu, kind)?)
}

/// A model whose adapters have a non-zero B.
pub fn adapted(skip_depformer: bool, kind: Kind) -> Outcome<Lm> {
    adapted_as(&LoraConfig { rank: 3, skip_depformer, ..LoraConfig::default() }, kind)
}

/// As [`adapted`] with any adapter.
pub fn adapted_as(config: &LoraConfig, kind: Kind) -> Outcome<Lm> {
    let mut lm = base(kind)?;
    lm.add_lora(config, 1)?;
    perturb(&lm, |p| p.is_b());
    Ok(lm)
}

/// Adds the same noise of +-0.1 every time, on every device: libtorch's own generator is shared by the tests of a process.
pub fn perturb(lm: &Lm, which: impl Fn(&Param) -> bool) {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    tch::no_grad(|| {
        for mut param in lm.trainable().into_iter().filter(which) {
            let values: Vec<f32> = (0..param.tensor.numel()).map(|_| rng.random_range(-0.1..0.1)).collect();
            let noise = Tensor::from_slice(&values).view(param.tensor.size().as_slice());
            let _ = param.tensor.g_add_(&noise.to_device(param.tensor.device()));
        }
    });
}

pub struct Case {
    pub codes: Tensor,
    pub weights: LossWeights,
    pub scale: LossScale,
}

pub fn case(lm: &Lm) -> Outcome<Case> {
    let codes = Data::open("finetune/c_lora/io.safetensors")?.i64("codes").to_device(lm.device());
    let settings =
        LossSettings { text_padding_weight: 0.3, epad_weight: Some(0.7), ..LossSettings::default() };
    let (b, t) = (codes.size()[0], codes.size()[2]);
    let context = Tensor::zeros([b, t], (Kind::Bool, lm.device()));
    let _ = context.narrow(1, t / 2, 2).fill_(1);
    let prompts: Vec<i64> = (0..b).map(|i| 2 * i).collect();
    let weights = LossWeights::new(&codes, lm.config(), &prompts, Some(&context), &settings)?;
    let scale = LossScale { text: 1.0 / weights.text_sum(), audio: 0.5 / weights.audio_sum(), kl: 0.0 };
    Ok(Case { codes, weights, scale })
}

pub fn gradients(lm: &Lm) -> Vec<(String, Tensor)> {
    let take = |p: Param| {
        let gradient = p.tensor.grad().copy();
        let _ = p.tensor.grad().zero_();
        (p.name, gradient)
    };
    lm.trainable().into_iter().map(take).collect()
}

pub fn assert_same(found: &[(String, Tensor)], wanted: &[(String, Tensor)], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        let largest = wanted.abs().max().double_value(&[]);
        assert!(largest > 0.0, "{name} has a gradient");
        assert_close(name, found, wanted, tolerance * largest + 1e-9);
    }
}

/// Gradients of the plain pass: one graph over everything.
pub fn plain_gradients(lm: &Lm, case: &Case) -> Outcome<Vec<(String, Tensor)>> {
    let plain = masked_loss(&lm.forward_train(&case.codes)?, &case.codes, &case.weights);
    (&plain.text_sum * case.scale.text + &plain.audio_sum * case.scale.audio).backward();
    Ok(gradients(lm))
}

/// Takes a step of gradient descent with the gradients there are, and clears them.
pub fn descend(lm: &Lm, rate: f64) {
    let params = lm.trainable();
    tch::no_grad(|| {
        for (mut param, (_, gradient)) in params.into_iter().zip(gradients(lm)) {
            let step = (gradient * rate).to_kind(param.tensor.kind());
            let _ = param.tensor.g_sub_(&step);
        }
    });
}

/// Text and audio logits of the case's codes.
pub fn logits(lm: &Lm, case: &Case) -> Outcome<[Tensor; 2]> {
    let out = tch::no_grad(|| lm.forward_train(&case.codes))?;
    Ok([out.text_logits, out.audio_logits])
}
