//! Streaming generation: greedy ids equal the published package's, in its own order and one call earlier.

mod common;

use common::{Data, Outcome, arrays, assert_close, golden, lm_config, lm_tiny};
use personaplex::{Frame, GenOptions, GenState, Given, Lm, Order, Sampler};
use tch::{Device, Kind, Tensor};

/// Calls of a golden run, batch entry 0. The published package loses the values of its first call, so its call c is
/// frame c - 1 here.
struct Run {
    user: Vec<[i32; 8]>,
    agent: Vec<[i32; 8]>,
    text: Vec<i32>,
    out: Vec<Frame>,
    valid: Vec<bool>,
    hidden: Tensor,
}

impl Run {
    fn open(name: &str, slot: i64) -> Result<Self, Box<dyn std::error::Error>> {
        let data = Data::open(&format!("personaplex/lm_tiny/{name}.safetensors"))?;
        // A set may lack what was never given.
        let ints = |key: &str| -> Vec<i64> {
            let Some(all) = data.maybe(key) else { return Vec::new() };
            let one = all.select(1, slot).contiguous().flatten(0, -1).to_kind(Kind::Int64);
            Vec::try_from(one).expect("flat integers")
        };
        Ok(Self {
            user: arrays(&ints("in_user")),
            agent: arrays(&ints("in_agent")),
            text: ints("in_text").into_iter().map(|t| t as i32).collect(),
            out: arrays(&ints("out")),
            valid: data.ints("out_valid").into_iter().map(|v| v != 0).collect(),
            hidden: data.f32("hidden").select(1, slot),
        })
    }

    fn given(&self, user_call: usize, forced_call: usize) -> Given {
        let forced = |codes: Option<&[i32; 8]>| codes.copied().filter(|c| c[0] >= 0);
        Given {
            user: forced(self.user.get(user_call)),
            text: self.text.get(forced_call).copied().filter(|t| *t >= 0),
            agent: forced(self.agent.get(forced_call)),
        }
    }

    fn calls(&self) -> usize {
        self.user.len()
    }
}

/// Plays a run in the published order from the first call and compares everything it returned.
fn check_reference_order(lm: &Lm, run: &Run) -> Outcome {
    let mut state = GenState::with_options(lm, GenOptions { order: Order::Reference, sample_user: false });
    let mut sampler = Sampler::greedy();
    for call in 1..run.calls() {
        let emitted = lm.step(&mut state, &run.given(call, call), &mut sampler)?;
        assert_eq!(emitted.is_some(), run.valid[call], "call {call}");
        if let Some(e) = emitted {
            assert_eq!(e.frame, run.out[call], "call {call}");
        }
        let hidden = state.hidden().expect("fed").reshape([-1]);
        assert_close(&format!("hidden of call {call}"), &hidden, &run.hidden.get(call as i64 - 1), 5e-5);
    }
    Ok(())
}

/// Plays a run in the early order after `prefix` prefilled frames: the same frames, one call earlier.
fn check_early_order(lm: &Lm, run: &Run, prefix: usize) -> Outcome {
    let mut state = GenState::new(lm);
    let prompt: Vec<Frame> = (1..=prefix)
        .map(|call| {
            let mut frame = [run.text[call]; 17];
            frame[1..9].copy_from_slice(&run.agent[call]);
            frame[9..].copy_from_slice(&run.user[call]);
            frame
        })
        .collect();
    lm.prefill(&mut state, &prompt)?;
    let mut sampler = Sampler::greedy();
    let mut compared = 0;
    for call in prefix + 1..run.calls() {
        assert_eq!(state.next_frame(), call - 1);
        assert_eq!(state.forced_frame(), call);
        let emitted =
            lm.step(&mut state, &run.given(call, call + 1), &mut sampler)?.expect("early order emits");
        assert_eq!(emitted.index, call - 1);
        if let Some(wanted) = run.out.get(call + 1) {
            assert_eq!(emitted.frame, *wanted, "frame {}", emitted.index);
            compared += 1;
        }
    }
    assert!(compared > 30);
    Ok(())
}

#[test]
fn plain_generation_gives_the_published_ids() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_plain", 0)?);
    check_reference_order(&lm, &run)?;
    check_early_order(&lm, &run, 0)
}

#[test]
fn a_second_conversation_gives_its_own_ids() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_batch2", 1)?);
    check_reference_order(&lm, &run)?;
    check_early_order(&lm, &run, 0)
}

