//! Full fine-tuning, and embedding tables trained beside adapters.

mod common;
mod training_common;

use common::{Outcome, assert_equal, golden};
use personaplex::{Adapter, AdapterMeta, Lm, LoraConfig, PassOptions, PersonaplexError, Trained};
use tch::{Device, Kind};
use training_common::{
    Case, adapted, adapted_as, assert_same, base, case, descend, gradients, logits, perturb, plain_gradients,
};
use weights::lm_inventory;
use weights::lora::{AdapterFile, Layout, merge_file, whole_meta};

const PASSES: [(usize, i64); 4] = [(0, 1), (1, 7), (usize::MAX, 13), (usize::MAX, 1000)];

fn whole(kind: Kind) -> Outcome<Lm> {
    let mut lm = base(kind)?;
    lm.train_all()?;
    Ok(lm)
}

fn with_tables(kind: Kind) -> Outcome<Lm> {
    let lm = adapted_as(&LoraConfig { rank: 3, embeddings: true, ..LoraConfig::default() }, kind)?;
    // A table equal to the base's would hide that it is not used.
    perturb(&lm, |p| p.name.contains("emb"));
    Ok(lm)
}

#[test]
fn every_pass_gives_every_tensor_of_the_model_its_plain_gradient() -> Outcome {
    for lm in [whole(Kind::Float)?, with_tables(Kind::Float)?] {
        let case = case(&lm)?;
        let wanted = plain_gradients(&lm, &case)?;
        for (recompute_layers, slice_rows) in PASSES {
            let options = PassOptions { recompute_layers, slice_rows, ..PassOptions::default() };
            lm.backward(&case.codes, &case.weights, case.scale, &options)?;
            assert_same(&gradients(&lm), &wanted, 2e-5);
        }
    }
    Ok(())
}

#[test]
fn the_tensors_of_full_fine_tuning_are_those_of_the_checkpoint() -> Outcome {
    let lm = whole(Kind::Float)?;
    assert_eq!(lm.trained(), &Trained::Everything);
    let steps = lm.config().dep_q;
    let mut names = Vec::new();
    let mut elements = 0;
    for param in lm.trainable() {
        elements += param.tensor.numel() as i64;
        let copies = if param.name.contains('*') { steps } else { 1 };
        names.extend((0..copies).map(|s| param.name.replace('*', &s.to_string())));
    }
    let inventory = lm_inventory(lm.config());
    assert_eq!(elements, inventory.iter().map(|s| s.shape.iter().product::<i64>()).sum::<i64>());
    let mut wanted: Vec<String> = inventory.into_iter().map(|s| s.name).collect();
    names.sort();
    wanted.sort();
    assert_eq!(names, wanted);
    Ok(())
}

#[test]
fn gradients_of_a_bf16_model_are_those_of_the_f32_model_within_its_precision() -> Outcome {
    let (lm, exact) = (whole(Kind::BFloat16)?, whole(Kind::Float)?);
    let Case { codes, weights, scale } = case(&lm)?;
    for lm in [&lm, &exact] {
        lm.backward(&codes, &weights, scale, &PassOptions::default())?;
    }
    for ((name, found), (_, wanted)) in gradients(&lm).into_iter().zip(gradients(&exact)) {
        assert_eq!(found.kind(), Kind::BFloat16);
        let error = (found - &wanted).norm().double_value(&[]) / wanted.norm().double_value(&[]);
        assert!(error < 0.15, "{name}: {error}");
    }
    Ok(())
}

#[test]
fn steps_against_the_gradient_lower_the_loss() -> Outcome {
    for (lm, rate) in
        [(whole(Kind::Float)?, 0.1), (whole(Kind::BFloat16)?, 0.1), (with_tables(Kind::Float)?, 0.5)]
    {
        let Case { codes, weights, scale } = case(&lm)?;
        let loss = |lm: &Lm| -> Outcome<f64> {
            let sums = lm.losses(&codes, &weights, 64)?;
            Ok(sums.text_sum * scale.text + sums.audio_sum * scale.audio)
        };
        let before = loss(&lm)?;
        for _ in 0..5 {
            lm.backward(&codes, &weights, scale, &PassOptions::default())?;
            descend(&lm, rate);
        }
        let after = loss(&lm)?;
        assert!(after < 0.99 * before, "{before} became {after}");
    }
    Ok(())
}

