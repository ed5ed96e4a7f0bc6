//! Conversations on the clock and beside each other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use inference::engine::{Absent, AgentFrame, Conversation, Engine, MAX_UNDER_WAY, Pace, Pushed};
use rand::{Rng, SeedableRng, rngs::StdRng};
use streams::inject_queue::{InjectEvent, When};

use crate::engine::{free, item, open, pcm, request, talk, tokens};
use crate::house::{Files, settings};

const WAITING: Pace = Pace::Realtime { absent: Absent::Wait };
const GOING_ON: Pace = Pace::Realtime { absent: Absent::Silence };

async fn take(conversation: &mut Conversation, frames: usize) -> Result<Vec<AgentFrame>> {
    let mut out = Vec::new();
    for _ in 0..frames {
        let next = tokio::time::timeout(Duration::from_secs(20), conversation.next()).await;
        out.push(next.context("a frame in time")?.context("not at the end")??);
    }
    Ok(out)
}

/// As [`talk`] on the clock: a frame is pushed when the one before it is answered.
async fn talk_in_time(
    conversation: &mut Conversation,
    frames: std::ops::Range<usize>,
) -> Result<Vec<AgentFrame>> {
    let mut out = Vec::new();
    for i in frames {
        assert_eq!(conversation.push(pcm(i)), Pushed::Taken { dropped: 0 });
        out.extend(take(conversation, 1).await?);
    }
    Ok(out)
}

