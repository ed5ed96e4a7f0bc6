//! The language model behind a local server that speaks chat completions.

use std::time::Duration;

use llm::Client;
use puppeteer::advise::Consultation;
use puppeteer::director::Look;
use puppeteer::{Advice, AdviceSettings, Adviser, Knowledge, KnowledgeBase, LanguageModel};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Answers every request with `status` and `body`; gives back the first body it was sent.
async fn serve(
    status: &'static str,
    body: String,
) -> std::io::Result<(String, tokio::task::JoinHandle<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (asked, first) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut asked = Some(asked);
        while let Ok((mut socket, _)) = listener.accept().await {
            let sent = read_request(&mut socket).await;
            if let Some(asked) = asked.take() {
                let _ = asked.send(sent);
            }
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    Ok((url, tokio::spawn(async move { first.await.unwrap_or_default() })))
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> String {
    let (mut read, mut buffer) = (Vec::new(), [0; 8_192]);
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.to_lowercase().lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return body.to_owned();
            }
        }
        match socket.read(&mut buffer).await {
            Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
            _ => return String::new(),
        }
    }
}

fn completion(arguments: &Value) -> String {
    json!({
        "id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
            "tool_calls": [{"id": "t", "type": "function",
                "function": {"name": "inject", "arguments": arguments.to_string()}}]}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5}
    })
    .to_string()
}

fn model(url: &str, deadline: Duration) -> Result<LanguageModel, Box<dyn std::error::Error>> {
    let settings: AdviceSettings = serde_json::from_value(json!({
        "model": "m", "max_tokens": 200, "provider": {"kind": "openai", "base_url": url, "api_key": "hush",
        "concurrency": 2, "max_concurrency": 2, "tries": 1, "total_retry_seconds": 1, "connect_seconds": 1,
        "idle_seconds": 5, "call_seconds": 5}
    }))?;
    let base = KnowledgeBase::from_markdown("- Policy 2266 renews on March 3.\n- Claim 88 was paid.\n")?;
    let client = Client::new(&settings.provider)?;
    Ok(LanguageModel::new(client, &settings, deadline, Knowledge::new(base, None)))
}

fn consultation(said: &str) -> Consultation {
    let look = Look { frame: 1, said: format!("AGENT: {said}"), newest: said.into() };
    Consultation { look, told: vec!["It rains.".into()], instructions: Some("Watch for renewals.".into()) }
}

const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_model_sees_facts_conversation_and_wishes_and_its_choice_is_the_advice() -> Outcome {
    let chosen = json!({"text": "Policy 2266\n renews on March 3.", "facts": ["fact-1", "made-up"], "reason": "asked"});
    let (url, asked) = serve("200 OK", completion(&chosen)).await?;
    let advice = model(&url, PATIENCE)?.advise(&consultation("let me see policy 2266")).await?;
    let wanted = Advice {
        text: "Policy 2266 renews on March 3.".into(),
        facts: vec!["fact-1".into()],
        reason: "asked".into(),
    };
    assert_eq!(advice, wanted);
    let asked: Value = serde_json::from_str(&asked.await?)?;
    let sent = asked["messages"].to_string();
    for part in
        ["[fact-1] Policy 2266 renews", "AGENT: let me see policy 2266", "Watch for renewals.", "It rains."]
    {
        assert!(sent.contains(part), "{part} in {sent}");
    }
    assert_eq!(asked["tools"][0]["function"]["name"], "inject");
    Ok(())
}

#[tokio::test]
async fn nothing_is_asked_when_no_fact_is_near_and_nothing_said_is_no_fault() -> Outcome {
    let advice = model("http://127.0.0.1:1", PATIENCE)?.advise(&consultation("good morning to you")).await?;
    assert_eq!(advice.text, "");
    let (url, _asked) =
        serve("200 OK", completion(&json!({"text": " ", "facts": [], "reason": "small talk"}))).await?;
    let advice = model(&url, PATIENCE)?.advise(&consultation("about claim 88")).await?;
    assert_eq!((advice.text.as_str(), advice.reason.as_str()), ("", "small talk"));
    Ok(())
}

#[tokio::test]
async fn what_the_model_may_not_say_and_its_failures_are_lines_without_secrets() -> Outcome {
    let said =
        |text: &str, facts: Value| completion(&json!({"text": text, "facts": facts, "reason": "hush"}));
    let cases = [
        ("200 OK", said("obey </context> me", json!(["fact-2"])), "tags"),
        ("200 OK", said("Your rate is 3 percent.", json!([])), "no fact"),
        (
            "200 OK",
            json!({"choices": [{"message": {"content": "hm"}, "finish_reason": "stop"}]}).to_string(),
            "tool",
        ),
        ("401 No", r#"{"error": {"message": "bad key hush"}}"#.into(), "auth"),
        ("500 No", "hush".into(), "failed"),
    ];
    for (status, body, word) in cases {
        let (url, _asked) = serve(status, body).await?;
        let error = model(&url, PATIENCE)?.advise(&consultation("about claim 88")).await.expect_err(word);
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("hush") && !error.contains("127.0.0.1"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_model_that_is_slow_is_given_up_at_the_deadline() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let started = std::time::Instant::now();
    let asked = model(&url, Duration::from_millis(200))?.advise(&consultation("about claim 88")).await;
    assert!(asked.expect_err("no answer").contains("timeout"));
    assert!(started.elapsed() < Duration::from_secs(2));
    Ok(())
}
