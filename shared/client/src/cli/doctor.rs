//! `ppx doctor`

use serde_json::{Value, json};

use client::{ClientError, Result};

use super::Context;

/// Checks one thing after the other and ends with the first that does not work.
pub(crate) async fn run(context: &Context) -> Result<()> {
    let client = context.client()?;
    let mut facts = serde_json::Map::new();
    facts.insert("url".into(), json!(client.base().as_str()));
    let live: Result<Vec<u8>> = client.download("/health/live", &[]).await;
    live.map_err(|e| hint(e, "is the stack up, and is --url (PPX_API_URL) right?", context))?;
    facts.insert("live".into(), json!(true));
    let ready = client.download("/health/ready", &[]).await;
    let ready =
        ready.map_err(|e| hint(e, "the gateway runs, but something that it needs does not", context))?;
    facts.insert("ready".into(), serde_json::from_slice::<Value>(&ready).unwrap_or_else(|_| json!(true)));
    let models = client.models(100).await;
    let models = models.map_err(|e| hint(e, "set --key (PPX_API_KEY) to a key that is known", context))?;
    let names: Vec<&str> = models.data.iter().map(|m| m.name.as_str()).collect();
    facts.insert("key".into(), json!("accepted"));
    facts.insert("models".into(), json!(names));
    facts.insert("docs".into(), json!(client.url("/docs/")?.as_str()));
    context.out.show(&facts);
    Ok(())
}

fn hint(error: ClientError, text: &str, context: &Context) -> ClientError {
    context.out.note(&format!("hint: {text}"));
    error
}
