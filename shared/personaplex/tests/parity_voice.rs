//! Voice prompts: the published package's `.pt` replayed, and clips as codes.

mod common;

use common::{Data, Outcome, arrays, golden, json, lm_tiny};
use personaplex::prompt::{VoicePrompt, system_prompt};
use personaplex::{BatchOptions, Frame, Given, Lm, LmBatch, Order, PersonaplexError, Prompt, Sampler};
use streams::tokens::PromptCodes;
use tch::Kind;
use weights::VoiceFile;

/// The golden run with a prompt: what was given at every call, and what came out.
struct Run {
    user: Vec<[i32; 8]>,
    agent: Vec<[i32; 8]>,
    text: Vec<i32>,
    out: Vec<Frame>,
    /// Calls of the whole prompt, of its voice.
    prompt: usize,
    voice: usize,
}

impl Run {
    fn open(voice: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let data = Data::open("personaplex/lm_tiny/gen_prompt.safetensors")?;
        Ok(Self {
            user: arrays(&data.ints("in_user")),
            agent: arrays(&data.ints("in_agent")),
            text: data.ints("in_text").into_iter().map(|t| t as i32).collect(),
            out: arrays(&data.ints("out")),
            prompt: data.ints("n_prompt_calls")[0] as usize,
            voice,
        })
    }

    /// Tokens between the two silences.
    fn tokens(&self) -> &[i32] {
        &self.text[self.voice + 6..self.prompt - 6]
    }

    fn conversation(&self) -> std::ops::Range<usize> {
        self.prompt..self.user.len()
    }
}

fn stored() -> Result<VoiceFile, Box<dyn std::error::Error>> {
    // As it is served: through the stored form.
    let file = VoiceFile::from_torch(&std::fs::read(golden("personaplex/lm_tiny/voice.pt"))?)?;
    Ok(VoiceFile::from_bytes(&file.to_bytes())?)
}

fn calls(file: &VoiceFile) -> usize {
    match file {
        VoiceFile::Embeddings(e) => e.calls(),
        _ => 0,
    }
}

fn codes() -> Result<PromptCodes, Box<dyn std::error::Error>> {
    let config = json("personaplex/lm_tiny/config.json")?;
    let list = |name: &str| serde_json::from_value(config[name].clone());
    Ok(PromptCodes { silence: list("silence_tokens")?, sine: list("sine_tokens")? })
}

/// Frames that come out of the conversation after `prompt`, in either order, with their numbers.
fn play(
    lm: &Lm,
    run: &Run,
    prompt: &Prompt,
    order: Order,
) -> Result<Vec<(usize, Frame)>, Box<dyn std::error::Error>> {
    let options = BatchOptions { order, graphs: false, ..BatchOptions::default() };
    let mut batch = LmBatch::new(lm, 1, options)?;
    lm.open(&mut batch, 0, &lm.prefill(prompt, order)?, Sampler::greedy())?;
    let mut out = Vec::new();
    for call in run.conversation() {
        let given = Given { user: Some(run.user[call]), ..Given::default() };
        out.extend(lm.step(&mut batch, &[Some(given)])?.into_iter().flatten().map(|e| (e.index, e.frame)));
    }
    Ok(out)
}

/// Call c of the run returned frame c - 2.
fn check(run: &Run, found: &[(usize, Frame)]) {
    let compared: Vec<usize> = found
        .iter()
        .filter_map(|(index, frame)| {
            let wanted = run.out.get(index + 2)?;
            assert_eq!(frame, wanted, "frame {index}");
            Some(index + 2)
        })
        .collect();
    // In the early order the last forced frame does not come out again, and the last frame is one beyond the run.
    assert!(compared.len() + 1 >= run.conversation().len(), "{} compared", compared.len());
    assert_eq!(compared.last(), Some(&(run.out.len() - 1)));
}

#[test]
fn a_replayed_voice_gives_the_published_ids_in_both_orders() -> Outcome {
    let (lm, mimi, file) = (lm_tiny(Kind::Float)?, common::mimi_tiny()?, stored()?);
    let run = Run::open(calls(&file))?;
    let voice = VoicePrompt::new(&file, lm.config(), &mimi, "")?;
    let prompt = system_prompt(Some(&voice), run.tokens(), &codes()?);
    assert_eq!(voice.frames() + prompt.frames.len(), run.prompt - 1, "one call of the prompt is lost");
    // The phases after the voice are those that the published run was given.
    for (i, frame) in prompt.frames.iter().enumerate() {
        let call = run.voice + i;
        assert_eq!(
            (frame[0], &frame[1..9], &frame[9..]),
            (run.text[call], &run.agent[call][..], &run.user[call][..])
        );
    }
    for order in [Order::Reference, Order::Early] {
        check(&run, &play(&lm, &run, &prompt, order)?);
    }
    Ok(())
}

