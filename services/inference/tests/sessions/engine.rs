use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use domain::session::SamplingParams;
use futures::FutureExt;
use inference::InferenceError;
use inference::engine::{
    AgentFrame, Conversation, Engine, ModelSource, OpenRequest, Pace, Pushed, StoredVoice,
};
use store::models::NewModel;
use streams::inject_queue::{InjectEvent, InjectItem, InjectKind, QueueLimits, When};
use streams::{Codes, PromptCodes};
use weights::{ModelConfig, VoiceFile};

use crate::house::{Files, settings, tone};

pub fn codes() -> Result<PromptCodes> {
    let config = ModelConfig::preset("tiny")?;
    Ok(PromptCodes { silence: config.silence_codes, sine: config.sine_codes })
}

pub fn request(files: &Files, model: &NewModel, seed: u64) -> Result<OpenRequest> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(OpenRequest {
        model: ModelSource {
            id: model.id,
            dir: files.artifacts.local_path(&model.prefix)?,
            files: model.files.iter().map(|f| (name(&f.path), f.sha256.clone())).collect(),
            codes: codes()?,
        },
        adapter: None,
        voice: Some(StoredVoice { sha256: "tone".into(), file: Arc::new(VoiceFile::Samples(tone())) }),
        prompt_tokens: (10..30).collect(),
        sampling: SamplingParams { seed: Some(seed), ..SamplingParams::default() },
        limits: QueueLimits::default(),
        pace: Pace::Audio,
        resume: None,
    })
}

pub async fn open(engine: &Engine, request: OpenRequest) -> Result<Conversation> {
    Ok(engine.open(request, engine.reserve().expect("a free place")).await?)
}

pub fn pcm(frame: usize) -> Vec<f32> {
    (0..1_920).map(|n| ((frame * 1_920 + n) as f32 * 0.021).sin() * 0.4).collect()
}

pub fn item(id: &str, tokens: Vec<i32>, when: When) -> InjectItem {
    let kind = InjectKind::Context;
    InjectItem {
        id: id.into(),
        kind,
        tokens,
        when,
        deadline_frames: Some(5),
        ttl_frames: None,
        supersedes: None,
    }
}

pub async fn frame(conversation: &mut Conversation, pcm: Vec<f32>) -> Result<AgentFrame, InferenceError> {
    assert_eq!(conversation.push(pcm), Pushed::Taken { dropped: 0 });
    conversation.next().await.unwrap_or(Err(InferenceError::NoConversation))
}

pub async fn talk(
    conversation: &mut Conversation,
    frames: std::ops::Range<usize>,
) -> Result<Vec<AgentFrame>> {
    let mut out = Vec::new();
    for i in frames {
        out.push(frame(conversation, pcm(i)).await?);
    }
    Ok(out)
}

pub fn tokens(frames: &[AgentFrame]) -> Vec<(Option<i32>, Codes)> {
    frames.iter().map(|f| (f.text, f.agent)).collect()
}

pub async fn free(engine: &Engine, places: usize) -> Result<()> {
    let all = async || engine.free_places() == places;
    testkit::wait_until("the place is free", Duration::from_secs(5), all).await
}

#[tokio::test]
async fn an_injection_takes_exactly_its_frames_with_silence_and_without_text() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    for when in [When::Immediate, When::Pause] {
        let mut conversation = open(&engine, request(&files, &model, 3)?).await?;
        let mut frames = talk(&mut conversation, 0..10).await?;
        let injected: Vec<i32> = (100..112).collect();
        assert_eq!(conversation.injector().offer(item("a", injected.clone(), when)).await, Ok(0));
        frames.extend(talk(&mut conversation, 10..60).await?);
        let events: Vec<_> = frames.iter().flat_map(|f| f.events.clone()).collect();
        let [
            InjectEvent::Started { frame: start, .. },
            InjectEvent::Completed { frame_start, frame_end, .. },
        ] = events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!(start, frame_start);
        assert_eq!(frame_end - frame_start, injected.len() as u64);
        if when == When::Immediate {
            // Frame 10 is already decided when user frame 10 arrives.
            assert_eq!(*start, 11);
        }
        let silence = codes()?.silence;
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(frame.index, i as u64);
            assert_eq!(frame.pcm.len(), 1_920);
            let inside = (*frame_start..*frame_end).contains(&frame.index);
            assert_eq!((frame.hidden, frame.text.is_none()), (inside, inside), "frame {i}");
            assert_eq!(frame.agent == silence, inside, "frame {i}: {:?}", frame.agent);
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_same_seed_and_input_give_the_same_tokens_also_after_and_beside_other_sessions() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let fresh = {
        let engine = Engine::start(&settings(&[])?)?;
        let mut conversation = open(&engine, request(&files, &model, 42)?).await?;
        tokens(&talk(&mut conversation, 0..40).await?)
    };
    let engine = Engine::start(&settings(&[])?)?;
    let mut other = request(&files, &model, 9)?;
    other.prompt_tokens = (200..300).collect();
    other.voice =
        Some(StoredVoice { sha256: "other".into(), file: Arc::new(VoiceFile::Samples(pcm(3).repeat(20))) });
    let mut dirty = open(&engine, other.clone()).await?;
    assert_eq!(dirty.injector().offer(item("d", (50..70).collect(), When::Immediate)).await, Ok(0));
    talk(&mut dirty, 100..130).await?;
    drop(dirty);
    let mut beside = open(&engine, other).await?;
    let mut conversation = open(&engine, request(&files, &model, 42)?).await?;
    let mut again = Vec::new();
    for i in 0..40 {
        let (mine, _) = tokio::join!(frame(&mut conversation, pcm(i)), frame(&mut beside, pcm(500 + i)));
        again.push(mine?);
    }
    assert_eq!(tokens(&again), fresh);
    let mut conversation = open(&engine, request(&files, &model, 43)?).await?;
    assert_ne!(tokens(&talk(&mut conversation, 0..40).await?), fresh, "another seed");
    Ok(())
}

