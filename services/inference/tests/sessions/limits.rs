use std::time::Duration;

use anyhow::{Context, Result};
use domain::session::SamplingParams;
use futures::SinkExt;
use tokio_tungstenite::tungstenite::Message;

use crate::house::{House, TOKEN};
use crate::phone::{Phone, call_over};

#[tokio::test]
async fn a_session_that_only_waits_is_closed_with_4000() -> Result<()> {
    let house = House::open(&[("IDLE_SECONDS", "1")]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    let mut phone = Phone::dial(&house, id).await?;
    let header = phone.header();
    phone.send(1, &header).await?;
    phone.speak(2).await?;
    let heard = phone.listen_out().await?;
    assert_eq!((heard.samples, heard.close), (2 * 1_920, Some(4000)));
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("idle"));
    house.close().await
}

#[tokio::test]
async fn a_session_that_lasts_too_long_is_closed_with_4001_while_the_client_still_talks() -> Result<()> {
    let house = House::open(&[("MAX_SESSION_SECONDS", "2")]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    let mut phone = Phone::dial(&house, id).await?;
    let header = phone.header();
    phone.send(1, &header).await?;
    let mut beat = tokio::time::interval(Duration::from_millis(80));
    while phone.heard.close.is_none() {
        tokio::select! {
            _ = beat.tick() => if phone.speak(1).await.is_err() { break },
            more = phone.listen() => if !more? { break },
        }
    }
    assert_eq!(phone.heard.close, Some(4001));
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("max_duration"));
    house.close().await
}

#[tokio::test]
async fn at_shutdown_sessions_are_closed_with_1001_and_the_listener_ends() -> Result<()> {
    let house = House::open(&[]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    let mut phone = Phone::dial(&house, id).await?;
    phone.listen_until(|h| h.handshakes == 1).await?;
    house.shutdown.cancel();
    assert_eq!(phone.listen_out().await?.close, Some(1001));
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("draining"));
    house.close().await
}

#[tokio::test]
async fn a_damaged_model_closes_with_4002_and_the_next_session_works() -> Result<()> {
    let house = House::open(&[]).await?;
    let damaged = house.files.model(8)?;
    let mut tx = house.store.begin().await?;
    store::models::insert(&mut tx, &damaged).await?;
    tx.commit().await?;
    let weights = house.files.artifacts.local_path(&damaged.prefix)?.join("model.safetensors");
    let mut bytes = std::fs::read(&weights)?;
    *bytes.last_mut().context("not empty")? ^= 1;
    std::fs::write(&weights, bytes)?;
    let id = house.session_of(damaged.id, "x", SamplingParams::default()).await?;
    assert_eq!(Phone::dial(&house, id).await?.listen_out().await?.close, Some(4002));
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("model_error"));
    let id = house.session("x", SamplingParams::default()).await?;
    Phone::dial(&house, id).await?.listen_until(|h| h.handshakes == 1).await?;
    house.close().await
}

#[tokio::test]
async fn a_flood_of_messages_is_refused_and_then_closed_with_1008() -> Result<()> {
    let house = House::open(&[]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    let Phone { mut out, back, heard, .. } = {
        let mut phone = Phone::dial(&house, id).await?;
        phone.listen_until(|h| h.handshakes == 1).await?;
        phone
    };
    assert!(heard.events.is_empty());
    let flood = tokio::spawn(async move {
        let message = r#"{"type":"context","text":"again"}"#;
        while out.send(Message::Text(message.into())).await.is_ok() {}
    });
    let mut close = None;
    let mut answers = 0;
    let mut back = back;
    while let Some(Ok(message)) =
        tokio::time::timeout(Duration::from_secs(30), futures::StreamExt::next(&mut back)).await?
    {
        match message {
            Message::Binary(_) => answers += 1,
            Message::Close(frame) => close = frame.map(|f| u16::from(f.code)),
            _ => {}
        }
    }
    assert_eq!(close, Some(1008));
    assert!((1_000..2_000).contains(&answers), "{answers}");
    flood.await?;
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("flood"));
    house.all_places_free(4, Duration::from_secs(5)).await?;
    house.close().await
}

#[tokio::test]
async fn a_client_that_sends_and_does_not_read_loses_its_place() -> Result<()> {
    let house = House::open(&[("MAX_SESSIONS", "1")]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let stream = socket.connect(house.address).await?;
    let mut phone =
        call_over(stream, house.address, &id.to_string(), TOKEN).await?.ok().context("accepted")?;
    let header = phone.header();
    phone.send(1, &header).await?;
    let talking = tokio::spawn(async move { while phone.speak(1).await.is_ok() {} });
    house.all_places_free(1, Duration::from_secs(50)).await?;
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("slow_reader"));
    talking.abort();
    house.close().await
}

#[tokio::test]
async fn callers_that_leave_at_any_moment_leave_no_place_taken() -> Result<()> {
    let house = House::open(&[("MAX_SESSIONS", "3")]).await?;
    for round in 0..30 {
        let id = house.session("x", SamplingParams::default()).await?;
        let mut phone = Phone::dial(&house, id).await?;
        match round % 3 {
            0 => {}
            1 => phone.listen_until(|h| h.handshakes == 1).await?,
            _ => {
                let header = phone.header();
                phone.send(1, &header).await?;
                phone.speak(round).await?;
            }
        }
        drop(phone);
        house.all_places_free(3, Duration::from_secs(10)).await?;
        house.ended(id).await?;
    }
    house.close().await
}
