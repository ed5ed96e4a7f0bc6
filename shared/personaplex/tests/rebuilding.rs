//! A conversation put together again from its rows goes on as if nothing had happened.

use personaplex::{
    BatchOptions, Frame, Given, Lm, LmBatch, Order, PersonaplexError, Prompt, Sampler, Sampling,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind};
use weights::ModelConfig;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn model(context: i64) -> Outcome<(Lm, tempfile::TempDir)> {
    nn::device::set_threads(1);
    let dir = tempfile::tempdir()?;
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.context = context;
    let path = dir.path().join("model");
    weights::init_model_with(&path, &config, weights::preset_tokenizer("tiny")?, 5)?;
    Ok((Lm::load(&path, Device::Cpu, Kind::Float)?, dir))
}

fn prompt(rng: &mut ChaCha8Rng, frames: usize) -> Prompt {
    Prompt::of_frames((0..frames).map(|_| std::array::from_fn(|_| rng.random_range(0..50))).collect())
}

/// Frames of a conversation with user codes from `seed`.
fn talk(lm: &Lm, batch: &mut LmBatch, frames: std::ops::Range<u64>) -> Outcome<Vec<Frame>> {
    let mut out = Vec::new();
    for frame in frames {
        let mut rng = ChaCha8Rng::seed_from_u64(frame);
        let user = Some(std::array::from_fn(|_| rng.random_range(0..64)));
        let emitted = lm.step(batch, &[Some(Given { user, ..Given::default() })])?;
        out.extend(emitted[0].map(|e| e.frame));
    }
    Ok(out)
}

#[test]
fn rows_fed_some_at_a_time_go_on_like_the_conversation_they_come_from() -> Outcome {
    let (lm, _dir) = model(400)?;
    let prompt = prompt(&mut ChaCha8Rng::seed_from_u64(1), 12);
    let sampler = Sampler::new(Sampling::default(), 7);
    let prefix = lm.prefill(&prompt, Order::Early)?;
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    lm.open(&mut batch, 0, &prefix, sampler.clone())?;
    talk(&lm, &mut batch, 0..90)?;
    let (complete, open) = batch.rows(0)?;
    let mut again = prefix.fork();
    for rows in complete[prefix.fed()..].chunks(37) {
        lm.extend(&mut again, rows)?;
    }
    again.set_open(&lm, open)?;
    assert_eq!((again.fed(), again.frames()), (complete.len(), 102));
    let mut other = LmBatch::new(&lm, 1, BatchOptions { rows: Some(150), ..BatchOptions::default() })?;
    lm.open(&mut other, 0, &again, sampler)?;
    assert_eq!(talk(&lm, &mut other, 90..130)?, talk(&lm, &mut batch, 90..130)?);
    assert_eq!(other.rows(0)?, batch.rows(0)?);
    assert_eq!(prefix.fed(), 13, "the one it was forked from is as it was");
    Ok(())
}

#[test]
fn a_batch_of_few_rows_sees_that_many_and_refuses_a_longer_prefix() -> Outcome {
    let ((wide, _a), (narrow, _b)) = (model(400)?, model(30)?);
    let prompt = prompt(&mut ChaCha8Rng::seed_from_u64(2), 9);
    let mut said = Vec::new();
    for (lm, rows) in [(&wide, Some(30)), (&narrow, None)] {
        let mut batch = LmBatch::new(lm, 1, BatchOptions { rows, ..BatchOptions::default() })?;
        assert_eq!(batch.window(), 30);
        lm.open(&mut batch, 0, &lm.prefill(&prompt, Order::Early)?, Sampler::greedy())?;
        said.push(talk(lm, &mut batch, 0..80)?);
    }
    assert_eq!(said[0], said[1]);
    let long = wide.prefill(&self::prompt(&mut ChaCha8Rng::seed_from_u64(3), 40), Order::Early)?;
    let mut batch = LmBatch::new(&wide, 1, BatchOptions { rows: Some(30), ..BatchOptions::default() })?;
    assert!(wide.open(&mut batch, 0, &long, Sampler::greedy()).is_err());
    let mut full = narrow.prefill(&prompt, Order::Early)?;
    let refused = narrow.extend(&mut full, &[[3; 17]; 21]);
    assert!(matches!(refused, Err(PersonaplexError::PromptTooLong { rows: 31, window: 30 })));
    assert!(narrow.extend(&mut full, &[[-2; 17]]).is_err(), "a row that is not complete");
    Ok(())
}
