//! Conversations in a batch: what each of them says depends on nothing but itself.

use std::path::PathBuf;

use personaplex::{BatchOptions, Emitted, Frame, Given, Lm, LmBatch, Order, Prompt, Sampler, Sampling};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use weights::ModelConfig;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Rows that the test's model sees: few, so that every test goes round the ring.
const WINDOW: i64 = 24;

/// A small model with random weights; the folder goes with the value.
struct Model {
    lm: Lm,
    _dir: tempfile::TempDir,
}

fn model() -> Outcome<Model> {
    nn::device::set_threads(1);
    let dir = tempfile::tempdir()?;
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.context = WINDOW;
    let path: PathBuf = dir.path().join("model");
    weights::init_model_with(&path, &config, weights::preset_tokenizer("tiny")?, 5)?;
    Ok(Model { lm: Lm::load(&path, Device::Cpu, Kind::Float)?, _dir: dir })
}

fn codes(rng: &mut ChaCha8Rng, lm: &Lm) -> [i32; 8] {
    std::array::from_fn(|_| rng.random_range(0..lm.config().card as i32))
}

fn frame(rng: &mut ChaCha8Rng, lm: &Lm) -> Frame {
    let mut frame = [rng.random_range(0..lm.config().text_card as i32); 17];
    frame[1..9].copy_from_slice(&codes(rng, lm));
    frame[9..].copy_from_slice(&codes(rng, lm));
    frame
}

/// What one conversation is given, from its prompt to its last frame.
struct Script {
    prompt: Vec<Frame>,
    seed: u64,
    given: Vec<Given>,
}

impl Script {
    fn random(rng: &mut ChaCha8Rng, lm: &Lm, frames: usize) -> Self {
        let prompt = (0..rng.random_range(0..9)).map(|_| frame(rng, lm)).collect();
        let given = (0..frames).map(|_| {
            let forced = rng.random_bool(0.2);
            Given {
                user: Some(codes(rng, lm)),
                text: forced.then(|| rng.random_range(0..lm.config().text_card as i32)),
                agent: (forced && rng.random_bool(0.5)).then(|| codes(rng, lm)),
            }
        });
        let given = given.collect();
        Self { seed: rng.random(), given, prompt }
    }

    /// Greedy for even seeds.
    fn sampler(&self) -> Sampler {
        if self.seed.is_multiple_of(2) {
            Sampler::greedy()
        } else {
            Sampler::new(Sampling::default(), self.seed)
        }
    }

    fn open(&self, lm: &Lm, batch: &mut LmBatch, slot: usize, order: Order) -> Outcome {
        let prefix = lm.prefill(&Prompt::of_frames(self.prompt.clone()), order)?;
        Ok(lm.open(batch, slot, &prefix, self.sampler())?)
    }

    /// Everything it says in a batch of its own.
    fn alone(&self, lm: &Lm, options: BatchOptions) -> Outcome<Vec<Emitted>> {
        let mut batch = LmBatch::new(lm, 1, options)?;
        self.open(lm, &mut batch, 0, options.order)?;
        let mut out = Vec::new();
        for given in &self.given {
            out.extend(lm.step(&mut batch, &[Some(*given)])?[0]);
        }
        Ok(out)
    }
}

#[test]
fn sessions_that_join_pause_and_leave_at_random_say_what_they_say_alone() -> Outcome {
    let Model { lm, _dir } = model()?;
    for seed in 0..3 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut batch = LmBatch::new(&lm, 3, BatchOptions::default())?;
        let mut running: [Option<(Script, Vec<Emitted>)>; 3] = [None, None, None];
        let mut finished = 0;
        for _tick in 0..120 {
            for (slot, place) in running.iter_mut().enumerate() {
                if place.is_none() && rng.random_bool(0.3) {
                    let frames = rng.random_range(1..40);
                    let script = Script::random(&mut rng, &lm, frames);
                    script.open(&lm, &mut batch, slot, Order::Early)?;
                    *place = Some((script, Vec::new()));
                }
            }
            let given: Vec<Option<Given>> = running
                .iter()
                .map(|place| {
                    let (script, out) = place.as_ref()?;
                    rng.random_bool(0.8).then(|| script.given[out.len()])
                })
                .collect();
            let emitted = lm.step(&mut batch, &given)?;
            for (slot, (place, emitted)) in running.iter_mut().zip(emitted).enumerate() {
                let Some((script, out)) = place else { continue };
                out.extend(emitted);
                if out.len() == script.given.len() || rng.random_bool(0.01) {
                    let wanted = script.alone(&lm, BatchOptions::default())?;
                    assert_eq!(*out, wanted[..out.len()], "batch {seed}");
                    finished += 1;
                    *place = None;
                    // Some slots are taken over without having been closed.
                    if rng.random_bool(0.5) {
                        batch.close(slot);
                    }
                }
            }
        }
        assert!(finished > 5, "{finished} conversations");
    }
    Ok(())
}

