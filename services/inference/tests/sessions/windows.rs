//! Conversations longer than their window, and ones that go on elsewhere.

use anyhow::{Context, Result};
use inference::InferenceError;
use inference::engine::{AgentFrame, Conversation, Engine, Notice, Rows};
use personaplex::{BatchOptions, Frame, Given, Lm, LmBatch, Order, Prompt, Sampler, Sampling};
use store::models::NewModel;
use streams::inject_queue::{InjectEvent, Rejection, When};
use tch::{Device, Kind};
use weights::ModelConfig;

use crate::engine::{codes, frame, item, open, pcm, request, talk};
use crate::house::{Files, settings};

/// Rows of the tiny model's prompt here: the first row, two seconds of voice, silence, twenty tokens, silence.
const PROMPT: usize = 1 + 25 + 6 + 20 + 6;
const SEED: u64 = 11;

fn model(files: &Files, window: i64) -> Result<NewModel> {
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.context = window;
    files.model_of(&config, 1)
}

/// The frame whose rows are `p + 1` and, for delayed codebooks, `p + 2`: its user codes.
fn user(log: &[Frame], p: usize) -> [i32; 8] {
    std::array::from_fn(|k| log[p + 1 + usize::from(k > 0)][9 + k])
}

/// Steps the language model by itself: behind `start` rows of a log, `open` after them, with the log's user codes.
/// Gives the rows of so many frames.
fn replay(
    (files, model): (&Files, &NewModel),
    start: &[Frame],
    log: &[Frame],
    frames: std::ops::Range<usize>,
) -> Result<Vec<Frame>> {
    let lm = Lm::load(&files.artifacts.local_path(&model.prefix)?, Device::Cpu, Kind::Float)?;
    let mut prefix = lm.prefill(&Prompt::of_frames(Vec::new()), Order::Early)?;
    lm.extend(&mut prefix, &start[1..])?;
    prefix.set_open(&lm, &[log[frames.start + 1]])?;
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    lm.open(&mut batch, 0, &prefix, Sampler::new(Sampling::default(), SEED))?;
    for p in frames {
        let given = Given { user: Some(user(log, p)), ..Given::default() };
        lm.step(&mut batch, &[Some(given)])?;
    }
    Ok(batch.rows(0)?.0[start.len()..].to_vec())
}

fn notices(frames: &[AgentFrame]) -> Vec<(usize, Notice)> {
    let all = frames.iter().enumerate();
    all.flat_map(|(i, frame)| frame.notices.iter().map(move |notice| (i, *notice))).collect()
}

async fn rows(conversation: &Conversation) -> Result<Rows> {
    Ok(conversation.rows(0).await?)
}

