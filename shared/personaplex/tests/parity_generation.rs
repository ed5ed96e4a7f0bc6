//! Streaming generation: greedy ids equal the published package's, in its own order and one call earlier.

mod common;

use common::{Data, Outcome, arrays, assert_close, golden, lm_config, lm_tiny};
use personaplex::{BatchOptions, Frame, Given, Lm, LmBatch, Order, Prompt, Sampler};
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
    text_logits: Option<Tensor>,
    audio_logits: Option<Tensor>,
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
            text_logits: data.maybe("text_logits").map(|x| x.select(1, slot)),
            audio_logits: data.maybe("audio_logits").map(|x| x.select(1, slot)),
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

    /// The first frames, all values of which were given.
    fn frames(&self, count: usize) -> Vec<Frame> {
        let frame = |call: usize| {
            let mut frame = [self.text[call]; 17];
            frame[1..9].copy_from_slice(&self.agent[call]);
            frame[9..].copy_from_slice(&self.user[call]);
            frame
        };
        (1..=count).map(frame).collect()
    }

    fn calls(&self) -> usize {
        self.user.len()
    }
}

/// A batch in the given order with one greedy conversation per prompt.
fn open(
    lm: &Lm,
    options: BatchOptions,
    prompts: &[Vec<Frame>],
) -> Result<LmBatch, Box<dyn std::error::Error>> {
    let order = options.order;
    let mut batch = LmBatch::new(lm, prompts.len(), options)?;
    for (slot, frames) in prompts.iter().enumerate() {
        let prefix = lm.prefill(&Prompt::of_frames(frames.clone()), order)?;
        lm.open(&mut batch, slot, &prefix, Sampler::greedy())?;
    }
    Ok(batch)
}

const REFERENCE: BatchOptions =
    BatchOptions { order: Order::Reference, sample_user: false, graphs: false, top_k_limit: 1, rows: None };

/// Plays runs side by side in the published order from the first call and compares everything they returned; with 8
/// depformer steps, and with all of them.
fn check_reference_order(lm: &Lm, runs: &[Run]) -> Outcome {
    for sample_user in [false, true] {
        check_reference_steps(lm, runs, BatchOptions { sample_user, ..REFERENCE })?;
    }
    Ok(())
}

fn check_reference_steps(lm: &Lm, runs: &[Run], options: BatchOptions) -> Outcome {
    let mut batch = open(lm, options, &vec![Vec::new(); runs.len()])?;
    for call in 1..runs[0].calls() {
        let given: Vec<_> = runs.iter().map(|run| Some(run.given(call, call))).collect();
        let emitted = lm.step(&mut batch, &given)?;
        for (slot, (run, emitted)) in runs.iter().zip(emitted).enumerate() {
            assert_eq!(emitted.is_some(), run.valid[call], "call {call}");
            if let Some(e) = emitted {
                assert_eq!(e.frame, run.out[call], "call {call}");
            }
            let (slot, row) = (slot as i64, call as i64 - 1);
            let hidden = batch.hidden().expect("stepped").get(slot).flatten(0, -1);
            assert_close(&format!("hidden of call {call}"), &hidden, &run.hidden.get(row), 5e-5);
            if let Some(wanted) = &run.text_logits {
                let found = batch.text_logits().expect("stepped").get(slot);
                assert_close(&format!("text logits of call {call}"), &found, &wanted.get(row), 2e-4);
            }
            // No step is made for codebooks after the last one to be sampled. The reference's last step does not see
            // its first, so its last codebook differs.
            if let (Some(wanted), Some(found)) = (&run.audio_logits, batch.audio_logits()) {
                let steps = found.size()[1].min(wanted.size()[1] - 1);
                let (found, wanted) =
                    (found.get(slot).narrow(0, 0, steps), wanted.get(row).narrow(0, 0, steps));
                assert_close(&format!("audio logits of call {call}"), &found, &wanted, 2e-4);
            }
        }
    }
    Ok(())
}

/// Plays a run in the early order after `prefix` prefilled frames: the same frames, one call earlier.
fn check_early_order(lm: &Lm, run: &Run, prefix: usize) -> Outcome {
    let mut batch = open(lm, BatchOptions::default(), &[run.frames(prefix)])?;
    let mut compared = 0;
    for call in prefix + 1..run.calls() {
        assert_eq!(batch.next_frame(0)?, call - 1);
        assert_eq!(batch.forced_frame(0)?, call);
        let emitted = lm.step(&mut batch, &[Some(run.given(call, call + 1))])?[0].expect("early order emits");
        assert_eq!(emitted.index, call - 1);
        if let Some(wanted) = run.out.get(call + 1) {
            assert_eq!(emitted.frame, *wanted, "frame {}", emitted.index);
            compared += 1;
        }
    }
    assert!(compared > 0 && compared == run.calls() - prefix - 2);
    Ok(())
}

/// Calls of the prompt in a golden run.
fn prompt_calls(name: &str) -> Result<usize, Box<dyn std::error::Error>> {
    Ok(Data::open(&format!("personaplex/lm_tiny/{name}.safetensors"))?.ints("n_prompt_calls")[0] as usize)
}

#[test]
fn plain_generation_gives_the_published_ids() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_plain", 0)?);
    check_early_order(&lm, &run, 0)?;
    check_reference_order(&lm, &[run])
}

#[test]
fn two_conversations_in_one_batch_give_the_published_ids() -> Outcome {
    let lm = lm_tiny(Kind::Float)?;
    check_early_order(&lm, &Run::open("gen_batch2", 1)?, 0)?;
    check_reference_order(&lm, &[Run::open("gen_batch2", 0)?, Run::open("gen_batch2", 1)?])
}

#[test]
fn a_prompt_stepped_or_prefilled_gives_the_published_ids() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_prompt", 0)?);
    // The first call of the prompt is lost; the others are frames 0..prompt - 2.
    check_early_order(&lm, &run, prompt_calls("gen_prompt")? - 1)?;
    check_reference_order(&lm, &[run])
}

#[test]
fn injections_are_delayed_like_every_other_frame() -> Outcome {
    let (lm, run) = (lm_tiny(Kind::Float)?, Run::open("gen_injection", 0)?);
    // Its prompt is that of the run without injections.
    check_early_order(&lm, &run, prompt_calls("gen_prompt")? - 1)?;
    check_reference_order(&lm, &[run])
}

#[test]
fn a_full_ring_sees_its_whole_window() -> Outcome {
    // The published package loses the oldest key once its ring is full: its window w is a correct window w - 1.
    let run = Run::open("gen_ctx8", 0)?;
    let config = lm_config("personaplex/lm_tiny", "config.json")?;
    let weights = golden("personaplex/lm_tiny/weights.safetensors");
    let window = 8;
    let with = |context| {
        let config = weights::LmConfig { context, ..config.clone() };
        Lm::from_file(&weights, &config, Device::Cpu, Kind::Float)
    };
    let (right, wider) = (with(window - 1)?, with(window)?);
    check_reference_order(&right, std::slice::from_ref(&run))?;
    let mut batch = open(&wider, REFERENCE, &[Vec::new()])?;
    for call in 1..=window as usize {
        wider.step(&mut batch, &[Some(run.given(call, call))])?;
        let hidden = batch.hidden().expect("stepped").reshape([-1]);
        let difference = (hidden - run.hidden.get(call as i64 - 1)).abs().max().double_value(&[]);
        assert_eq!(difference > 5e-5, call == window as usize, "call {call}: {difference:e}");
    }
    Ok(())
}
