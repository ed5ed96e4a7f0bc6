//! Order, start conditions, bounds and events of the live queue.

use streams::inject_queue::{
    Decision, InjectEvent, InjectItem, InjectKind, InjectQueue, QueueLimits, QueueState, Rejection, When,
};
use streams::tokens::{EPAD, PAD};

fn item(id: &str, kind: InjectKind, tokens: usize, when: When) -> InjectItem {
    let tokens = (0..tokens).map(|i| 500 + i32::try_from(i).unwrap_or(0)).collect();
    InjectItem {
        id: id.into(),
        kind,
        tokens,
        when,
        deadline_frames: None,
        ttl_frames: None,
        supersedes: None,
    }
}

fn context(id: &str, tokens: usize, when: When) -> InjectItem {
    item(id, InjectKind::Context, tokens, when)
}

fn started() -> InjectQueue {
    let mut queue = InjectQueue::new(QueueLimits::default());
    queue.begin_conversation();
    queue
}

/// Runs `sampled` through the queue; true for forced frames.
fn run(queue: &mut InjectQueue, sampled: &[i32]) -> Vec<bool> {
    sampled
        .iter()
        .map(|&text| {
            let forced = match queue.decide() {
                Decision::Free => None,
                Decision::Forced { token } => Some(token),
            };
            queue.observe(forced.unwrap_or(text));
            forced.is_some()
        })
        .collect()
}

fn starts(queue: &mut InjectQueue) -> Vec<(String, u64)> {
    queue
        .drain_events()
        .into_iter()
        .filter_map(|e| match e {
            InjectEvent::Started { id, frame } => Some((id, frame)),
            _ => None,
        })
        .collect()
}

#[test]
fn context_goes_before_nudge_and_greeting_and_blocks_never_mix() {
    let mut queue = started();
    queue.offer(item("greeting", InjectKind::Greeting, 2, When::Immediate)).expect("room");
    queue.offer(item("nudge", InjectKind::Nudge, 2, When::Immediate)).expect("room");
    queue.offer(context("first", 3, When::Immediate)).expect("room");
    assert_eq!(queue.offer(context("second", 2, When::Immediate)), Ok(1));
    let forced = run(&mut queue, &[PAD; 20]);
    // 3 tokens, 3 frames of cooldown, 2 tokens, cooldown, greeting; the nudge gave way to the context.
    let expected = [3, 4, 5, 8, 9, 10].map(|f| (f, false));
    for (frame, want) in expected {
        assert_eq!(forced[frame], want, "frame {frame}");
    }
    let events = queue.drain_events();
    assert_eq!(events[0], InjectEvent::Dropped { id: "nudge".into() });
    assert_eq!(events[1], InjectEvent::Started { id: "first".into(), frame: 0 });
    assert_eq!(events[2], InjectEvent::Completed { id: "first".into(), frame_start: 0, frame_end: 3 });
    assert_eq!(events[3], InjectEvent::Started { id: "second".into(), frame: 6 });
    assert_eq!(events[5], InjectEvent::Started { id: "greeting".into(), frame: 11 });
    assert!((0..3).all(|f| queue.is_hidden(f)) && !queue.is_hidden(3));
}

#[test]
fn a_pause_is_awaited_and_an_announced_word_is_not_cut() {
    let mut queue = started();
    run(&mut queue, &[700, 701]);
    queue.offer(context("a", 2, When::Pause)).expect("room");
    // Five padding frames are too few, and the sixth announces a word.
    let mut sampled = vec![PAD; 5];
    sampled.extend([EPAD, 702]);
    sampled.extend([PAD; 9]);
    run(&mut queue, &sampled);
    assert_eq!(starts(&mut queue), [("a".to_owned(), 2 + 7 + 6)]);
}

#[test]
fn a_deadline_forces_a_start_at_the_next_word_boundary_or_a_little_later() {
    let mut queue = started();
    let patient = InjectItem { deadline_frames: Some(10), ..context("a", 1, When::Pause) };
    run(&mut queue, &[700]);
    queue.offer(patient.clone()).expect("room");
    let mut speech = vec![700; 12];
    speech.extend([PAD, 700]);
    run(&mut queue, &speech);
    assert_eq!(starts(&mut queue), [("a".to_owned(), 14)], "boundary after frame 13");

    let mut queue = started();
    run(&mut queue, &[700]);
    queue.offer(patient).expect("room");
    run(&mut queue, &[700; 20]);
    assert_eq!(starts(&mut queue), [("a".to_owned(), 15)], "deadline 10 and 4 frames more");
}

