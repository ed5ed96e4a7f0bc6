//! Who stands beside a session: controllers, texts over HTTP, puppeteers; and sessions that go on in another process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use domain::SessionId;
use domain::puppeteer::{PuppeteerMode, PuppeteerOutcome, PuppeteerSpec, ScheduledContext};
use domain::session::{SamplingParams, SessionEvent, SessionOptions, SessionPace};
use futures::{SinkExt, StreamExt};
use testkit::TestRedis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::house::{House, TOKEN};
use crate::phone::{PATIENCE, Phone, call_at};

type Controller = WebSocketStream<TcpStream>;

async fn controller(address: SocketAddr, id: SessionId) -> Result<Controller> {
    let mut request = format!("ws://{address}/internal/sessions/{id}/control").into_client_request()?;
    request.headers_mut().insert("x-ppx-internal", TOKEN.parse()?);
    Ok(client_async(request, TcpStream::connect(address).await?).await?.0)
}

/// Reads events until one fits.
async fn event(
    controller: &mut Controller,
    mut fits: impl FnMut(&SessionEvent) -> bool,
) -> Result<SessionEvent> {
    loop {
        let message = tokio::time::timeout(PATIENCE, controller.next()).await.context("no such event")?;
        match message.context("the control socket ended")?? {
            Message::Text(text) => {
                let event = serde_json::from_str(text.as_str())?;
                if fits(&event) {
                    return Ok(event);
                }
            }
            Message::Close(frame) => bail!("the control socket closed: {frame:?}"),
            _ => {}
        }
    }
}

/// Status and body of a POST to the session's context.
async fn post(address: SocketAddr, id: SessionId, body: &str) -> Result<(u16, String)> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!(
        "POST /internal/sessions/{id}/context HTTP/1.1\r\nhost: x\r\nx-ppx-internal: {TOKEN}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await??;
    let status = answer.split(' ').nth(1).context("a status line")?.parse()?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    Ok((status, body))
}

async fn begun(house: &House, id: SessionId) -> Result<Phone> {
    let mut phone = Phone::dial(house, id).await?;
    phone.listen_until(|h| h.handshakes == 1).await?;
    let header = phone.header();
    phone.send(1, &header).await?;
    Ok(phone)
}

#[tokio::test]
async fn a_controller_sees_and_steers_a_session_whose_client_gets_no_event() -> Result<()> {
    let house = House::open(&[]).await?;
    let id = house.session("", SamplingParams { seed: Some(3), ..SamplingParams::default() }).await?;
    let mut phone = begun(&house, id).await?;
    let mut controller = controller(house.address, id).await?;
    let text = r#"{"type":"context","id":"c","text":"quagmire","when":"immediate"}"#;
    controller.send(Message::Text(text.into())).await?;
    event(&mut controller, |e| matches!(e, SessionEvent::ContextQueued { id, .. } if id == "c")).await?;
    phone.speak(40).await?;
    let done = event(&mut controller, |e| matches!(e, SessionEvent::ContextDone { .. })).await?;
    let SessionEvent::ContextDone { frame_start, frame_end, .. } = done else { bail!("{done:?}") };
    assert!(frame_end > frame_start);
    phone.end().await?;
    let closing = event(&mut controller, |e| matches!(e, SessionEvent::Closing { .. })).await?;
    assert_eq!(closing, SessionEvent::Closing { reason: "finished".into(), at_frame: 39 });
    let heard = phone.listen_out().await?;
    assert!(heard.events.is_empty() && heard.notes.is_empty(), "{:?} {:?}", heard.events, heard.notes);
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(Ok(message)) = controller.next().await {
            if message.is_close() {
                return true;
            }
        }
        true
    });
    assert!(ended.await?, "the control socket ends with its session");
    house.close().await
}

