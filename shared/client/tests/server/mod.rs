//! An HTTP server that gives prepared answers in order and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One prepared answer.
#[derive(Debug, Clone)]
pub struct Answer {
    head: String,
    body: Vec<u8>,
    hang_up: bool,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self {
            head: format!("HTTP/1.1 {status} x\r\nconnection: close\r\n"),
            body: Vec::new(),
            hang_up: false,
        }
    }

    /// Closes the connection without an answer.
    pub fn hang_up() -> Self {
        Self { hang_up: true, ..Self::status(500) }
    }

    /// Events, then the end of the connection.
    pub fn stream(text: &str) -> Self {
        let mut answer = Self::status(200).header("content-type", "text/event-stream");
        answer.body = text.as_bytes().to_vec();
        answer
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn json(mut self, value: &serde_json::Value) -> Self {
        self.body = value.to_string().into_bytes();
        self.header("content-type", "application/json")
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Request {
    head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    }
}

pub struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub async fn start(answers: Vec<Answer>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut answers = VecDeque::from(answers);
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answers.pop_front().unwrap_or_else(|| Answer::status(500));
                if let Ok(request) = serve(stream, answer).await {
                    seen.lock().expect("no panic while held").push(request);
                }
            }
        });
        Ok(Self { port, requests })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic while held").clone()
    }
}

async fn serve(mut stream: TcpStream, answer: Answer) -> Result<Request> {
    let mut bytes = Vec::new();
    let request = loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await?;
        anyhow::ensure!(read > 0, "closed");
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(request) = whole(&bytes)? {
            break request;
        }
    };
    if !answer.hang_up {
        stream.write_all(format!("{}\r\n", answer.head).as_bytes()).await?;
        stream.write_all(&answer.body).await?;
        stream.shutdown().await?;
    }
    Ok(request)
}

/// The request, once its head and its declared body are there.
fn whole(bytes: &[u8]) -> Result<Option<Request>> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let request = Request {
        head: String::from_utf8(bytes[..end].to_vec()).context("an ASCII head")?,
        body: bytes[end + 4..].to_vec(),
    };
    let declared = request.header("content-length").map_or(Ok(0), |v| v.parse::<usize>())?;
    Ok((request.body.len() >= declared).then_some(request))
}
