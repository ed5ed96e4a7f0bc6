//! The websocket module against a server that answers every user frame with the same sound, as the protocol says.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use url::Url;

use audio::Waveform;
use audio::opus::{OpusReader, OpusWriter, OpusWriterConfig};
use client::chat::{ChatOptions, Conversation, InjectAt, Pace, to_frames};
use client::{Client, ClientError};
use domain::frame::SAMPLES_PER_FRAME;
use domain::session::{ControlMessage, SessionEvent, SessionStats};

type Peer = WebSocketStream<TcpStream>;

/// What the server saw: user frames that were whole at each context message.
type Seen = Vec<(u64, String)>;

/// Sends one message of a kind.
async fn kind(peer: &mut Peer, kind: u8, payload: &[u8]) -> Result<()> {
    Ok(peer.send(Message::binary([&[kind], payload].concat())).await?)
}

/// Answers frame by frame, hides the text of the three frames after a context message, says a word in every other frame.
async fn echo(mut peer: Peer) -> Result<Seen> {
    kind(&mut peer, 0, &[0; 8]).await?;
    let (mut reader, mut writer) = (OpusReader::new()?, OpusWriter::new(OpusWriterConfig::default())?);
    let (mut pending, mut seen, mut frame, mut hidden) = (Vec::new(), Seen::new(), 0u64, 0u64..0u64);
    let mut head = writer.header();
    while let Some(message) = peer.next().await {
        match message? {
            Message::Text(text) => {
                let ControlMessage::Context { text, how } = serde_json::from_str(text.as_str())?;
                let id = how.id;
                hidden = frame..frame + 3;
                let id = id.context("an id")?;
                let started = SessionEvent::ContextStarted { id: id.clone(), frame };
                kind(&mut peer, 4, serde_json::to_string(&started)?.as_bytes()).await?;
                let done = SessionEvent::ContextDone { id, frame_start: hidden.start, frame_end: hidden.end };
                kind(&mut peer, 4, serde_json::to_string(&done)?.as_bytes()).await?;
                seen.push((frame, text));
            }
            Message::Binary(bytes) if bytes[..] == [3, 1] => break,
            Message::Binary(bytes) => pending.extend(reader.push(&bytes[1..])),
            _ => {}
        }
        while pending.len() >= SAMPLES_PER_FRAME {
            let sound: Vec<f32> = pending.drain(..SAMPLES_PER_FRAME).collect();
            let mut pages = std::mem::take(&mut head);
            pages.extend(writer.push(&sound)?);
            if frame % 2 == 0 && !hidden.contains(&frame) {
                kind(&mut peer, 2, format!(" w{frame}").as_bytes()).await?;
            }
            kind(&mut peer, 1, &pages).await?;
            frame += 1;
        }
    }
    let stats =
        SessionEvent::Stats(SessionStats { frames: frame, hidden_frames: 3, ..SessionStats::default() });
    kind(&mut peer, 4, serde_json::to_string(&stats)?.as_bytes()).await?;
    peer.close(Some(CloseFrame { code: 1000.into(), reason: "".into() })).await?;
    while peer.next().await.is_some() {}
    Ok(seen)
}

async fn listen() -> Result<(TcpListener, Url, Client)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let socket = Url::parse(&format!("{}/api/chat?ticket=t", base.replace("http", "ws")))?;
    Ok((listener, socket, Client::new(&base, "ppx_test")?))
}

async fn talk(frames: usize, options: ChatOptions) -> Result<(Conversation, Seen)> {
    let (listener, socket, client) = listen().await?;
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        echo(tokio_tungstenite::accept_async(stream).await?).await
    });
    let user = (0..frames * SAMPLES_PER_FRAME).map(|i| 0.3 * (0.06 * i as f32).sin()).collect();
    let conversation = client.converse(&socket, user, &options).await?;
    Ok((conversation, server.await??))
}

fn at(frame: u64, text: &str) -> InjectAt {
    InjectAt { frame, text: text.into(), when: None, deadline_ms: None }
}