#[tokio::test]
async fn after_a_refresh_it_says_what_a_fresh_one_with_that_prompt_and_those_rows_says() -> Result<()> {
    let files = Files::new()?;
    let model = model(&files, 160)?;
    let engine = Engine::start(&settings(&[("REFRESH_ROWS", "40")])?)?;
    let mut conversation = open(&engine, request(&files, &model, SEED)?).await?;
    let said = talk(&mut conversation, 0..330).await?;
    assert!(said.iter().enumerate().all(|(i, f)| f.index == i as u64), "no frame is missing");
    let log = rows(&conversation).await?.complete;
    assert_eq!(log.len(), PROMPT + 330);
    let refreshes = notices(&said);
    assert!(refreshes.len() >= 3, "{refreshes:?}");
    for (i, pair) in refreshes.iter().enumerate() {
        let (at, Notice::WindowRefreshed { rows }) = *pair else { panic!("{pair:?}") };
        let kept = rows - PROMPT;
        assert!((40..60).contains(&kept), "{kept} rows of which 40 were asked for");
        let until = refreshes.get(i + 1).map_or(330, |next| next.0);
        let now = PROMPT + at;
        let start = [&log[..PROMPT], &log[now - kept..now]].concat();
        let to = (now - 1)..(PROMPT + until - 2);
        let wanted = replay((&files, &model), &start, &log, to.clone())?;
        assert_eq!(wanted[1..], log[now + 1..=to.end], "refresh {i} at frame {at}");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_of_thousands_of_frames_keeps_every_frame_and_every_injection_whole() -> Result<()> {
    let files = Files::new()?;
    let model = model(&files, 300)?;
    let engine = Engine::start(&settings(&[("MAX_SESSIONS", "1")])?)?;
    let mut conversation = open(&engine, request(&files, &model, SEED)?).await?;
    let (mut said, mut offered) = (Vec::new(), 0);
    for i in 0..3_150 {
        // Again and again near where the window may end.
        if i % 53 == 52 && i < 3_100 {
            let id = offered.to_string();
            conversation.injector().offer(item(&id, vec![50; 30], When::Immediate)).await?;
            offered += 1;
        }
        said.push(frame(&mut conversation, pcm(i % 97)).await?);
    }
    assert!(said.iter().enumerate().all(|(i, f)| f.index == i as u64));
    assert!(notices(&said).len() > 15);
    let silence = codes()?.silence;
    let mut done = 0;
    for event in said.iter().flat_map(|f| &f.events) {
        if let InjectEvent::Completed { frame_start, frame_end, .. } = event {
            done += 1;
            assert_eq!(frame_end - frame_start, 30);
            let inside = &said[*frame_start as usize..(*frame_end as usize).min(said.len())];
            assert!(inside.iter().all(|f| f.hidden && f.text.is_none() && f.agent == silence));
        }
    }
    assert_eq!(done, offered);
    assert_eq!(said.iter().filter(|f| f.hidden).count(), done * 30);
    Ok(())
}

#[tokio::test]
async fn an_injection_that_would_straddle_the_end_waits_for_the_fresh_window() -> Result<()> {
    let files = Files::new()?;
    let model = model(&files, 300)?;
    let engine = Engine::start(&settings(&[("REFRESH_ROWS", "100")])?)?;
    let mut conversation = open(&engine, request(&files, &model, SEED)?).await?;
    let before = talk(&mut conversation, 0..180).await?;
    assert_eq!(notices(&before), [], "238 of 300 rows");
    conversation.injector().offer(item("a", vec![50; 60], When::Immediate)).await?;
    let after = talk(&mut conversation, 180..260).await?;
    let refreshed = notices(&after).first().context("a refresh")?.0;
    let started = after.iter().position(|f| f.hidden).context("an injection")?;
    assert!(refreshed <= started && started < 6, "refreshed at {refreshed}, started at {started}");
    assert_eq!(after.iter().filter(|f| f.hidden).count(), 60);
    Ok(())
}

#[tokio::test]
async fn slide_is_the_ring_of_the_model_and_stop_announces_its_end() -> Result<()> {
    let files = Files::new()?;
    let model = model(&files, 100)?;
    let engine = Engine::start(&settings(&[("WINDOW_POLICY", "slide")])?)?;
    let mut conversation = open(&engine, request(&files, &model, SEED)?).await?;
    let said = talk(&mut conversation, 0..150).await?;
    assert_eq!(notices(&said), []);
    let log = rows(&conversation).await?.complete;
    let wanted = replay((&files, &model), &log[..PROMPT], &log, PROMPT - 1..PROMPT + 148)?;
    assert_eq!(wanted[1..], log[PROMPT + 1..=PROMPT + 148]);

    let engine = Engine::start(&settings(&[("WINDOW_POLICY", "stop"), ("CACHE_ROWS", "220")])?)?;
    let mut conversation = open(&engine, request(&files, &self::model(&files, 3_000)?, SEED)?).await?;
    let left = 220 - PROMPT;
    let long = conversation.injector().offer(item("a", vec![50; left - 20], When::Immediate)).await;
    assert!(matches!(long, Err(Rejection::TooLong { .. })), "{long:?}");
    let said = talk(&mut conversation, 0..left).await?;
    assert_eq!(notices(&said), [(left - 125, Notice::WindowEnds { frames: 125 })]);
    let end = frame(&mut conversation, pcm(0)).await;
    assert!(matches!(end, Err(InferenceError::WindowEnded)), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn an_interrupted_conversation_goes_on_in_another_engine_with_its_persona_and_numbers() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut conversation = open(&engine, request(&files, &model, SEED)?).await?;
    talk(&mut conversation, 0..40).await?;
    let saved = conversation.rows(0).await?;
    assert_eq!((saved.first, saved.complete.len()), (0, PROMPT + 40));
    let newest = conversation.rows(PROMPT + 30).await?;
    assert_eq!((newest.first, &newest.complete[..]), (PROMPT + 30, &saved.complete[PROMPT + 30..]));
    drop((conversation, engine));

    let engine = Engine::start(&settings(&[])?)?;
    for open_rows in [saved.open.clone(), Vec::new()] {
        let lost = usize::from(open_rows.is_empty());
        let mut request = request(&files, &model, SEED)?;
        request.resume = Some([saved.complete.clone(), open_rows].concat());
        let mut again = open(&engine, request).await?;
        assert_eq!(again.prompt_frames(), PROMPT - 1);
        again.injector().offer(item("a", vec![50; 5], When::Immediate)).await?;
        let said = talk(&mut again, 40..60).await?;
        let first = 40 - lost as u64;
        assert_eq!(said[0].index, first);
        let hidden: Vec<u64> = said.iter().filter(|f| f.hidden).map(|f| f.index).collect();
        assert_eq!(hidden, (first + 2..first + 7).collect::<Vec<_>>());
        let started = said.iter().flat_map(|f| f.events.clone()).next();
        assert!(matches!(started, Some(InjectEvent::Started { frame, .. }) if frame == first + 2));
        let log = rows(&again).await?.complete;
        assert_eq!(log[..PROMPT + 39], saved.complete[..PROMPT + 39], "nothing of the past is lost");
    }
    let mut short = request(&files, &model, SEED)?;
    short.resume = Some(saved.complete[..20].to_vec());
    let refused = engine.open(short, engine.reserve().context("free")?).await.err().context("too short")?;
    assert!(matches!(refused, InferenceError::Resume { rows: 19, .. }), "{refused}");
    Ok(())
}
