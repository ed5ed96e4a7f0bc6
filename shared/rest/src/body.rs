//! JSON bodies: media type, size, syntax, depth, then the type, each with its own problem.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, web};
use bytes::BytesMut;
use domain::ErrorCode;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Api, Caller, Problem};

/// Deepest nesting of a body.
const MAX_DEPTH: usize = 32;

/// Bytes read and thrown away after the limit, so that the client can finish sending and read the answer.
pub(crate) const DRAIN_BYTES: usize = 16 << 20;

/// The body of a POST with what makes it repeatable: caller, path, `Idempotency-Key` and a hash of the content.
#[derive(Debug)]
pub struct Posted<T> {
    /// The parsed body.
    pub body: T,
    pub(crate) scope: String,
    pub(crate) key: Option<String>,
    pub(crate) fingerprint: [u8; 32],
}

impl<T: DeserializeOwned + 'static> FromRequest for Posted<T> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (req, payload) = (req.clone(), payload.take());
        Box::pin(async move { Ok(read(&req, payload).await?) })
    }
}

async fn read<T: DeserializeOwned>(req: &HttpRequest, payload: Payload) -> Result<Posted<T>, Problem> {
    let key = idempotency_key(req)?;
    media_type(req)?;
    let api = req.app_data::<web::Data<Api>>().expect("the app says what it serves");
    let bytes = collect(payload, api.max_json_bytes).await?;
    let value = parse(&bytes)?;
    let fingerprint = fingerprint(&value);
    let body = typed(value)?;
    let caller = req.extensions().get::<Caller>().map(|c| c.key.to_string()).unwrap_or_default();
    Ok(Posted { body, scope: format!("{caller} {} {}", req.method(), req.path()), key, fingerprint })
}

/// The `Idempotency-Key` header, checked.
pub(crate) fn idempotency_key(req: &HttpRequest) -> Result<Option<String>, Problem> {
    let Some(value) = req.headers().get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().ok().filter(|t| (1..=255).contains(&t.len()));
    text.map(|t| Some(t.to_owned())).ok_or_else(|| {
        Problem::new(ErrorCode::InvalidRequest, "Idempotency-Key must be 1 to 255 printable ASCII characters")
    })
}

fn media_type(req: &HttpRequest) -> Result<(), Problem> {
    let given = req.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let shown: String = given.chars().take(80).collect();
    let found = if shown.is_empty() { "no Content-Type".to_owned() } else { format!("{shown:?}") };
    Err(Problem::new(
        ErrorCode::UnsupportedMediaType,
        format!("expected Content-Type application/json, found {found}"),
    ))
}

async fn collect(mut payload: Payload, limit: usize) -> Result<BytesMut, Problem> {
    let (mut bytes, mut seen) = (BytesMut::new(), 0usize);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| {
            Problem::new(ErrorCode::InvalidRequest, format!("the body could not be read: {error}"))
        })?;
        seen += chunk.len();
        if seen <= limit {
            bytes.extend_from_slice(&chunk);
        } else if seen > limit + DRAIN_BYTES {
            break;
        }
    }
    if seen > limit {
        return Err(Problem::new(
            ErrorCode::PayloadTooLarge,
            format!("the body is larger than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let deepest = depth(bytes);
    if deepest > MAX_DEPTH {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("the JSON is nested {deepest} deep; at most {MAX_DEPTH} is read"),
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("the body is not JSON: {what} at line {}, column {}", error.line(), error.column()),
        )
    })
}

/// Deepest nesting of brackets outside of strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut now, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b']' | b'}' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let text = value.to_string();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        let what = error.into_inner().to_string();
        // Line and column would be those of our own copy.
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        Problem::field(pointer, domain::hint::with_hint(&what))
    })
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => String::new(),
        })
        .collect()
}

/// SHA-256 of the content, whatever the order of the members and the white space.
pub(crate) fn fingerprint(value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    feed(&mut hash, value);
    hash.finalize().into()
}

fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            hash.update(b"{");
            for (name, member) in sorted {
                hash.update(Value::from(name.as_str()).to_string());
                hash.update(b":");
                feed(hash, member);
                hash.update(b",");
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                feed(hash, item);
                hash.update(b",");
            }
            hash.update(b"]");
        }
        plain => hash.update(plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_fingerprint_ignores_order_and_nothing_else() {
        let a: Value = serde_json::from_str(r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#).expect("JSON");
        let b: Value = serde_json::from_str(r#" {"b":{"d":"x","c":[1,2]},"a":1}"#).expect("JSON");
        assert_eq!(fingerprint(&a), fingerprint(&b));
        for other in
            [json!({"a":1}), json!({"a":1,"b":{"c":[2,1],"d":"x"}}), json!({"a":"1","b":{"c":[1,2],"d":"x"}})]
        {
            assert_ne!(fingerprint(&a), fingerprint(&other), "{other}");
        }
    }

    #[test]
    fn brackets_inside_strings_do_not_count_as_depth() {
        assert_eq!(depth(br#"{"a":"[[[\"[["}"#), 1);
        assert_eq!(depth(b"[[[]]]"), 3);
    }
}
