//! Layers whose frozen weights are brought in when they are used give the same bits as resident ones.

mod common;
mod training_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Outcome, assert_equal, golden, lm_config};
use personaplex::{
    BatchOptions, HostLayers, LayerSource, Lm, LmBatch, LoraConfig, PassOptions, PersonaplexError, Trained,
};
use tch::{Device, Kind, Tensor};
use training_common::{Case, adapted_as, base, case, gradients, logits};

/// As several devices keep a layer: cut into equal shards, joined on the way back. Counts what it is asked for.
struct Shards {
    world: i64,
    layers: Vec<Vec<Tensor>>,
    fetched: Arc<AtomicUsize>,
}

impl LayerSource for Shards {
    fn keep(&mut self, layer: usize, flat: Tensor) -> Result<(), PersonaplexError> {
        assert_eq!((layer, flat.size()[0] % self.world), (self.layers.len(), 0));
        self.layers.push(flat.chunk(self.world, 0).iter().map(Tensor::copy).collect());
        Ok(())
    }

    fn fetch(&self, layer: usize, into: &Tensor) -> Result<(), PersonaplexError> {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        into.shallow_clone().copy_(&Tensor::cat(&self.layers[layer], 0));
        Ok(())
    }
}

/// What cannot be brought.
struct Broken;

impl LayerSource for Broken {
    fn keep(&mut self, _: usize, _: Tensor) -> Result<(), PersonaplexError> {
        Ok(())
    }

    fn fetch(&self, _: usize, _: &Tensor) -> Result<(), PersonaplexError> {
        Err(PersonaplexError::Streamed { what: "this fetch" })
    }
}

fn config() -> LoraConfig {
    LoraConfig { rank: 3, skip_depformer: false, embeddings: true, ..LoraConfig::default() }
}

fn shards(world: i64) -> (Box<Shards>, Arc<AtomicUsize>) {
    let fetched = Arc::new(AtomicUsize::new(0));
    (Box::new(Shards { world, layers: Vec::new(), fetched: Arc::clone(&fetched) }), fetched)
}

#[test]
fn losses_gradients_and_states_are_those_of_resident_layers_bit_for_bit() -> Outcome {
    for kind in [Kind::Float, Kind::BFloat16] {
        let resident = adapted_as(&config(), kind)?;
        let Case { codes, weights, mut scale } = case(&resident)?;
        scale.kl = 1.0 / weights.text_frames();
        let options = PassOptions { slice_rows: 13, kl_base_weight: 0.5, ..PassOptions::default() };
        let sums = resident.backward(&codes, &weights, scale, &options)?;
        let wanted = gradients(&resident);
        let states = tch::no_grad(|| resident.hidden_states(&codes))?;
        let without = resident.losses(&codes, &weights, 13)?;
        let (three, _) = shards(3);
        let sources: [(Box<dyn LayerSource>, i64); 2] = [(Box::<HostLayers>::default(), 1), (three, 3)];
        for (source, multiple) in sources {
            let lm = adapted_as(&config(), kind)?.stream_layers(source, multiple)?;
            for _ in 0..2 {
                assert_eq!(lm.backward(&codes, &weights, scale, &options)?, sums);
                for ((name, found), (_, wanted)) in gradients(&lm).iter().zip(&wanted) {
                    assert_equal(name, found, wanted);
                }
                assert_eq!(lm.losses(&codes, &weights, 13)?, without);
                let found = tch::no_grad(|| lm.hidden_states(&codes))?;
                assert_equal("hidden states", &found, &states);
            }
        }
    }
    Ok(())
}

#[test]
fn a_pass_fetches_each_layer_twice_but_the_last_and_only_one_layer_is_resident() -> Outcome {
    let (source, fetched) = shards(2);
    let resident = adapted_as(&config(), Kind::Float)?;
    let layers = resident.config().num_layers as usize;
    let sizes: Vec<i64> = resident.layer_weights(0)?.iter().map(|w| w.numel() as i64).collect();
    assert_eq!(sizes.iter().sum::<i64>(), resident.layer_elements());
    let wanted: Vec<Vec<Tensor>> =
        (0..layers).map(|l| resident.layer_weights(l)).collect::<Result<_, _>>()?;

    let lm = adapted_as(&config(), Kind::Float)?.stream_layers(source, 2)?;
    let Case { codes, weights, scale } = case(&lm)?;
    lm.backward(&codes, &weights, scale, &PassOptions::default())?;
    assert_eq!(fetched.load(Ordering::Relaxed), 2 * layers - 1);
    let places: Vec<_> = (0..layers)
        .map(|l| Ok(lm.layer_weights(l)?.iter().map(Tensor::data_ptr).collect::<Vec<_>>()))
        .collect::<Outcome<_>>()?;
    assert!(places.iter().all(|p| *p == places[0]), "all layers share one scratch");
    for (l, wanted) in wanted.iter().enumerate() {
        for (found, wanted) in lm.layer_weights(l)?.iter().zip(wanted) {
            assert_equal("weights", found, wanted);
        }
    }
    Ok(())
}

#[test]
fn a_model_is_read_straight_into_its_source() -> Outcome {
    let path = golden("finetune/c_lora/base_personaplex_names.safetensors");
    let config = lm_config("finetune/c_lora", "expected.json")?;
    let place = (Device::Cpu, Kind::Float);
    let lm = Lm::from_file_streamed(&path, &config, place, Box::<HostLayers>::default(), 8)?;
    let resident = base(Kind::Float)?;
    let case = case(&lm)?;
    for (found, wanted) in logits(&lm, &case)?.iter().zip(logits(&resident, &case)?) {
        assert_equal("logits", found, &wanted);
    }
    Ok(())
}

#[test]
fn what_needs_resident_layers_is_refused() -> Outcome {
    let mut lm = adapted_as(&config(), Kind::Float)?.stream_layers(Box::<HostLayers>::default(), 1)?;
    let Case { codes, weights, scale } = case(&lm)?;
    let streamed = |e: PersonaplexError| matches!(e, PersonaplexError::Streamed { .. });
    let keeping = PassOptions { recompute_layers: 0, ..PassOptions::default() };
    assert!(lm.backward(&codes, &weights, scale, &keeping).is_err_and(streamed));
    assert!(lm.forward_train(&codes).is_err_and(streamed), "its graph would see overwritten weights");
    assert!(LmBatch::new(&lm, 1, BatchOptions::default()).is_err_and(streamed));
    lm.remove_lora();
    assert!(lm.train_all().is_err_and(streamed));
    assert_eq!(lm.trained(), &Trained::Nothing);
    assert!(lm.stream_layers(Box::<HostLayers>::default(), 1).is_err_and(streamed));
    let mut whole = base(Kind::Float)?;
    whole.train_all()?;
    let refused = whole.stream_layers(Box::<HostLayers>::default(), 1);
    assert!(refused.is_err_and(|e| matches!(e, PersonaplexError::WholeModel { .. })));
    Ok(())
}

#[test]
fn a_source_that_fails_ends_the_pass_with_its_error() -> Outcome {
    let lm = adapted_as(&config(), Kind::Float)?.stream_layers(Box::new(Broken), 1)?;
    let Case { codes, weights, scale } = case(&lm)?;
    let failed = lm.backward(&codes, &weights, scale, &PassOptions::default());
    assert!(failed.is_err_and(|e| e.to_string().contains("this fetch")));
    assert!(lm.losses(&codes, &weights, 8).is_err());
    Ok(())
}
