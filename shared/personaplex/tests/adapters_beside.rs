//! Adapters beside each other on one base: every conversation says what it says with its adapter alone.

use personaplex::{
    Adapter, BatchOptions, Beside, Frame, Given, Lm, LmBatch, LoraConfig, Order, PersonaplexError, Prompt,
    Sampler, Sampling,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind};
use weights::ModelConfig;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

struct Model {
    dir: tempfile::TempDir,
}

impl Model {
    fn new() -> Outcome<Self> {
        nn::device::set_threads(1);
        let dir = tempfile::tempdir()?;
        let config = ModelConfig::preset("tiny")?;
        let path = dir.path().join("model");
        weights::init_model_with(&path, &config, weights::preset_tokenizer("tiny")?, 5)?;
        Ok(Self { dir })
    }

    fn load(&self) -> Outcome<Lm> {
        Ok(Lm::load(&self.dir.path().join("model"), Device::Cpu, Kind::Float)?)
    }

    /// An adapter that changes what is said.
    fn adapter(&self, rank: i64, skip_depformer: bool, seed: u64) -> Outcome<Adapter> {
        let mut lm = self.load()?;
        lm.add_lora(&LoraConfig { rank, skip_depformer, ..LoraConfig::default() }, seed)?;
        tch::manual_seed(seed as i64);
        for mut param in lm.trainable().into_iter().filter(|p| p.is_b()) {
            tch::no_grad(|| param.tensor.copy_(&(param.tensor.randn_like() * 0.2)));
        }
        Ok(lm.adapter()?)
    }
}

fn prompt() -> Prompt {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    Prompt::of_frames((0..9).map(|_| std::array::from_fn(|_| rng.random_range(0..50))).collect())
}

fn open(lm: &Lm, batch: &mut LmBatch, slot: usize, adapter: Option<&Beside>) -> Outcome {
    let prefix = lm.prefill_with(&prompt(), Order::Early, adapter)?;
    Ok(lm.open(batch, slot, &prefix, Sampler::new(Sampling::default(), 3))?)
}

/// Frames of all slots; every slot hears the same.
fn talk(lm: &Lm, batch: &mut LmBatch, frames: u64) -> Outcome<Vec<Vec<Frame>>> {
    let mut said = vec![Vec::new(); batch.len()];
    for frame in 0..frames {
        let mut rng = ChaCha8Rng::seed_from_u64(frame);
        let user = Some(std::array::from_fn(|_| rng.random_range(0..64)));
        let given = vec![Some(Given { user, ..Given::default() }); batch.len()];
        for (said, emitted) in said.iter_mut().zip(lm.step(batch, &given)?) {
            said.extend(emitted.map(|e| e.frame));
        }
    }
    Ok(said)
}

#[test]
fn two_adapters_and_the_base_in_one_batch_say_what_each_says_alone() -> Outcome {
    let model = Model::new()?;
    let adapters = [model.adapter(4, true, 1)?, model.adapter(30, false, 2)?];
    let mut alone = Vec::new();
    for adapter in [None, Some(&adapters[0]), Some(&adapters[1])] {
        let mut lm = model.load()?;
        if let Some(adapter) = adapter {
            lm.apply_adapter(adapter)?;
        }
        let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
        open(&lm, &mut batch, 0, None)?;
        alone.extend(talk(&lm, &mut batch, 30)?);
    }
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "the adapters change something");

    let mut lm = model.load()?;
    let mut batch = LmBatch::new(&lm, 3, BatchOptions::default())?;
    let first = lm.put_beside(&adapters[0])?;
    let second = lm.put_beside(&adapters[1])?;
    open(&lm, &mut batch, 0, None)?;
    open(&lm, &mut batch, 1, Some(&first))?;
    open(&lm, &mut batch, 2, Some(&second))?;
    assert_eq!(talk(&lm, &mut batch, 30)?, alone);

    // One goes, the other stays; then another takes its ranks.
    lm.remove_beside(&first);
    open(&lm, &mut batch, 0, Some(&second))?;
    open(&lm, &mut batch, 1, None)?;
    open(&lm, &mut batch, 2, Some(&second))?;
    let said = talk(&lm, &mut batch, 30)?;
    assert_eq!((&said[0], &said[1], &said[2]), (&alone[2], &alone[0], &alone[2]));
    let first = lm.put_beside(&adapters[0])?;
    open(&lm, &mut batch, 1, Some(&first))?;
    open(&lm, &mut batch, 2, Some(&second))?;
    open(&lm, &mut batch, 0, None)?;
    assert_eq!(talk(&lm, &mut batch, 30)?, alone);

    lm.remove_beside(&first);
    lm.remove_beside(&second);
    for slot in 0..3 {
        open(&lm, &mut batch, slot, None)?;
    }
    assert!(talk(&lm, &mut batch, 30)?.iter().all(|said| *said == alone[0]));
    Ok(())
}

#[test]
fn what_cannot_lie_beside_others_is_refused() -> Outcome {
    let model = Model::new()?;
    let mut lm = model.load()?;
    lm.add_lora(&LoraConfig { embeddings: true, ..LoraConfig::default() }, 1)?;
    let whole = lm.adapter()?;
    assert!(matches!(lm.put_beside(&whole), Err(PersonaplexError::AdapterPresent)));
    lm.remove_lora();
    assert!(matches!(lm.put_beside(&whole), Err(PersonaplexError::AdapterTables)));
    let plain = model.adapter(4, true, 1)?;
    lm.put_beside(&plain)?;
    assert!(matches!(lm.apply_adapter(&plain), Err(PersonaplexError::AdapterPresent)));
    Ok(())
}
