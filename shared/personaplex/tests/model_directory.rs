//! From a random tiny model to a trained adapter, a saved adapter and a merged model that speaks the same.

mod common;

use std::time::Instant;

use common::Outcome;
use personaplex::loss::{LossSettings, LossWeights, masked_loss};
use personaplex::{
    Adapter, AdapterMeta, BatchOptions, Frame, Given, Lm, LmBatch, LoraConfig, Mimi, Order, PersonaplexError,
    Prefix, Prompt, Sampler, Sampling,
};
use tch::{Device, Kind, Tensor};
use weights::lora::{LoraError, merge_model};
use weights::{ModelDir, init_model, sha256_file, verify};

fn random_codes(lm: &Lm, t: i64) -> Tensor {
    tch::manual_seed(3);
    let text = Tensor::randint(lm.config().text_card, [2, 1, t], (Kind::Int64, Device::Cpu));
    let audio = Tensor::randint(lm.config().card, [2, 16, t], (Kind::Int64, Device::Cpu));
    Tensor::cat(&[text, audio], 1)
}

fn loss(lm: &Lm, codes: &Tensor) -> Result<Tensor, PersonaplexError> {
    let weights = LossWeights::new(codes, lm.config(), &[5, 0], None, &LossSettings::default())?;
    let sums = masked_loss(&lm.forward_train(codes)?, codes, &weights);
    Ok(&sums.text_sum / sums.text_weight + &sums.audio_sum / sums.audio_weight)
}

/// A few steps of plain gradient descent on the adapters.
fn train(lm: &Lm, codes: &Tensor, steps: usize) -> Result<(f64, f64), PersonaplexError> {
    let (mut first, mut last) = (f64::NAN, f64::NAN);
    for step in 0..steps {
        let loss = loss(lm, codes)?;
        last = loss.double_value(&[]);
        if step == 0 {
            first = last;
        }
        loss.backward();
        tch::no_grad(|| {
            for p in lm.trainable() {
                let (mut tensor, mut grad) = (p.tensor.shallow_clone(), p.tensor.grad());
                let _ = tensor.g_sub_(&(&grad * 0.05));
                let _ = grad.zero_();
            }
        });
    }
    Ok((first, last))
}

#[test]
fn a_trained_adapter_survives_saving_and_merging() -> Outcome {
    nn::device::set_threads(1);
    let root = tempfile::tempdir()?;
    let (base, saved, merged) =
        (root.path().join("base"), root.path().join("adapter"), root.path().join("merged"));
    init_model(&base, "tiny", 0)?;
    let before = sha256_file(&ModelDir::new(&base).lm())?;
    let mut lm = Lm::load(&base, Device::Cpu, Kind::Float)?;
    let codes = random_codes(&lm, 40);
    lm.add_lora(&LoraConfig { rank: 4, ..LoraConfig::default() }, 0)?;
    let (first, last) = train(&lm, &codes, 12)?;
    assert!(last < first, "the loss fell from {first} to {last}");

    let meta = AdapterMeta { base_sha256: before.clone(), step: 12, dataset_hash: "d".into() };
    lm.adapter()?.save(&saved, lm.config(), &meta)?;
    let loaded = Adapter::load(&saved, lm.config())?;
    assert_eq!((loaded.meta(), loaded.config()), (&meta, lm.lora_config().expect("added")));
    let mut again = Lm::load(&base, Device::Cpu, Kind::Float)?;
    again.set_adapter(&loaded)?;
    let (a, b) = tch::no_grad(|| Ok::<_, PersonaplexError>((loss(&lm, &codes)?, loss(&again, &codes)?)))?;
    assert_eq!(a.double_value(&[]), b.double_value(&[]));

    let report = merge_model(&base, &saved, &merged)?;
    assert_eq!((report.merged, &report.base_sha256), (9, &before));
    assert_eq!(sha256_file(&ModelDir::new(&base).lm())?, before, "the base is only read");
    verify(&merged)?;
    let whole = Lm::load(&merged, Device::Cpu, Kind::Float)?;
    let (wanted, found) = tch::no_grad(|| {
        Ok::<_, PersonaplexError>((lm.forward_train(&codes)?, whole.forward_train(&codes)?))
    })?;
    // The merged weights are stored in bf16.
    let scale = wanted.text_logits.std(true).double_value(&[]);
    common::assert_close("merged text logits", &found.text_logits, &wanted.text_logits, 0.1 * scale);

    let other = root.path().join("other");
    init_model(&other, "tiny", 1)?;
    let refused = merge_model(&other, &saved, &root.path().join("x"));
    assert!(matches!(refused, Err(LoraError::WrongBase { .. })));
    assert!(!root.path().join("x").exists());
    Ok(())
}

