//! A local server that speaks HTTP/1.1 and says exactly what a test tells it, byte by byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub head: String,
    pub body: Value,
}

/// What the server says.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub parts: Vec<String>,
    /// Between parts.
    pub pause: Duration,
    /// Whether the connection breaks instead of ending.
    pub cut: bool,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            parts: vec![body.to_string()],
            pause: Duration::ZERO,
            cut: false,
        }
    }
    pub fn events(parts: Vec<String>) -> Self {
        let headers = vec![("content-type".into(), "text/event-stream".into())];
        Self { status: 200, headers, parts, pause: Duration::ZERO, cut: false }
    }
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

type Play = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// The server; everything it saw is kept.
pub struct Wire {
    pub url: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    /// `play` gets each request and how many came before it.
    pub async fn start(play: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("has an address"));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (play, kept): (Arc<Play>, _) = (Arc::new(play), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (play, kept) = (Arc::clone(&play), Arc::clone(&kept));
                tokio::spawn(async move { serve(stream, &play, &kept).await });
            }
        });
        Self { url, seen, task }
    }

    pub fn count(&self) -> usize {
        self.seen.lock().expect("not poisoned").len()
    }
}

async fn serve(mut stream: TcpStream, play: &Arc<Play>, kept: &Mutex<Vec<Seen>>) -> Option<()> {
    let mut bytes = Vec::new();
    let seen = loop {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&part[..read]);
        if let Some(seen) = parse(&bytes) {
            break seen;
        }
    };
    let before = {
        let mut kept = kept.lock().expect("not poisoned");
        kept.push(seen.clone());
        kept.len() - 1
    };
    let reply = play(&seen, before);
    let headers: String = reply.headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
    let head = format!(
        "HTTP/1.1 {} Played\r\n{headers}transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        reply.status
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    for part in reply.parts.iter().filter(|p| !p.is_empty()) {
        stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        tokio::time::sleep(reply.pause).await;
    }
    if !reply.cut {
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    }
    stream.shutdown().await.ok()
}

fn parse(bytes: &[u8]) -> Option<Seen> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length =
        head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
    let length: usize = length.map_or(0, |l| l.trim().parse().expect("a number"));
    if body.len() < length {
        return None;
    }
    let mut words = head.split(' ');
    Some(Seen {
        method: words.next()?.into(),
        path: words.next()?.into(),
        head: head.into(),
        body: serde_json::from_str(body).unwrap_or(Value::Null),
    })
}

fn event(name: &str, mut data: Value) -> String {
    data["type"] = json!(name);
    format!("event: {name}\ndata: {data}\n\n")
}

/// A message with a text and a call of a tool, event by event, as the Messages API streams it.
pub fn messages_stream() -> Vec<String> {
    let delta =
        |index: u32, delta: Value| event("content_block_delta", json!({ "index": index, "delta": delta }));
    vec![
        event(
            "message_start",
            json!({ "message": { "id": "msg_1", "model": "m-1", "content": [],
            "usage": { "input_tokens": 25, "output_tokens": 1, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 9 } } }),
        ),
        event("content_block_start", json!({ "index": 0, "content_block": { "type": "text", "text": "" } })),
        event("ping", json!({})),
        delta(0, json!({ "type": "text_delta", "text": "Let me " })),
        delta(0, json!({ "type": "text_delta", "text": "see — ja." })),
        event("content_block_stop", json!({ "index": 0 })),
        event(
            "content_block_start",
            json!({ "index": 1, "content_block": { "type": "tool_use", "id": "t", "name": "emit", "input": {} } }),
        ),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "" })),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "{\"a\": " })),
        event("something_new", json!({ "field": [1] })),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "[1, 2]}" })),
        event("content_block_stop", json!({ "index": 1 })),
        event(
            "message_delta",
            json!({ "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 42 } }),
        ),
        event("message_stop", json!({})),
    ]
}

/// The same answer as chunks of chat completions.
pub fn chunks_stream() -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!(
            "data: {}\n\n",
            json!({ "id": "c", "model": "m-1", "object": "chat.completion.chunk", "choices": [choice] })
        )
    };
    let call =
        |arguments: &str| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": arguments } }] });
    let usage = json!({ "prompt_tokens": 41, "completion_tokens": 42, "prompt_tokens_details": { "cached_tokens": 9 } });
    vec![
        chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        ": a comment\n\n".into(),
        chunk(json!({ "content": "Let me " }), Value::Null),
        chunk(json!({ "content": "see — ja." }), Value::Null),
        chunk(
            json!({ "tool_calls": [{ "index": 0, "id": "t", "type": "function", "function": { "name": "emit", "arguments": "" } }] }),
            Value::Null,
        ),
        chunk(call("{\"a\": "), Value::Null),
        chunk(call("[1, 2]}"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        format!("data: {}\n\n", json!({ "model": "m-1", "choices": [], "usage": usage })),
        "data: [DONE]\n\n".into(),
    ]
}