#[test]
fn the_same_clip_as_codes_gives_the_same_ids_without_its_lost_frame() -> Outcome {
    let lm = lm_tiny(Kind::Float)?;
    let run = Run::open(calls(&stored()?))?;
    let voice = VoicePrompt::Codes(run.agent[1..run.voice].into());
    let prompt = system_prompt(Some(&voice), run.tokens(), &codes()?);
    for order in [Order::Reference, Order::Early] {
        check(&run, &play(&lm, &run, &prompt, order)?);
    }
    Ok(())
}

#[test]
fn both_silences_stay_without_text_and_nothing_is_left_without_voice_and_text() -> Outcome {
    let (lm, mimi, codes) = (lm_tiny(Kind::Float)?, common::mimi_tiny()?, codes()?);
    let replayed = VoicePrompt::new(&stored()?, lm.config(), &mimi, "")?;
    assert_eq!(system_prompt(Some(&replayed), &[], &codes).frames.len(), 12);
    let clip = VoicePrompt::Codes(vec![codes.silence; 5].into());
    assert_eq!(system_prompt(Some(&clip), &[], &codes).frames.len(), 5 + 12);
    assert_eq!(system_prompt(None, &[7, 8], &codes).frames.len(), 2 + 12);
    assert!(system_prompt(None, &[], &codes).frames.is_empty());
    Ok(())
}

#[test]
fn a_voice_for_another_model_or_codec_is_refused_by_what_differs() -> Outcome {
    let (lm, mimi, file) = (lm_tiny(Kind::Float)?, common::mimi_tiny()?, stored()?);
    let mut wider = lm.config().clone();
    wider.dim *= 2;
    let error = VoicePrompt::new(&file, &wider, &mimi, "").expect_err("another width");
    assert!(matches!(error, PersonaplexError::VoiceWidth { .. }));
    let told = error.to_string();
    assert!(told.contains(&wider.dim.to_string()) && told.contains(&lm.config().dim.to_string()), "{told}");
    let codes = VoiceFile::Codes { codec_sha256: "aa".into(), frames: vec![[0; 8]; 3] };
    assert!(VoicePrompt::new(&codes, lm.config(), &mimi, "aa").is_ok());
    let error = VoicePrompt::new(&codes, lm.config(), &mimi, "bb").expect_err("another codec");
    assert!(error.to_string().contains("aa") && error.to_string().contains("bb"), "{error}");
    let card = lm.config().card as i32;
    let high = VoiceFile::Codes { codec_sha256: "aa".into(), frames: vec![[card; 8]] };
    assert!(matches!(
        VoicePrompt::new(&high, lm.config(), &mimi, "aa"),
        Err(PersonaplexError::IdRange { .. })
    ));
    let VoiceFile::Embeddings(mut e) = file else { return Err("not embeddings".into()) };
    let last = (e.calls() - 1) % weights::RING_ROWS;
    e.ring[1][last] = i64::from(card) + 1;
    let error = VoicePrompt::new(&VoiceFile::Embeddings(e), lm.config(), &mimi, "");
    assert!(matches!(error, Err(PersonaplexError::IdRange { .. })));
    Ok(())
}

#[test]
fn samples_are_encoded_from_a_fresh_state_and_filled_to_whole_frames() -> Outcome {
    let (lm, mimi) = (lm_tiny(Kind::Float)?, common::mimi_tiny()?);
    let size = mimi.frame_size();
    let samples: Vec<f32> = (0..size * 3 + 1).map(|i| (i as f32 * 0.05).sin() * 0.3).collect();
    let VoicePrompt::Codes(found) =
        VoicePrompt::new(&VoiceFile::Samples(samples.clone()), lm.config(), &mimi, "")?
    else {
        return Err("not codes".into());
    };
    let mut padded = samples;
    padded.resize(size * 4, 0.0);
    let mut state = mimi.new_encoder();
    let wanted = padded.chunks(size).map(|frame| mimi.encode_frame(&mut state, frame));
    assert_eq!(found.to_vec(), wanted.collect::<Result<Vec<_>, _>>()?);
    Ok(())
}