#[tokio::test]
async fn a_fast_conversation_keeps_both_sides_on_one_clock_and_context_in_its_place() -> Result<()> {
    let options = ChatOptions {
        injections: vec![at(60, "second"), at(20, "first")],
        pace: Pace::FAST,
        ..ChatOptions::default()
    };
    let (heard, seen) = talk(100, options).await?;
    assert_eq!((heard.agent_frames, heard.agent.len(), heard.user.len()), (100, 192_000, 192_000));
    assert_eq!(heard.opus.bad_pages + heard.opus.bad_packets, 0);
    assert_eq!(seen.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    for ((frame, _), want) in seen.iter().zip([19, 59]) {
        assert_eq!(*frame, want, "context for frame {} is there before user frame {want}", want + 1);
    }
    assert_eq!(heard.hidden_spans(), [(19, 22), (59, 62)]);
    assert_eq!(heard.pieces_while_hidden(), 0);
    for piece in &heard.texts {
        assert_eq!(piece.text, format!(" w{}", piece.frame), "a piece carries the frame in which it came");
    }
    assert_eq!(heard.stats.map(|s| s.frames), Some(100));
    Ok(())
}

#[tokio::test]
async fn a_real_time_conversation_takes_as_long_as_its_sound() -> Result<()> {
    let (heard, _) = talk(12, ChatOptions::default()).await?;
    assert!(heard.wall_s >= 11.0 * 0.08, "{}", heard.wall_s);
    assert_eq!(heard.agent_frames, 12);
    assert!(heard.transcript().starts_with("w0 w2"), "{}", heard.transcript());
    Ok(())
}

#[tokio::test]
async fn a_close_for_another_reason_and_a_refused_upgrade_are_errors_with_their_codes() -> Result<()> {
    let (listener, socket, client) = listen().await?;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let mut peer = tokio_tungstenite::accept_async(stream).await?;
        kind(&mut peer, 0, &[0; 8]).await?;
        peer.close(Some(CloseFrame { code: 4001.into(), reason: "max duration".into() })).await?;
        while peer.next().await.is_some() {}
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await?;
        let body = r#"{"code":"session_capacity","detail":"no free slot"}"#;
        let answer =
            format!("HTTP/1.1 503 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let mut request = [0; 2048];
        let _ = stream.read(&mut request).await?;
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        Ok::<_, anyhow::Error>(())
    });
    let user = vec![0.0; 50 * SAMPLES_PER_FRAME];
    let error = client.converse(&socket, user.clone(), &ChatOptions::default()).await.expect_err("closed");
    assert!(matches!(error, ClientError::SessionClosed { code: 4001, .. }), "{error}");
    let error = client.converse(&socket, user, &ChatOptions::default()).await.expect_err("refused");
    assert_eq!(error.code(), Some("session_capacity"), "{error}");
    assert!(!error.to_string().contains("ticket"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() -> Result<()> {
    let (listener, socket, client) = listen().await?;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let mut peer = tokio_tungstenite::accept_async(stream).await?;
        kind(&mut peer, 0, &[0; 8]).await?;
        while peer.next().await.is_some() {}
        Ok::<_, anyhow::Error>(())
    });
    let options =
        ChatOptions { pace: Pace::FAST, stall_timeout: Duration::from_millis(200), ..ChatOptions::default() };
    let user = vec![0.0; 50 * SAMPLES_PER_FRAME];
    let error = client.converse(&socket, user, &options).await.expect_err("silence");
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    Ok(())
}

#[test]
fn waveforms_of_any_rate_become_whole_frames() -> Result<()> {
    let stereo = Waveform::stereo(16_000, vec![0.1; 16_000], vec![0.3; 16_000]);
    let frames = to_frames(&stereo)?;
    assert_eq!(frames.len() % SAMPLES_PER_FRAME, 0);
    assert!((23_500..=26_000).contains(&frames.len()), "{}", frames.len());
    Ok(())
}