#[tokio::test]
async fn eight_sessions_that_join_and_leave_at_random_say_what_each_says_alone() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let settings = settings(&[("MAX_SESSIONS", "8")])?;
    let mut rng = StdRng::seed_from_u64(4);
    let plans: Vec<_> = (0..16u64)
        .map(|seed| {
            let mut plan = request(&files, &model, seed)?;
            plan.prompt_tokens = (0..rng.random_range(0..40)).map(|_| rng.random_range(4..200)).collect();
            if seed % 5 == 0 {
                (plan.sampling.text_temperature, plan.sampling.audio_temperature) = (0.0, 0.0);
            }
            let on_clock = seed % 2 == 0;
            plan.pace = if on_clock { WAITING } else { Pace::Audio };
            let frames = if on_clock { rng.random_range(10..30) } else { rng.random_range(30..90) };
            Ok((plan, frames, Duration::from_millis(rng.random_range(0..1_500))))
        })
        .collect::<Result<_>>()?;
    let crowd = Engine::start(&settings)?;
    let together = plans.iter().map(|(plan, frames, after)| {
        let crowd = &crowd;
        async move {
            tokio::time::sleep(*after).await;
            let place = loop {
                match crowd.reserve() {
                    Some(place) => break place,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
            let mut conversation = crowd.open(plan.clone(), place).await?;
            talk_in_time(&mut conversation, 0..*frames).await
        }
    });
    let together = futures::future::try_join_all(together).await?;
    let alone = Engine::start(&settings)?;
    for (i, ((plan, frames, _), together)) in plans.iter().zip(together).enumerate() {
        let mut plan = plan.clone();
        plan.pace = Pace::Audio;
        let mut conversation = open(&alone, plan).await?;
        let said = talk(&mut conversation, 0..*frames).await?;
        assert_eq!(tokens(&together), tokens(&said), "session {i}");
        // The sums of a batch may be taken in another order.
        let apart = together.iter().zip(&said).flat_map(|(a, b)| a.pcm.iter().zip(&b.pcm));
        assert!(apart.into_iter().all(|(a, b)| (a - b).abs() < 1e-4), "sound of session {i}");
        drop(conversation);
        free(&alone, 8).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_absent_user_hears_the_agent_go_on_in_time_and_what_comes_too_late_is_dropped() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut plan = request(&files, &model, 5)?;
    plan.pace = GOING_ON;
    let mut conversation = open(&engine, plan.clone()).await?;
    for i in 0..3 {
        assert_eq!(conversation.push(pcm(i)), Pushed::Taken { dropped: 0 });
    }
    let mut said = take(&mut conversation, 3).await?;
    let started = Instant::now();
    said.extend(take(&mut conversation, 20).await?);
    let took = started.elapsed();
    // Two frames may be late: 22 ticks.
    assert!(took > Duration::from_millis(20 * 80) && took < Duration::from_secs(6), "{took:?}");
    let absent: Vec<bool> = said.iter().map(|f| f.was_absent).collect();
    assert_eq!(absent, [vec![false; 3], vec![true; 20]].concat());
    assert!(said[3..].iter().all(|f| f.user.iter().all(|s| *s == 0.0)));
    assert_eq!(said[1].user, pcm(1));
    let dropped: Vec<Pushed> = (0..10).map(|i| conversation.push(pcm(100 + i))).collect();
    assert_eq!(dropped[3..5], [Pushed::Taken { dropped: 0 }, Pushed::Taken { dropped: 1 }]);
    assert_eq!(conversation.dropped_frames(), 6);
    conversation.end_audio();
    let mut rest = Vec::new();
    while let Some(frame) = conversation.next().await {
        rest.push(frame?);
    }
    let heard: Vec<Vec<f32>> = rest.iter().filter(|f| !f.was_absent).map(|f| f.user.clone()).collect();
    assert_eq!(heard, (6..10).map(|i| pcm(100 + i)).collect::<Vec<_>>());
    // What it said is what one says who is told the same without a clock.
    plan.pace = Pace::Audio;
    let mut other = open(&engine, plan).await?;
    for frame in said.iter().chain(&rest) {
        assert_eq!(other.push(frame.user.clone()), Pushed::Taken { dropped: 0 });
    }
    let again = take(&mut other, said.len() + rest.len()).await?;
    assert_eq!(tokens(&again), tokens(&[said, rest].concat()));
    Ok(())
}

#[tokio::test]
async fn one_that_waits_for_its_user_stands_still_and_changes_nothing() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut plan = request(&files, &model, 6)?;
    plan.pace = WAITING;
    let mut conversation = open(&engine, plan.clone()).await?;
    let mut said = talk_in_time(&mut conversation, 0..5).await?;
    let silent = tokio::time::timeout(Duration::from_millis(600), conversation.next()).await;
    assert!(silent.is_err(), "nothing is said to nobody");
    let rows = conversation.rows(0).await?.complete.len();
    said.extend(talk_in_time(&mut conversation, 5..12).await?);
    assert_eq!(conversation.rows(0).await?.complete.len(), rows + 7);
    plan.pace = Pace::Audio;
    let mut other = open(&engine, plan).await?;
    assert_eq!(tokens(&talk(&mut other, 0..12).await?), tokens(&said));
    Ok(())
}

#[tokio::test]
async fn without_a_clock_nothing_is_dropped_and_the_end_tells_what_became_of_injections() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut conversation = open(&engine, request(&files, &model, 7)?).await?;
    for i in 0..MAX_UNDER_WAY {
        assert_eq!(conversation.push(pcm(i)), Pushed::Taken { dropped: 0 });
    }
    assert_eq!(conversation.push(pcm(99)), Pushed::Full(pcm(99)), "it comes back");
    take(&mut conversation, 1).await?;
    assert_eq!(conversation.push(pcm(99)), Pushed::Taken { dropped: 0 });
    take(&mut conversation, MAX_UNDER_WAY).await?;
    conversation.injector().offer(item("late", vec![50; 5], When::Immediate)).await?;
    conversation.end_audio();
    assert_eq!(conversation.push(pcm(0)), Pushed::Ended);
    assert!(conversation.next().await.is_none());
    let aborted = InjectEvent::Aborted { id: "late".into(), consumed: 0 };
    assert_eq!(conversation.finish().await, [aborted]);

    // Ended from outside while one runs.
    let mut conversation = open(&engine, request(&files, &model, 7)?).await?;
    talk(&mut conversation, 0..2).await?;
    conversation.injector().offer(item("half", vec![50; 9], When::Immediate)).await?;
    conversation.injector().offer(item("none", vec![50; 9], When::Immediate)).await?;
    talk(&mut conversation, 2..6).await?;
    let injector = conversation.injector();
    let ended = conversation.finish().await;
    let wanted = [("half", 4), ("none", 0)];
    let found: Vec<_> = ended
        .iter()
        .map(|e| match e {
            InjectEvent::Aborted { id, consumed } => (id.as_str(), *consumed),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, wanted);
    assert!(injector.offer(item("after", vec![50], When::Immediate)).await.is_err());
    free(&engine, 4).await
}