#[test]
fn training_leaves_everything_but_the_adapters_untouched() -> Outcome {
    nn::device::set_threads(1);
    let root = tempfile::tempdir()?;
    let base = root.path().join("base");
    init_model(&base, "tiny", 0)?;
    let mut lm = Lm::load(&base, Device::Cpu, Kind::Float)?;
    let codes = random_codes(&lm, 20);
    let before = tch::no_grad(|| lm.forward_train(&codes))?;
    lm.add_lora(&LoraConfig { rank: 2, ..LoraConfig::default() }, 0)?;
    assert_eq!(lm.trainable().len(), 18);
    train(&lm, &codes, 2)?;
    lm.remove_lora();
    let after = tch::no_grad(|| lm.forward_train(&codes))?;
    common::assert_equal("audio logits", &after.audio_logits, &before.audio_logits);
    common::assert_equal("text logits", &after.text_logits, &before.text_logits);
    Ok(())
}

#[test]
fn a_tiny_conversation_runs_much_faster_than_real_time() -> Outcome {
    nn::device::set_threads(1);
    let root = tempfile::tempdir()?;
    let base = root.path().join("base");
    init_model(&base, "tiny", 0)?;
    let (lm, mimi) = (Lm::load(&base, Device::Cpu, Kind::Float)?, Mimi::load(&base, Device::Cpu)?);
    let config = ModelDir::new(&base).load_config()?;
    let mut frame: Frame = [config.lm.existing_text_padding_id; 17];
    frame[1..9].copy_from_slice(&config.silence_codes);
    frame[9..].copy_from_slice(&config.sine_codes);
    let prefix = lm.prefill(&Prompt::of_frames(vec![frame; 60]), Order::Early)?;
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    lm.open(&mut batch, 0, &prefix, Sampler::new(Sampling::default(), 1))?;
    let (mut enc, mut dec) = (mimi.new_encoder(), mimi.new_decoder());
    let frames = 50;
    let mut codes_seen = std::collections::BTreeSet::new();
    let start = Instant::now();
    for f in 0..frames {
        let pcm: Vec<f32> = (0..1920).map(|i| ((f * 1920 + i) as f32 * 0.03).sin() * 0.3).collect();
        let user = mimi.encode_frame(&mut enc, &pcm)?;
        let given = Given { user: Some(user), ..Given::default() };
        let emitted = lm.step(&mut batch, &[Some(given)])?[0].expect("early order");
        assert_eq!(emitted.frame[9..], user);
        let agent: [i32; 8] = emitted.frame[1..9].try_into()?;
        codes_seen.insert(agent);
        let wave = mimi.decode_frame(&mut dec, &agent)?;
        assert!(wave.len() == 1920 && wave.iter().all(|v| v.abs() < 1.0));
    }
    let per_frame = start.elapsed() / frames as u32;
    assert!(codes_seen.len() > 10, "codes vary");
    assert!(per_frame.as_millis() < 80, "{per_frame:?} per frame");
    Ok(())
}

#[test]
fn models_and_states_can_be_moved_to_the_thread_that_owns_them() {
    fn movable<T: Send>() {}
    movable::<Lm>();
    movable::<Mimi>();
    movable::<LmBatch>();
    movable::<Prefix>();
    movable::<personaplex::EncState>();
    movable::<personaplex::DecState>();
    movable::<Sampler>();
    movable::<Adapter>();
}