#[test]
fn the_early_order_says_the_same_one_call_sooner() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..4 {
        let mut script = Script::random(&mut rng, &lm, 45);
        // The early order decides the first frame before anything can be forced into it.
        script.given[0] = Given { text: None, agent: None, ..script.given[0] };
        let early = script.alone(&lm, BatchOptions::default())?;
        // What is forced at call t belongs to frame t + 1 there and to frame t here.
        let moved = std::iter::once(Given { user: script.given[0].user, ..Given::default() }).chain(
            script.given.windows(2).map(|w| Given { user: w[1].user, text: w[0].text, agent: w[0].agent }),
        );
        let late = Script { given: moved.collect(), prompt: script.prompt.clone(), seed: script.seed };
        let late = late.alone(&lm, BatchOptions { order: Order::Reference, ..BatchOptions::default() })?;
        let prompt = script.prompt.len();
        let late: Vec<Emitted> = late.into_iter().filter(|e| e.index >= prompt).collect();
        assert_eq!(early[..late.len()], late[..]);
        assert_eq!(late.len() + 1, early.len());
    }
    Ok(())
}

#[test]
fn eight_steps_say_what_sixteen_say() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    for _ in 0..3 {
        let script = Script::random(&mut rng, &lm, 30);
        let eight = script.alone(&lm, BatchOptions::default())?;
        let sixteen = script.alone(&lm, BatchOptions { sample_user: true, ..BatchOptions::default() })?;
        // The last frame's user codes are only partly decided on both sides.
        for (a, b) in eight.iter().zip(&sixteen) {
            assert_eq!((a.index, &a.frame[..9]), (b.index, &b.frame[..9]));
        }
    }
    Ok(())
}

#[test]
fn self_play_samples_both_sides_and_never_leaves_a_value_open() -> Outcome {
    let Model { lm, _dir } = model()?;
    let options = BatchOptions { sample_user: true, ..BatchOptions::default() };
    let mut batch = LmBatch::new(&lm, 1, options)?;
    lm.open(
        &mut batch,
        0,
        &lm.prefill(&Prompt::default(), Order::Early)?,
        Sampler::new(Sampling::default(), 3),
    )?;
    for _ in 0..40 {
        let e = lm.step(&mut batch, &[Some(Given::default())])?[0].expect("early order");
        assert!(e.frame.iter().all(|id| *id >= 0), "{:?}", e.frame);
    }
    Ok(())
}

#[test]
fn a_prompt_prefilled_leaves_what_stepping_through_it_leaves() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    for length in [1, 2, 7, 15] {
        let prompt: Vec<Frame> = (0..length).map(|_| frame(&mut rng, &lm)).collect();
        let prefix = lm.prefill(&Prompt::of_frames(prompt.clone()), Order::Early)?;
        let mut batch =
            LmBatch::new(&lm, 1, BatchOptions { order: Order::Reference, ..BatchOptions::default() })?;
        lm.open(&mut batch, 0, &lm.prefill(&Prompt::default(), Order::Reference)?, Sampler::greedy())?;
        let given = |frame: &Frame| Given {
            user: Some(std::array::from_fn(|k| frame[9 + k])),
            text: Some(frame[0]),
            agent: Some(std::array::from_fn(|k| frame[1 + k])),
        };
        for frame in &prompt {
            lm.step(&mut batch, &[Some(given(frame))])?;
        }
        // One more call feeds the last row of the prompt.
        lm.step(&mut batch, &[Some(Given { user: Some(codes(&mut rng, &lm)), ..Given::default() })])?;
        let (stepped, whole) = (batch.hidden().expect("stepped"), prefix.hidden().expect("fed"));
        let difference = (stepped - whole).abs().max().double_value(&[]);
        assert!(difference < 2e-5, "{length} frames: {difference:e}");
    }
    Ok(())
}

#[test]
fn a_used_slot_gives_the_very_bits_of_a_fresh_one() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    let (first, second) = (Script::random(&mut rng, &lm, 60), Script::random(&mut rng, &lm, 30));
    let mut used = LmBatch::new(&lm, 1, BatchOptions::default())?;
    first.open(&lm, &mut used, 0, Order::Early)?;
    for given in &first.given {
        lm.step(&mut used, &[Some(*given)])?;
    }
    let mut fresh = LmBatch::new(&lm, 1, BatchOptions::default())?;
    for batch in [&mut used, &mut fresh] {
        second.open(&lm, batch, 0, Order::Early)?;
    }
    for given in &second.given {
        assert_eq!(lm.step(&mut used, &[Some(*given)])?, lm.step(&mut fresh, &[Some(*given)])?);
        assert_eq!(used.hidden().expect("stepped"), fresh.hidden().expect("stepped"));
        assert_eq!(used.text_logits().expect("stepped"), fresh.text_logits().expect("stepped"));
    }
    Ok(())
}