#[tokio::test]
async fn temperature_zero_is_greedy_whatever_the_seed_and_wild_parameters_are_clamped() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut runs = Vec::new();
    for seed in [1, 2] {
        let mut greedy = request(&files, &model, seed)?;
        greedy.sampling.text_temperature = 0.0;
        greedy.sampling.audio_temperature = -3.0;
        let mut conversation = open(&engine, greedy).await?;
        runs.push(tokens(&talk(&mut conversation, 0..20).await?));
    }
    assert_eq!(runs[0], runs[1]);
    let mut wild = request(&files, &model, 1)?;
    wild.sampling = SamplingParams {
        text_temperature: f64::NAN,
        text_topk: 0,
        audio_temperature: f64::INFINITY,
        audio_topk: u32::MAX,
        seed: None,
    };
    talk(&mut open(&engine, wild).await?, 0..5).await?;
    Ok(())
}

#[tokio::test]
async fn the_prompt_is_voice_silence_text_silence_and_may_be_empty() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let whole = open(&engine, request(&files, &model, 1)?).await?;
    assert_eq!(whole.prompt_frames(), 25 + 6 + 20 + 6);
    let mut bare = request(&files, &model, 1)?;
    bare.voice = None;
    bare.prompt_tokens.clear();
    let mut bare = open(&engine, bare).await?;
    assert_eq!(bare.prompt_frames(), 0);
    assert_eq!(talk(&mut bare, 0..5).await?.len(), 5);
    Ok(())
}

#[tokio::test]
async fn a_dropped_conversation_or_a_dropped_wait_for_one_gives_its_place_back() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[("MAX_SESSIONS", "2")])?)?;
    let first = open(&engine, request(&files, &model, 1)?).await?;
    let mut second = open(&engine, request(&files, &model, 1)?).await?;
    assert!(engine.reserve().is_none());
    drop(first);
    free(&engine, 1).await?;
    let mut long = request(&files, &model, 1)?;
    long.prompt_tokens = vec![20; 2_500];
    let opening = engine.open(long, engine.reserve().expect("free"));
    assert!(opening.now_or_never().is_none(), "the command is sent and given up");
    free(&engine, 1).await?;
    // A frame of the wrong length ends the conversation, not the engine.
    assert!(matches!(frame(&mut second, vec![0.0; 7]).await, Err(InferenceError::Engine(_))));
    free(&engine, 2).await?;
    assert!(matches!(frame(&mut second, pcm(0)).await, Err(InferenceError::NoConversation)));
    assert!(engine.is_alive());
    Ok(())
}

#[tokio::test]
async fn an_unused_model_makes_room_and_a_used_one_does_not() -> Result<()> {
    let files = Files::new()?;
    let (one, two) = (files.model(1)?, files.model(2)?);
    let engine = Engine::start(&settings(&[("MAX_MODELS", "1")])?)?;
    let mut first = open(&engine, request(&files, &one, 1)?).await?;
    let place = engine.reserve().expect("free");
    let refused = engine.open(request(&files, &two, 1)?, place).await.err().expect("no room");
    assert!(matches!(refused, InferenceError::NoModelRoom { limit: 1 }), "{refused}");
    talk(&mut first, 0..2).await?;
    drop(first);
    let mut second = open(&engine, request(&files, &two, 1)?).await?;
    talk(&mut second, 0..2).await?;
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_not_the_registered_one_is_refused() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut request = request(&files, &model, 1)?;
    request.model.files[0].1 = "0".repeat(64);
    let refused = engine.open(request, engine.reserve().expect("free")).await.err().expect("damaged");
    assert!(matches!(refused, InferenceError::Model { .. }), "{refused}");
    free(&engine, 4).await
}

#[tokio::test]
async fn a_conversation_longer_than_the_window_goes_on_and_injections_stay_exact() -> Result<()> {
    let files = Files::new()?;
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.context = 100;
    let model = files.model_of(&config, 1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut nearly_full = request(&files, &model, 1)?;
    nearly_full.prompt_tokens = vec![20; 62];
    let mut conversation = open(&engine, nearly_full).await?;
    assert_eq!(conversation.prompt_frames(), 99);
    let mut hidden = Vec::new();
    for round in 0..5 {
        let offered =
            conversation.injector().offer(item(&round.to_string(), vec![50; 20], When::Immediate)).await;
        assert_eq!(offered, Ok(0));
        for frame in talk(&mut conversation, round * 60..(round + 1) * 60).await? {
            assert_eq!(frame.hidden, frame.text.is_none());
            assert_eq!(frame.hidden, frame.agent == codes()?.silence, "frame {}", frame.index);
            hidden.extend(frame.hidden.then_some(frame.index));
        }
    }
    // An offer before user frame f starts on frame f + 1; the first call cannot force a frame at all.
    let wanted: Vec<u64> =
        (0..5).flat_map(|r| (0..20).map(move |k| r * 60 + k + 1 + u64::from(r == 0))).collect();
    assert_eq!(hidden, wanted);
    Ok(())
}