#[test]
fn a_fully_trained_model_is_saved_whole_and_read_back_bit_for_bit() -> Outcome {
    let root = tempfile::tempdir()?;
    let path = root.path().join("consolidated.safetensors");
    for kind in [Kind::Float, Kind::BFloat16] {
        let lm = whole(kind)?;
        let case = case(&lm)?;
        lm.backward(&case.codes, &case.weights, case.scale, &PassOptions::default())?;
        descend(&lm, 0.1);
        let meta = AdapterMeta { base_sha256: "b".repeat(64), step: 1, dataset_hash: "data".into() };
        lm.save_whole(&path, &meta)?;
        assert_eq!(whole_meta(&path)?, Some(meta));
        let again = Lm::from_file(&path, lm.config(), Device::Cpu, kind)?;
        let base = logits(&base(kind)?, &case)?;
        for ((found, wanted), base) in logits(&again, &case)?.iter().zip(logits(&lm, &case)?).zip(base) {
            assert_equal("logits", found, &wanted);
            assert_ne!(wanted, base, "the step changed something");
        }
    }
    let refused = base(Kind::Float)?.save_whole(&path, &AdapterMeta::default());
    assert!(matches!(refused, Err(PersonaplexError::NotWhole)));
    Ok(())
}

#[test]
fn what_is_trained_is_chosen_once() -> Outcome {
    let mut lm = adapted(true, Kind::Float)?;
    assert!(matches!(lm.train_all(), Err(PersonaplexError::AdapterPresent)));
    lm.remove_lora();
    assert_eq!(lm.trained(), &Trained::Nothing);
    lm.train_all()?;
    let refused = lm.add_lora(&LoraConfig::default(), 1);
    assert!(matches!(refused, Err(PersonaplexError::WholeModel { .. })));
    let Case { codes, weights, scale } = case(&lm)?;
    let options = PassOptions { kl_base_weight: 1.0, ..PassOptions::default() };
    let refused = lm.backward(&codes, &weights, scale, &options);
    assert!(matches!(refused, Err(PersonaplexError::WholeModel { .. })), "there is no base left");
    Ok(())
}

#[test]
fn trained_tables_are_f32_leaves_that_speak_in_the_models_kind() -> Outcome {
    for kind in [Kind::BFloat16, Kind::Float] {
        let mut lm = base(kind)?;
        let case = case(&lm)?;
        let start = logits(&lm, &case)?;
        lm.add_lora(&LoraConfig { rank: 2, embeddings: true, ..LoraConfig::default() }, 1)?;
        for (found, wanted) in logits(&lm, &case)?.iter().zip(&start) {
            assert_equal("fresh", found, wanted);
        }
        let tables: Vec<_> = lm.trainable().into_iter().filter(|p| p.name.contains("emb")).collect();
        assert!(
            tables.iter().all(|p| p.tensor.kind() == Kind::Float && p.tensor.requires_grad() && !p.is_b())
        );
        assert_eq!(tables.len() as i64, 2 * lm.config().n_q + 1);
        drop(lm);
        let mut lm = with_tables(kind)?;
        assert_ne!(logits(&lm, &case)?[0], start[0]);
        for (found, wanted) in nn::without_adapters(|| logits(&lm, &case))?.iter().zip(&start) {
            assert_equal("switched off", found, wanted);
        }
        lm.remove_lora();
        for (found, wanted) in logits(&lm, &case)?.iter().zip(&start) {
            assert_equal("taken off", found, wanted);
        }
    }
    Ok(())
}

#[test]
fn an_adapter_with_tables_comes_back_from_either_layout_and_merges_into_the_same_model() -> Outcome {
    let root = tempfile::tempdir()?;
    let lm = with_tables(Kind::Float)?;
    let case = case(&lm)?;
    let wanted = logits(&lm, &case)?;
    for layout in [Layout::Kyutai, Layout::Peft] {
        let dir = root.path().join(format!("{layout:?}"));
        lm.adapter()?.save_as(layout, &dir, lm.config(), &AdapterMeta::default())?;
        let mut again = base(Kind::Float)?;
        again.set_adapter(&Adapter::load(&dir, again.config())?)?;
        for (found, wanted) in logits(&again, &case)?.iter().zip(&wanted) {
            assert_equal(&format!("{layout:?}"), found, wanted);
        }
        let names = |lm: &Lm| lm.trainable().into_iter().map(|p| p.name).collect::<Vec<_>>();
        assert_eq!(names(&again), names(&lm));
    }
    let file = AdapterFile::open(&root.path().join("Kyutai"), lm.config())?;
    let out = root.path().join("merged.safetensors");
    let model = golden("finetune/c_lora/base_personaplex_names.safetensors");
    let report = merge_file(&model, lm.config(), &file, &out)?;
    assert_eq!(report.embeddings as i64, 2 * lm.config().n_q + 1);
    let merged = Lm::from_file(&out, lm.config(), Device::Cpu, Kind::Float)?;
    for (found, wanted) in logits(&merged, &case)?.iter().zip(&wanted) {
        common::assert_close("merged", found, wanted, 2e-5);
    }
    Ok(())
}