#[test]
fn a_prompt_stepped_or_prefilled_gives_the_published_ids() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_prompt", 0)?);
    let data = Data::open("personaplex/lm_tiny/gen_prompt.safetensors")?;
    let prompt = data.ints("n_prompt_calls")[0] as usize;
    check_reference_order(&lm, &run)?;
    // The first call of the prompt is lost; the others are frames 0..prompt - 2.
    check_early_order(&lm, &run, prompt - 1)
}

#[test]
fn injections_are_delayed_like_every_other_frame() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_injection", 0)?);
    let data = Data::open("personaplex/lm_tiny/gen_injection.safetensors")?;
    let prompt = data.ints("n_prompt_calls").first().map_or(29, |n| *n as usize);
    check_reference_order(&lm, &run)?;
    check_early_order(&lm, &run, prompt - 1)
}

#[test]
fn a_full_ring_sees_its_whole_window() -> Outcome {
    // The published package loses the oldest key once its ring is full: its window 8 is a correct window 7.
    let mut config = lm_config("personaplex/lm_tiny", "config.json")?;
    let run = Run::open("gen_ctx8", 0)?;
    let weights = golden("personaplex/lm_tiny/weights.safetensors");
    config.context = 7;
    check_reference_order(&Lm::from_file(&weights, &config, Device::Cpu, Kind::Float)?, &run)?;
    config.context = 8;
    let lm = Lm::from_file(&weights, &config, Device::Cpu, Kind::Float)?;
    let mut state = GenState::with_options(&lm, GenOptions { order: Order::Reference, sample_user: false });
    let mut first_difference = None;
    for call in 1..run.calls() {
        lm.step(&mut state, &run.given(call, call), &mut Sampler::greedy())?;
        let hidden = state.hidden().expect("fed").reshape([-1]);
        let difference = (hidden - run.hidden.get(call as i64 - 1)).abs().max().double_value(&[]);
        if difference > 5e-5 && first_difference.is_none() {
            first_difference = Some(call);
        }
    }
    assert_eq!(first_difference, Some(8));
    Ok(())
}

#[test]
fn the_stream_equals_the_whole_forward_and_eight_steps_equal_sixteen() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_plain", 0)?);
    let play = |sample_user| -> Result<Vec<Frame>, Box<dyn std::error::Error>> {
        let mut state = GenState::with_options(&lm, GenOptions { order: Order::Early, sample_user });
        let mut frames = Vec::new();
        for call in 1..run.calls() {
            let e = lm.step(&mut state, &run.given(call, call + 1), &mut Sampler::greedy())?.expect("early");
            frames.push(e.frame);
        }
        Ok(frames)
    };
    let frames = play(false)?;
    assert_eq!(frames, play(true)?);
    // Teacher forcing on what was generated predicts exactly that.
    let t = frames.len() as i64;
    let flat: Vec<i64> = frames.iter().flatten().map(|v| i64::from(*v)).collect();
    let codes = Tensor::from_slice(&flat).view([1, t, 17]).transpose(1, 2).contiguous();
    let out = tch::no_grad(|| lm.forward_train(&codes))?;
    common::assert_equal("text", &out.text_logits.argmax(-1, false), &codes.select(1, 0));
    let agent = out.audio_logits.argmax(-1, false).narrow(1, 0, 8);
    let wanted = codes.narrow(1, 1, 8);
    common::assert_equal("first codebook", &agent.select(1, 0), &wanted.select(1, 0));
    let tail = |x: &Tensor| x.narrow(1, 1, 7).narrow(2, 0, t - 1);
    common::assert_equal("delayed codebooks", &tail(&agent), &tail(&wanted));
    Ok(())
}

#[test]
fn a_copied_prefix_continues_like_the_original() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_prompt", 0)?);
    let mut original = GenState::new(&lm);
    lm.prefill(&mut original, &run.out[2..12])?;
    let mut copy = original.duplicate();
    let mut a = Sampler::new(Default::default(), 5);
    let mut b = a.clone();
    for call in 40..60 {
        let given = Given { user: Some(run.user[call]), ..Given::default() };
        assert_eq!(lm.step(&mut original, &given, &mut a)?, lm.step(&mut copy, &given, &mut b)?);
    }
    Ok(())
}

#[test]
fn missing_user_codes_and_late_prompts_are_refused() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_plain", 0)?);
    let mut state = GenState::new(&lm);
    assert!(lm.step(&mut state, &Given::default(), &mut Sampler::greedy()).is_err());
    lm.step(&mut state, &run.given(1, 2), &mut Sampler::greedy())?;
    assert!(lm.prefill(&mut state, &run.out[2..4]).is_err());
    let bad = Given { user: Some([lm.config().card as i32; 8]), ..Given::default() };
    assert!(lm.step(&mut state, &bad, &mut Sampler::greedy()).is_err());
    Ok(())
}
