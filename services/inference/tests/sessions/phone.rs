//! A client of the internal listener that behaves like the stock one.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use audio::opus::{OpusReader, OpusWriter, OpusWriterConfig};
use domain::SessionId;
use domain::session::SessionEvent;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::house::{House, TOKEN};

/// Nothing in a test may take longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<TcpStream>;

/// What a client has received.
#[derive(Default)]
pub struct Heard {
    pub handshakes: usize,
    pub samples: usize,
    pub text: String,
    /// About injections, and the facts.
    pub events: Vec<SessionEvent>,
    /// About the conversation itself.
    pub notes: Vec<SessionEvent>,
    pub other_kinds: usize,
    pub close: Option<u16>,
}

pub struct Phone {
    pub out: SplitSink<Socket, Message>,
    pub back: SplitStream<Socket>,
    writer: OpusWriter,
    reader: OpusReader,
    pub heard: Heard,
}

/// Connects; an answer other than the upgrade is the inner error.
pub async fn call(
    house: &House,
    id: &str,
    token: &str,
) -> Result<Result<Phone, tungstenite::http::Response<Option<Vec<u8>>>>> {
    call_at(house.address, id, token).await
}

/// Connects to any process.
pub async fn call_at(
    address: SocketAddr,
    id: &str,
    token: &str,
) -> Result<Result<Phone, tungstenite::http::Response<Option<Vec<u8>>>>> {
    call_over(TcpStream::connect(address).await?, address, id, token).await
}

pub async fn call_over(
    stream: TcpStream,
    address: SocketAddr,
    id: &str,
    token: &str,
) -> Result<Result<Phone, tungstenite::http::Response<Option<Vec<u8>>>>> {
    let url = format!("ws://{address}/internal/sessions/{id}/socket");
    let mut request = url.into_client_request()?;
    request.headers_mut().insert("x-ppx-internal", token.parse()?);
    let socket = match client_async(request, stream).await {
        Ok((socket, _)) => socket,
        Err(tungstenite::Error::Http(response)) => return Ok(Err(*response)),
        Err(error) => return Err(error.into()),
    };
    let (out, back) = socket.split();
    let writer = OpusWriter::new(OpusWriterConfig { packet_samples: 480, ..OpusWriterConfig::default() })?;
    Ok(Ok(Phone { out, back, writer, reader: OpusReader::new()?, heard: Heard::default() }))
}

impl Phone {
    pub async fn dial(house: &House, id: SessionId) -> Result<Self> {
        match call(house, &id.to_string(), TOKEN).await? {
            Ok(phone) => Ok(phone),
            Err(response) => bail!("refused with {}", response.status()),
        }
    }

    pub async fn send(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        Ok(self.out.send(Message::Binary([&[kind], payload].concat().into())).await?)
    }

    pub async fn json(&mut self, text: &str) -> Result<()> {
        Ok(self.out.send(Message::Text(text.into())).await?)
    }

    /// Ogg pages of `frames` frames of a tone; the header comes with the first call.
    pub fn pages(&mut self, frames: usize) -> Result<Vec<u8>> {
        let pcm: Vec<f32> = (0..frames * 1_920).map(|n| (n as f32 * 0.03).sin() * 0.3).collect();
        Ok(self.writer.push(&pcm)?)
    }

    pub fn header(&mut self) -> Vec<u8> {
        self.writer.header()
    }

    /// Sends the stream header and `frames` frames, one message a frame.
    pub async fn speak(&mut self, frames: usize) -> Result<()> {
        for _ in 0..frames {
            let pages = self.pages(1)?;
            self.send(1, &pages).await?;
        }
        Ok(())
    }

    pub async fn end(&mut self) -> Result<()> {
        self.send(3, &[1]).await
    }

    /// Reads one message; `false` at the end.
    pub async fn listen(&mut self) -> Result<bool> {
        let message = tokio::time::timeout(PATIENCE, self.back.next()).await.context("silence")?;
        let Some(Ok(message)) = message else { return Ok(false) };
        match message {
            Message::Binary(bytes) => match bytes.first() {
                Some(0) if bytes.len() == 9 => self.heard.handshakes += 1,
                Some(1) => self.heard.samples += self.reader.push(&bytes[1..]).len(),
                Some(2) => self.heard.text.push_str(std::str::from_utf8(&bytes[1..])?),
                Some(4) => match serde_json::from_slice(&bytes[1..])? {
                    note @ (SessionEvent::Created { .. }
                    | SessionEvent::Transcript { .. }
                    | SessionEvent::Refreshed { .. }
                    | SessionEvent::Closing { .. }) => self.heard.notes.push(note),
                    event => self.heard.events.push(event),
                },
                _ => self.heard.other_kinds += 1,
            },
            Message::Close(frame) => self.heard.close = frame.map(|f| f.code.into()),
            _ => {}
        }
        Ok(true)
    }

    pub async fn listen_until(&mut self, mut done: impl FnMut(&Heard) -> bool) -> Result<()> {
        while !done(&self.heard) {
            if !self.listen().await? {
                bail!("the connection ended too early (close {:?})", self.heard.close);
            }
        }
        Ok(())
    }

    /// Reads to the end.
    pub async fn listen_out(mut self) -> Result<Heard> {
        while self.listen().await? {}
        Ok(self.heard)
    }
}
