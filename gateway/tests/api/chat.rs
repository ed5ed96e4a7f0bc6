//! The websocket front door against an inference that the test plays.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{Gateway, INTERNAL_TOKEN};

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Echoes frames; refuses when told to; a text frame `close` makes it close with 4001.
struct Inference {
    url: String,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Inference {
    async fn start(refuse: Option<(u16, &'static str)>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&paths);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    #[expect(clippy::result_large_err, reason = "the callback's type is the library's")]
                    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
                        assert_eq!(request.headers()["x-ppx-internal"], INTERNAL_TOKEN);
                        seen.lock().unwrap().push(request.uri().path().to_owned());
                        let Some((status, body)) = refuse else { return Ok(response) };
                        let mut refusal = ErrorResponse::new(Some(body.to_owned()));
                        *refusal.status_mut() = status.try_into().unwrap();
                        refusal.headers_mut().insert("retry-after", "7".parse().unwrap());
                        Err(refusal)
                    };
                    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, check).await else {
                        return;
                    };
                    while let Some(Ok(message)) = socket.next().await {
                        let close = CloseFrame { code: 4001.into(), reason: "max duration".into() };
                        let answer = match message {
                            Message::Text(text) if text == "close" => Message::Close(Some(close)),
                            Message::Text(_) | Message::Binary(_) => message,
                            _ => continue,
                        };
                        if socket.send(answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { url, paths })
    }

    fn sessions(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

/// Opens a socket; a refusal as its status, headers and problem.
async fn open(
    gateway: &Gateway,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<Result<Socket, (u16, Value)>> {
    let mut request = format!("{}{path}", gateway.base.replace("http", "ws")).into_client_request()?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse()?);
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(Ok(socket)),
        Err(Error::Http(answer)) => {
            let body =
                serde_json::from_slice(answer.body().as_deref().unwrap_or(b"null")).unwrap_or(Value::Null);
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
            Ok(Err((answer.status().as_u16(), body)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn next(socket: &mut Socket) -> Result<Message> {
    loop {
        let message =
            tokio::time::timeout(Duration::from_secs(10), socket.next()).await?.context("open")??;
        if !message.is_ping() && !message.is_pong() {
            return Ok(message);
        }
    }
}

async fn with_inference(inference: &Inference, more: &[(&str, &str)]) -> Result<Gateway> {
    let mut settings = vec![("PPX__GATEWAY__INFERENCE_URL", inference.url.as_str())];
    settings.extend_from_slice(more);
    let gateway = Gateway::start_with(&settings).await?;
    gateway.tiny_model("tiny").await?;
    Ok(gateway)
}

/// Ticket of a fresh session.
async fn ticket(gateway: &Gateway) -> Result<String> {
    let made = gateway.post("/v1/sessions", &json!({"model": "tiny"})).await?;
    made.body["ticket"].as_str().map(str::to_owned).context("ticket")
}

#[tokio::test]
async fn frames_pass_unchanged_in_both_directions_and_close_codes_too() -> Result<()> {
    let inference = Inference::start(None).await?;
    let gateway = with_inference(&inference, &[]).await?;
    let made = gateway.post("/v1/sessions", &json!({"model": "tiny", "text_prompt": "ROLE: x"})).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    let mut socket = open(&gateway, made.body["url"].as_str().unwrap(), &[]).await?.unwrap();
    let id = made.body["id"].as_str().unwrap();
    assert_eq!(inference.sessions(), [format!("/internal/sessions/{id}/socket")]);
    for size in [0, 1, 125, 126, 70_000] {
        let frame = Message::binary((0..size).map(|i| u8::try_from(i % 251).unwrap()).collect::<Vec<_>>());
        socket.send(frame.clone()).await?;
        assert_eq!(next(&mut socket).await?, frame);
    }
    socket.send(Message::text("{\"type\":\"context\",\"text\":\"ä\"}")).await?;
    assert_eq!(next(&mut socket).await?, Message::text("{\"type\":\"context\",\"text\":\"ä\"}"));
    let view = gateway.get(&format!("/v1/sessions/{id}")).await?.body;
    assert_eq!(view["state"], "live");
    let second = open(&gateway, made.body["url"].as_str().unwrap(), &[]).await?.unwrap_err();
    assert_eq!((second.0, second.1["code"].as_str()), (409, Some("conflict")));
    socket.send(Message::text("close")).await?;
    match next(&mut socket).await? {
        Message::Close(Some(frame)) => {
            assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4001, "max duration"))
        }
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn each_way_to_authenticate_works() -> Result<()> {
    let inference = Inference::start(None).await?;
    let gateway = with_inference(&inference, &[]).await?;
    let bearer = format!("Bearer {}", gateway.key);
    assert!(open(&gateway, &format!("/api/chat?ticket={}", ticket(&gateway).await?), &[]).await?.is_ok());
    assert!(
        open(
            &gateway,
            &format!("/s/{}/api/chat?voice_prompt=NATF2.pt&text_prompt=x", ticket(&gateway).await?),
            &[]
        )
        .await?
        .is_ok()
    );
    let protocols = format!("ppx.v1, ppx.ticket.{}", ticket(&gateway).await?);
    assert!(open(&gateway, "/api/chat", &[("sec-websocket-protocol", &protocols)]).await?.is_ok());
    assert!(open(&gateway, "/api/chat?seed=7&pad_mult=0", &[("authorization", &bearer)]).await?.is_ok());
    let host = gateway.base.trim_start_matches("http://").to_owned();
    let own = format!("http://{host}");
    assert!(
        open(&gateway, &format!("/api/chat?ticket={}", ticket(&gateway).await?), &[("origin", &own)])
            .await?
            .is_ok()
    );

    Ok(())
}

#[tokio::test]
async fn each_wrong_way_to_authenticate_is_a_problem() -> Result<()> {
    let inference = Inference::start(None).await?;
    let gateway = with_inference(&inference, &[]).await?;
    let bearer = format!("Bearer {}", gateway.key);
    let used = ticket(&gateway).await?;
    store::sessions::redeem(&gateway.store, &gateway::chat::ticket::hash(&used)).await?.context("live")?;
    let id = gateway.get("/v1/sessions?limit=1").await?.body["data"][0]["id"].as_str().unwrap().parse()?;
    store::sessions::end(&gateway.store, id, "test", None).await?;
    for (path, headers, status, code) in [
        ("/api/chat".to_owned(), vec![], 401, "unauthenticated"),
        ("/api/chat?ticket=wrong".to_owned(), vec![], 401, "unauthenticated"),
        (format!("/api/chat?ticket={used}"), vec![], 401, "unauthenticated"),
        ("/api/chat".to_owned(), vec![("authorization", "Bearer x")], 401, "unauthenticated"),
        (
            format!("/api/chat?ticket={}", ticket(&gateway).await?),
            vec![("origin", "https://evil.example")],
            403,
            "forbidden",
        ),
        (
            "/api/chat?voice_prompt=../../etc/passwd".to_owned(),
            vec![("authorization", bearer.as_str())],
            404,
            "not_found",
        ),
        ("/api/chat?model=nothing".to_owned(), vec![("authorization", bearer.as_str())], 404, "not_found"),
        (
            "/api/chat?text_topk=many".to_owned(),
            vec![("authorization", bearer.as_str())],
            400,
            "invalid_request",
        ),
    ] {
        let refused = open(&gateway, &path, &headers).await?.err().with_context(|| path.clone())?;
        assert_eq!((refused.0, refused.1["code"].as_str()), (status, Some(code)), "{path}: {}", refused.1);
        assert!(!refused.1.to_string().contains(&used), "the ticket is not repeated");
    }
    let refused =
        open(&gateway, "/api/chat?model=nothing", &[("authorization", &bearer)]).await?.unwrap_err();
    assert!(refused.1["detail"].as_str().unwrap().contains("tiny"), "valid names are told: {}", refused.1);
    gateway.get("/api/chat").await?.assert_problem(400, "invalid_request");
    Ok(())
}

#[tokio::test]
async fn a_ticket_that_was_not_used_in_time_is_refused() -> Result<()> {
    let inference = Inference::start(None).await?;
    let gateway = with_inference(&inference, &[("PPX__GATEWAY__TICKET_TTL_SECONDS", "0")]).await?;
    let url = gateway.post("/v1/sessions", &json!({"model": "tiny"})).await?.body["url"].clone();
    assert_eq!(open(&gateway, url.as_str().unwrap(), &[]).await?.unwrap_err().0, 401);
    Ok(())
}

#[tokio::test]
async fn anonymous_sockets_need_the_setting_and_get_the_newest_merged_model() -> Result<()> {
    let inference = Inference::start(None).await?;
    let gateway = with_inference(&inference, &[("PPX__AUTH__ANONYMOUS_CHAT", "true")]).await?;
    let base = store::models::find(&gateway.store, "tiny").await?;
    let mut tx = gateway.store.begin().await?;
    let merged = store::models::NewModel {
        id: domain::ModelId::generate(),
        name: "merged".into(),
        kind: "merged",
        prefix: "models/x".into(),
        files: vec![],
        base_id: Some(base.id),
        run_id: None,
    };
    store::models::insert(&mut tx, &merged).await?;
    store::commit(tx).await?;
    let query = "text_prompt=You%20help&seed=11&text_temperature=9&audio_topk=5";
    assert!(open(&gateway, &format!("/api/chat?{query}"), &[]).await?.is_ok());
    let session = gateway.get("/v1/sessions").await?.body["data"][0].clone();
    assert_eq!(session["model_id"], merged.id.to_string());
    assert_eq!(session["sampling"]["seed"], 11);
    assert_eq!(session["sampling"]["text_temperature"], 1.5);
    assert_eq!(session["sampling"]["audio_topk"], 5);
    let foreign = open(&gateway, "/api/chat", &[("origin", "https://evil.example")]).await?.unwrap_err();
    assert_eq!(foreign.0, 403);
    Ok(())
}

#[tokio::test]
async fn a_full_or_missing_inference_is_told_before_the_upgrade() -> Result<()> {
    let full = "{\"code\":\"session_capacity\",\"detail\":\"4 of 4 slots are taken\"}";
    let inference = Inference::start(Some((503, full))).await?;
    let gateway = with_inference(&inference, &[]).await?;
    let bearer = format!("Bearer {}", gateway.key);
    let refused = open(&gateway, "/api/chat", &[("authorization", &bearer)]).await?.unwrap_err();
    assert_eq!((refused.0, refused.1["code"].as_str()), (503, Some("session_capacity")), "{}", refused.1);
    let ended = gateway.get("/v1/sessions").await?.body["data"][0].clone();
    assert_eq!((ended["state"].as_str(), ended["close_reason"].as_str()), (Some("ended"), Some("refused")));

    // The registry goes before the configured address; an entry of a process that is gone is a 503 as well.
    let url = format!("http://127.0.0.1:{}", testkit::free_port()?);
    let client = redis::Client::open(gateway.redis.url())?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let entry = json!({"url": url, "free_slots": 3}).to_string();
    let _: () = redis::AsyncCommands::set(&mut redis, "ppx:inference:gone", entry).await?;
    let refused = open(&gateway, "/api/chat", &[("authorization", &bearer)]).await?.unwrap_err();
    assert_eq!((refused.0, refused.1["code"].as_str()), (503, Some("unavailable")), "{}", refused.1);
    let healthy = Inference::start(None).await?;
    let entry = json!({"url": healthy.url, "free_slots": 4}).to_string();
    let _: () = redis::AsyncCommands::set(&mut redis, "ppx:inference:here", entry).await?;
    assert!(open(&gateway, "/api/chat", &[("authorization", &bearer)]).await?.is_ok());
    assert_eq!(healthy.sessions().len(), 1);
    Ok(())
}

#[tokio::test]
async fn messages_that_are_too_big_close_the_socket_with_1009_and_shutdown_with_1001() -> Result<()> {
    let inference = Inference::start(None).await?;
    let mut gateway = with_inference(&inference, &[]).await?;
    let bearer = format!("Bearer {}", gateway.key);
    let mut socket = open(&gateway, "/api/chat", &[("authorization", &bearer)]).await?.unwrap();
    let mut other = open(&gateway, "/api/chat", &[("authorization", &bearer)]).await?.unwrap();
    socket.send(Message::binary(vec![1u8; 300_000])).await?;
    match next(&mut socket).await? {
        Message::Close(Some(frame)) => assert_eq!(u16::from(frame.code), 1009),
        other => anyhow::bail!("{other:?}"),
    }
    let stopping = tokio::spawn(async move { gateway.stop().await });
    match next(&mut other).await? {
        Message::Close(Some(frame)) => assert_eq!(u16::from(frame.code), 1001),
        other => anyhow::bail!("{other:?}"),
    }
    stopping.await?
}
