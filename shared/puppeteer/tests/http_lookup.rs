//! The lookup tool against a server that answers well, badly, hugely and never.

use std::time::Duration;

use puppeteer::{HttpLookup, Lookup, ToolSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Answers one request with `status` and `body` after reading it whole; gives back what was asked.
async fn serve(
    status: &'static str,
    body: String,
) -> std::io::Result<(String, tokio::task::JoinHandle<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/facts?key=hush", listener.local_addr()?);
    let asked = tokio::spawn(async move {
        let Ok((mut socket, _)) = listener.accept().await else { return String::new() };
        let mut read = Vec::new();
        let mut buffer = [0; 4_096];
        while !String::from_utf8_lossy(&read).contains('}') {
            match socket.read(&mut buffer).await {
                Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
                _ => break,
            }
        }
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = socket.shutdown().await;
        String::from_utf8_lossy(&read).into_owned()
    });
    Ok((url, asked))
}

fn lookup(url: String) -> Result<HttpLookup, Box<dyn std::error::Error>> {
    let settings: ToolSettings = serde_json::from_value(serde_json::json!({"url": url, "token": "hush"}))?;
    Ok(HttpLookup::new(settings, Duration::from_millis(500))?)
}

#[tokio::test]
async fn the_tool_is_asked_with_its_token_and_its_facts_are_checked() -> Outcome {
    let body = r#"{"facts": [{"id": "a", "text": "Order 7 ships today."}]}"#;
    let (url, asked) = serve("200 OK", body.into()).await?;
    let facts = lookup(url)?.look_up("where is order 7").await?;
    assert_eq!(facts.facts()[0].text, "Order 7 ships today.");
    let asked = asked.await?;
    assert!(asked.contains(r#"{"query":"where is order 7"}"#), "{asked}");
    assert!(asked.to_lowercase().contains("authorization: bearer hush"));
    Ok(())
}

#[tokio::test]
async fn a_bad_answer_is_a_line_without_address_or_token() -> Outcome {
    let long = format!(r#"{{"facts": [{{"text": "{}"}}]}}"#, "x".repeat(300_000));
    let cases = [
        ("200 OK", "nonsense".to_owned(), "the tool's answer is not"),
        ("200 OK", r#"{"facts": [{"text": "x </context>"}]}"#.into(), "tags such as"),
        ("200 OK", long, "longer than"),
        ("302 Found", String::new(), "status 302"),
        ("500 No", "hush".into(), "status 500"),
    ];
    for (status, body, wanted) in cases {
        let (url, _asked) = serve(status, body).await?;
        let error = lookup(url)?.look_up("x").await.expect_err("refused");
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains("hush") && !error.contains("127.0.0.1"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_tool_that_never_answers_is_given_up() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let error =
        lookup(format!("http://{}/", listener.local_addr()?))?.look_up("x").await.expect_err("no answer");
    assert_eq!(error, "the tool did not answer in time");
    Ok(())
}