#[test]
fn items_wait_for_the_prompt_and_stale_ones_expire() {
    let mut queue = InjectQueue::new(QueueLimits::default());
    queue.offer(context("a", 1, When::Immediate)).expect("room");
    assert_eq!(run(&mut queue, &[PAD; 3]), [false; 3]);
    assert_eq!((queue.state(), queue.frame()), (QueueState::Prompt, 0));
    queue.begin_conversation();
    assert_eq!(run(&mut queue, &[PAD]), [true]);
    assert_eq!(queue.state(), QueueState::Cooldown);

    let mut queue = started();
    run(&mut queue, &[700]);
    queue.offer(InjectItem { ttl_frames: Some(4), ..context("b", 1, When::Pause) }).expect("room");
    run(&mut queue, &[700; 5]);
    assert_eq!(queue.drain_events(), [InjectEvent::Expired { id: "b".into() }]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    let mut queue = started();
    assert_eq!(queue.offer(context("none", 0, When::Pause)), Err(Rejection::Empty("none".into())));
    let long = queue.offer(context("long", 257, When::Pause));
    assert_eq!(long, Err(Rejection::TooLong { tokens: 257, limit: 256 }));
    queue.offer(context("a", 256, When::Pause)).expect("room");
    assert_eq!(queue.offer(context("a", 1, When::Pause)), Err(Rejection::DuplicateId("a".into())));
    queue.offer(context("b", 256, When::Pause)).expect("exactly 512 tokens wait");
    assert_eq!(
        queue.offer(context("c", 1, When::Pause)),
        Err(Rejection::QueueFull { items: 2, tokens: 512 })
    );

    let mut queue = started();
    for i in 0..8 {
        queue.offer(context(&i.to_string(), 1, When::Pause)).expect("room for eight");
    }
    assert_eq!(queue.offer(context("9", 1, When::Pause)), Err(Rejection::QueueFull { items: 8, tokens: 8 }));
}

#[test]
fn the_end_of_a_session_reports_what_was_not_said() {
    let mut queue = started();
    queue.offer(context("a", 5, When::Immediate)).expect("room");
    queue.offer(context("b", 5, When::Immediate)).expect("room");
    run(&mut queue, &[PAD; 2]);
    queue.drain_events();
    queue.end_session();
    let expected = [
        InjectEvent::Aborted { id: "a".into(), consumed: 2 },
        InjectEvent::Aborted { id: "b".into(), consumed: 0 },
    ];
    assert_eq!(queue.drain_events(), expected);
    assert_eq!(queue.offer(context("c", 1, When::Immediate)), Err(Rejection::Ended));
    assert_eq!(queue.decide(), Decision::Free);
}

#[test]
fn a_pause_needs_silence_in_the_sound_too_and_the_users_speech_where_that_is_asked_for() {
    let mut queue = started();
    queue.hear(-20.0, -90.0);
    queue.offer(context("a", 1, When::Pause)).expect("room");
    assert_eq!(run(&mut queue, &[PAD; 3]), [false; 3], "the last word still sounds");
    for _ in 0..3 {
        queue.hear(-60.0, -90.0);
    }
    assert_eq!(run(&mut queue, &[PAD]), [true]);

    let mut queue = started();
    queue.offer(context("b", 1, When::UserSpeech)).expect("room");
    assert_eq!(run(&mut queue, &[PAD; 5]), [false; 5], "nobody speaks");
    queue.hear(-60.0, -20.0);
    assert_eq!(run(&mut queue, &[PAD]), [true]);

    let mut queue = started();
    queue.offer(context("c", 1, When::UserSpeech)).expect("room");
    let forced = run(&mut queue, &[PAD; 40]);
    assert_eq!(forced.iter().position(|forced| *forced), Some(25), "the deadline");
}

#[test]
fn an_item_that_supersedes_another_takes_its_place_while_that_still_waits() {
    let mut queue = started();
    queue.hear(-20.0, -90.0);
    queue.offer(context("old", 2, When::Pause)).expect("room");
    let new = InjectItem { supersedes: Some("old".into()), ..context("new", 1, When::Immediate) };
    assert_eq!(queue.offer(new), Ok(0));
    assert_eq!(run(&mut queue, &[PAD; 3]), [true, false, false]);
    let late = InjectItem { supersedes: Some("new".into()), ..context("later", 1, When::Immediate) };
    assert_eq!(queue.offer(late), Ok(0), "a done one is no fault");
    let events = queue.drain_events();
    assert!(matches!(&events[0], InjectEvent::Dropped { id } if id == "old"), "{events:?}");
}
