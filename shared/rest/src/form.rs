//! `multipart/form-data` bodies: a few short text fields and one file, each limit with its own problem.

use std::collections::BTreeMap;

use actix_multipart::{Field, Multipart, MultipartError};
use actix_web::http::header;
use actix_web::web::Payload;
use actix_web::{HttpMessage, HttpRequest};
use bytes::{Bytes, BytesMut};
use domain::ErrorCode;
use futures::StreamExt;
use sha2::{Digest, Sha256};

use crate::body::{DRAIN_BYTES, idempotency_key};
use crate::{Caller, Posted, Problem};

/// Longest text field.
const MAX_TEXT_BYTES: usize = 1_024;

/// A form as sent.
#[derive(Debug, Default)]
pub struct Form {
    /// Text fields by name.
    pub texts: BTreeMap<String, String>,
    /// Content of the field `file`.
    pub file: Option<Bytes>,
}

impl Form {
    /// A field that says `true` or `false`.
    ///
    /// # Errors
    /// 422 for any other word.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        match self.texts.get(name).map(String::as_str) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                let shown: String = other.chars().take(80).collect();
                Err(Problem::field(format!("/{name}"), format!("must be true or false, not {shown:?}")))
            }
        }
    }
}

/// Reads a form whose text fields are among `known`; the file has at most `limit` bytes.
///
/// # Errors
/// 415 for another media type, 400 for a broken form, 413 above the limit, 422 for unknown, repeated or binary fields.
pub async fn read_form(
    req: &HttpRequest,
    payload: Payload,
    known: &[&str],
    limit: usize,
) -> Result<Posted<Form>, Problem> {
    let key = idempotency_key(req)?;
    media_type(req)?;
    let mut parts = Multipart::new(req.headers(), payload);
    let (mut form, mut drained) = (Form::default(), 0usize);
    while let Some(field) = parts.next().await {
        let mut field = field.map_err(|e| broken(&e))?;
        let name = field.name().unwrap_or("").to_owned();
        if name == "file" {
            let content = collect(&mut field, limit, &mut drained).await?;
            let content =
                content.ok_or_else(|| too_large(format!("the file is larger than {limit} bytes")))?;
            if form.file.replace(content).is_some() {
                return Err(Problem::field("/file", "is there twice"));
            }
            continue;
        }
        let shown: String = name.chars().take(80).collect();
        if !known.contains(&name.as_str()) {
            let detail = format!("is unknown; there are file, {}", known.join(", "));
            return Err(Problem::field(format!("/{shown}"), detail));
        }
        let content = collect(&mut field, MAX_TEXT_BYTES, &mut drained).await?;
        let text = content.and_then(|c| String::from_utf8(c.to_vec()).ok());
        let text = text.ok_or_else(|| {
            Problem::field(format!("/{name}"), format!("must be at most {MAX_TEXT_BYTES} bytes of UTF-8"))
        })?;
        if form.texts.insert(name, text).is_some() {
            return Err(Problem::field(format!("/{shown}"), "is there twice"));
        }
    }
    let caller = req.extensions().get::<Caller>().map(|c| c.key.to_string()).unwrap_or_default();
    let scope = format!("{caller} {} {}", req.method(), req.path());
    Ok(Posted { fingerprint: fingerprint(&form), body: form, scope, key })
}

fn media_type(req: &HttpRequest) -> Result<(), Problem> {
    let given = req.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("multipart/form-data") {
        return Ok(());
    }
    let shown: String = given.chars().take(80).collect();
    let found = if shown.is_empty() { "no Content-Type".to_owned() } else { format!("{shown:?}") };
    let detail = format!("expected Content-Type multipart/form-data, found {found}");
    Err(Problem::new(ErrorCode::UnsupportedMediaType, detail))
}

/// The content of a field; none when it is longer than `limit`. What is too much is read and thrown away up to a bound,
/// so that the client can finish sending and read the answer.
async fn collect(field: &mut Field, limit: usize, drained: &mut usize) -> Result<Option<Bytes>, Problem> {
    let (mut bytes, mut fits) = (BytesMut::new(), true);
    while let Some(chunk) = field.next().await {
        let chunk = chunk.map_err(|e| broken(&e))?;
        fits &= bytes.len() + chunk.len() <= limit;
        if fits {
            bytes.extend_from_slice(&chunk);
            continue;
        }
        bytes = BytesMut::new();
        *drained += chunk.len();
        if *drained > DRAIN_BYTES {
            break;
        }
    }
    Ok(fits.then(|| bytes.freeze()))
}

fn too_large(detail: String) -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, detail)
}

fn broken(error: &MultipartError) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, format!("the form could not be read: {error}"))
}

/// SHA-256 of the content, whatever the order of the fields and the boundary between them.
fn fingerprint(form: &Form) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (name, text) in &form.texts {
        for part in [name, text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.update(b"file");
    hash.update(form.file.as_deref().unwrap_or_default());
    hash.finalize().into()
}