#[test]
fn one_prefix_starts_many_conversations() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(15);
    let script = Script { prompt: vec![frame(&mut rng, &lm); 6], ..Script::random(&mut rng, &lm, 12) };
    let prefix = lm.prefill(&Prompt::of_frames(script.prompt.clone()), Order::Early)?;
    let wanted = script.alone(&lm, BatchOptions::default())?;
    let mut batch = LmBatch::new(&lm, 2, BatchOptions::default())?;
    for slot in 0..2 {
        lm.open(&mut batch, slot, &prefix, script.sampler())?;
    }
    for (given, wanted) in script.given.iter().zip(wanted) {
        assert_eq!(lm.step(&mut batch, &[Some(*given); 2])?, vec![Some(wanted); 2]);
    }
    assert!(prefix.bytes() > 0);
    Ok(())
}

#[test]
fn a_stream_past_its_window_equals_the_whole_forward_with_teacher_forcing() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let mut script = Script::random(&mut rng, &lm, 2 * WINDOW as usize + 5);
    script.prompt.clear();
    script.seed = 0;
    script.given.iter_mut().for_each(|g| (g.text, g.agent) = (None, None));
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    script.open(&lm, &mut batch, 0, Order::Early)?;
    let (mut frames, mut logits) = (Vec::new(), Vec::new());
    for given in &script.given {
        frames.extend(lm.step(&mut batch, &[Some(*given)])?[0].map(|e| e.frame));
        logits.push(batch.text_logits().expect("stepped").shallow_clone());
    }
    let t = frames.len() as i64;
    let flat: Vec<i64> = frames.iter().flatten().map(|v| i64::from(*v)).collect();
    let codes = Tensor::from_slice(&flat).view([1, t, 17]).transpose(1, 2).contiguous();
    let out = tch::no_grad(|| lm.forward_train(&codes))?;
    // The call that brings frame i decides the text of frame i + 1.
    let streamed = Tensor::cat(&logits, 0).narrow(0, 0, t - 1);
    let whole = out.text_logits.squeeze_dim(0).narrow(0, 1, t - 1);
    let difference = (streamed - whole).abs().max().double_value(&[]);
    assert!(difference < 2e-4, "{difference:e}");
    let agent = out.audio_logits.argmax(-1, false).narrow(1, 0, 8);
    let wanted = codes.narrow(1, 1, 8);
    assert_eq!(agent.select(1, 0), wanted.select(1, 0));
    let tail = |x: &Tensor| x.narrow(1, 1, 7).narrow(2, 0, t - 1);
    assert_eq!(tail(&agent), tail(&wanted));
    Ok(())
}

#[test]
fn what_is_refused_changes_nothing() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let script = Script::random(&mut rng, &lm, 10);
    let wanted = script.alone(&lm, BatchOptions::default())?;
    let mut batch = LmBatch::new(&lm, 2, BatchOptions::default())?;
    script.open(&lm, &mut batch, 1, Order::Early)?;
    let good = script.given[0];
    let card = lm.config().card as i32;
    let bad = [
        vec![None],
        vec![Some(good), Some(good)],
        vec![None, Some(Given::default())],
        vec![None, Some(Given { user: Some([card; 8]), ..good })],
        vec![None, Some(Given { user: Some([-2; 8]), ..good })],
        vec![None, Some(Given { text: Some(lm.config().text_card as i32), ..good })],
        vec![None, Some(Given { agent: Some([card; 8]), ..good })],
    ];
    for given in bad {
        assert!(lm.step(&mut batch, &given).is_err(), "{given:?}");
    }
    for (given, wanted) in script.given.iter().zip(wanted) {
        assert_eq!(lm.step(&mut batch, &[None, Some(*given)])?, [None, Some(wanted)]);
    }
    assert!(
        lm.open(&mut batch, 2, &lm.prefill(&Prompt::default(), Order::Early)?, Sampler::greedy()).is_err()
    );
    let other = lm.prefill(&Prompt::default(), Order::Reference)?;
    assert!(lm.open(&mut batch, 0, &other, Sampler::greedy()).is_err());
    assert_eq!(batch.free_slot(), Some(0));
    Ok(())
}

#[test]
fn a_prompt_longer_than_the_window_is_refused_and_one_that_fills_it_is_not() -> Outcome {
    let Model { lm, _dir } = model()?;
    let mut rng = ChaCha8Rng::seed_from_u64(18);
    let mut prompt = |n: i64| Prompt::of_frames((0..n).map(|_| frame(&mut rng, &lm)).collect());
    assert!(lm.prefill(&prompt(WINDOW - 1), Order::Early).is_ok());
    let Err(error) = lm.prefill(&prompt(WINDOW), Order::Early) else { panic!("accepted") };
    assert!(error.to_string().contains(&format!("window of {WINDOW}")), "{error}");
    Ok(())
}

#[test]
fn graphs_on_the_cpu_are_refused() -> Outcome {
    let Model { lm, _dir } = model()?;
    let Err(error) = LmBatch::new(&lm, 1, BatchOptions { graphs: true, ..BatchOptions::default() }) else {
        panic!("accepted")
    };
    assert!(error.to_string().contains("CUDA"), "{error}");
    Ok(())
}