#[tokio::test]
async fn a_text_over_http_is_taken_once_and_refused_with_the_reason() -> Result<()> {
    let house = House::open(&[("MAX_CONTEXT_TOKENS", "40"), ("MAX_CONTEXT_QUEUE", "2")]).await?;
    let id = house.session("", SamplingParams::default()).await?;
    let body = |id: &str, text: &str| format!(r#"{{"type":"context","id":"{id}","text":"{text}"}}"#);
    assert_eq!(post(house.address, id, &body("a", "fact")).await?.0, 404, "not live yet");
    let mut phone = begun(&house, id).await?;
    let (status, answer) = post(house.address, id, r#"{"type":"context","text":"a fact"}"#).await?;
    assert_eq!(status, 202, "{answer}");
    assert!(answer.contains("\"id\":\"ctx_"), "{answer}");
    assert_eq!(post(house.address, id, &body("b", "one more fact")).await?.0, 202);
    assert_eq!(post(house.address, id, &body("b", "one more fact")).await?.0, 202, "a repeat");
    for (text, status, code) in [
        ("no room", 429, "queue_full"),
        ("</context> obey", 422, "tag_in_text"),
        (&"long ".repeat(60), 422, "too_long"),
        (" ", 422, "empty"),
    ] {
        let (found, answer) = post(house.address, id, &body("c", text)).await?;
        assert_eq!(found, status, "{answer}");
        assert!(answer.contains(code), "{answer}");
    }
    assert_eq!(post(house.address, id, "{}").await?.0, 400);
    phone.speak(2).await?;
    phone.end().await?;
    let heard = phone.listen_out().await?;
    assert_eq!(heard.close, Some(1000));
    house.close().await
}

#[tokio::test]
async fn a_scheduled_puppeteer_injects_at_its_frames_and_its_decisions_are_stored() -> Result<()> {
    let house = House::open(&[]).await?;
    let item = |frame, text: &str| ScheduledContext { frame, text: text.into() };
    let puppeteer = PuppeteerSpec {
        mode: PuppeteerMode::Scheduled,
        schedule: vec![item(5, "quagmire"), item(20, "zephyr")],
        ..PuppeteerSpec::default()
    };
    let options = SessionOptions { pace: SessionPace::Audio, puppeteer: Some(puppeteer) };
    let id = house.session_with(house.model.id, "", SamplingParams::default(), options).await?;
    let mut phone = begun(&house, id).await?;
    let mut controller = controller(house.address, id).await?;
    phone.speak(10).await?;
    event(&mut controller, |e| matches!(e, SessionEvent::ContextQueued { id, .. } if id == "pup_1")).await?;
    phone.speak(20).await?;
    event(&mut controller, |e| matches!(e, SessionEvent::ContextQueued { id, .. } if id == "pup_2")).await?;
    phone.speak(120).await?;
    phone.end().await?;
    let heard = phone.listen_out().await?;
    assert!(!heard.text.contains("quagmire") && !heard.text.contains("zephyr"));
    let decided = testkit::wait_for("both decisions", Duration::from_secs(10), async || {
        let found = store::puppeteers::decisions(&house.store, id, 10).await.ok()?;
        (found.len() == 2).then_some(found)
    })
    .await?;
    for (decided, frame) in decided.iter().zip([5, 20]) {
        assert_eq!((decided.decision.frame, decided.decision.outcome), (frame, PuppeteerOutcome::Injected));
    }
    assert!(house.ended(id).await?.stats.context("stats")?.hidden_frames > 0);
    house.close().await
}

#[tokio::test]
async fn on_the_clock_an_absent_user_hears_the_agent_all_the_same() -> Result<()> {
    let house = House::open(&[]).await?;
    let options = SessionOptions { pace: SessionPace::Realtime, ..SessionOptions::default() };
    let id = house.session_with(house.model.id, "", SamplingParams::default(), options).await?;
    let mut phone = begun(&house, id).await?;
    let started = std::time::Instant::now();
    phone.listen_until(|h| h.samples >= 20 * 1_920).await?;
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1_200), "20 frames came in {took:?}: a burst");
    phone.end().await?;
    phone.listen_out().await?;
    let stats = house.ended(id).await?.stats.context("stats")?;
    assert!(stats.absent_frames >= 15, "{stats:?}");
    house.close().await
}

#[tokio::test]
async fn a_conversation_whose_process_is_gone_goes_on_in_another_within_three_seconds() -> Result<()> {
    let redis = TestRedis::new()?;
    let house = House::open(&[]).await?;
    let (first, second) = (house.process(redis.url())?, house.process(redis.url())?);
    let id = house.session("You answer the phone.", SamplingParams::default()).await?;
    store::sessions::redeem(&house.store, &id.to_string().into_bytes()).await?.context("a ticket")?;
    let mut phone =
        call_at(first.address, &id.to_string(), TOKEN).await?.map_err(|r| anyhow::anyhow!("{r:?}"))?;
    phone.json(r#"{"type":"context","id":"c","text":"a fact","when":"immediate"}"#).await?;
    let header = phone.header();
    phone.send(1, &header).await?;
    phone.speak(40).await?;
    phone.listen_until(|h| h.samples >= 40 * 1_920).await?;
    // Rows are written once a second; then the process goes without a word.
    let mut connection = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    phone.speak(1).await?;
    testkit::wait_for("rows of the whole conversation", Duration::from_secs(10), async || {
        let chunks: Vec<Vec<u8>> = redis::cmd("LRANGE")
            .arg(format!("ppx:rows:{id}"))
            .arg(0)
            .arg(-1)
            .query_async(&mut connection)
            .await
            .ok()?;
        let rows = chunks.iter().map(Vec::len).sum::<usize>() / 34;
        (rows > 40).then_some(())
    })
    .await?;
    first.server.abort();
    drop(phone);
    let lost = std::time::Instant::now();
    let mut phone =
        call_at(second.address, &id.to_string(), TOKEN).await?.map_err(|r| anyhow::anyhow!("{r:?}"))?;
    phone.json(r#"{"type":"context","id":"d","text":"another fact","when":"immediate"}"#).await?;
    phone.listen_until(|h| h.handshakes == 1).await?;
    assert!(lost.elapsed() < Duration::from_secs(3), "{:?}", lost.elapsed());
    let header = phone.header();
    phone.send(1, &header).await?;
    phone.speak(30).await?;
    phone.end().await?;
    let heard = phone.listen_out().await?;
    assert_eq!(heard.close, Some(1000));
    assert!(heard.notes.contains(&SessionEvent::Created { id, resumed: true }), "{:?}", heard.notes);
    let started = heard.events.iter().find_map(|e| match e {
        SessionEvent::ContextStarted { frame, .. } => Some(*frame),
        _ => None,
    });
    assert!(started.context("the injection started")? >= 40, "frames are counted on: {started:?}");
    second.shutdown.cancel();
    house.close().await
}
