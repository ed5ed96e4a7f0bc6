//! Voices by name: those of the speech engines, and uploads.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, get, post};
use audio::voice::{LongVoice, voice_samples_with};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::frame::{SAMPLE_RATE, SAMPLES_PER_FRAME, samples_to_ms};
use domain::run::FieldFault;
use domain::{ErrorCode, VoiceId};
use rest::once::Created;
use rest::{Asked, Form, List, PageQuery, Posted, Problem, read_form};
use serde::Serialize;
use store::voices::{NewUpload, Voice};
use store::{StoreError, Tx};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;
use weights::VoiceFile;

use crate::state::Shared;
use rest::names;

/// Text fields of an upload.
const FIELDS: [&str; 3] = ["name", "consent", "trim"];

/// Speech engines register their own voices under names that begin so; datasets refer to them.
const ENGINE_PREFIXES: [&str; 3] = ["flite-", "espeak-", "vibevoice-"];

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(create_voice).service(list_voices).service(get_voice);
}

/// An upload.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the form in the document")]
pub struct CreateVoice {
    /// Unique; what sessions refer to.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", example = "anna")]
    name: String,
    /// Must be `true`: the speaker has agreed to the use of this voice.
    #[schema(example = true)]
    consent: bool,
    /// Whether a recording longer than 60 s is cut to its first 60 s instead of refused.
    #[schema(default = false)]
    trim: Option<bool>,
    /// A WAV of speech (more than 0.4 s, at most 60 s, 8 to 96 kHz, 1 or 2 channels), or a `.pt` of embeddings as the
    /// published package saves it.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// A voice for the agent.
#[derive(Debug, Serialize, ToSchema)]
pub struct VoiceView {
    id: VoiceId,
    /// Always `voice`.
    #[schema(example = "voice")]
    object: &'static str,
    /// What sessions refer to.
    #[schema(example = "flite-slt")]
    name: String,
    /// Engine that made it, or `upload`.
    source: String,
    /// `samples` suit every model; `embeddings` only models of their width.
    #[schema(example = "samples")]
    form: String,
    /// Width of the model that embeddings are for.
    dim: Option<i32>,
    duration_ms: i64,
    /// Hex SHA-256 of the wav, or of the converted embeddings.
    sha256: String,
    /// When the uploader said that the speaker agreed; `null` for voices of engines.
    consented_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Voice> for VoiceView {
    fn from(v: Voice) -> Self {
        Self {
            id: v.id,
            object: "voice",
            name: v.name,
            source: v.source,
            form: v.form,
            dim: v.dim,
            duration_ms: v.duration_ms,
            sha256: v.sha256,
            consented_at: v.consented_at,
            created_at: v.created_at,
        }
    }
}

/// An upload that was read and found good.
struct Checked {
    /// The wav as sent; embeddings have none.
    wav: Option<Bytes>,
    /// What serving reads.
    prompt: Vec<u8>,
    dim: Option<i32>,
    duration_ms: u64,
}

/// Upload a voice.
///
/// The file is checked before anything is stored, and converted once: a WAV to mono, 24 kHz, -24 LUFS; a `.pt` is read
/// by a strict reader that runs nothing it contains, and kept as safetensors. The voice can be used at once.
#[utoipa::path(operation_id = "createVoice", tag = "models",
    request_body(content = CreateVoice, content_type = "multipart/form-data"),
    responses((status = 201, description = "The voice can be used.", body = VoiceView)),
    extensions(("x-required-scope" = json!("models:write"))))]
#[post("/v1/voices")]
async fn create_voice(state: Shared, req: HttpRequest, payload: Payload) -> Result<HttpResponse, Problem> {
    let posted = read_form(&req, payload, &FIELDS, state.gateway.max_voice_bytes).await?;
    // A task of its own: a client that leaves must not leave half a voice behind.
    let task = actix_web::rt::spawn(register_voice(state, posted));
    task.await.unwrap_or_else(|error| Err(Problem::internal(error)))
}

async fn register_voice(state: Shared, posted: Posted<Form>) -> Result<HttpResponse, Problem> {
    let id = VoiceId::generate();
    let prefix = format!("voices/{id}");
    let prepare = async |form: Form| {
        let (name, file, long) = checked_fields(form)?;
        match store::voices::find(&state.store, &name).await {
            Ok(_) => return Err(Problem::new(ErrorCode::NameTaken, "another voice has this name")),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let checked = tokio::task::spawn_blocking(move || check(file, long));
        let checked = checked.await.map_err(Problem::internal)??;
        let prompt = state.artifacts.put(&format!("{prefix}/prompt.safetensors"), checked.prompt).await?;
        let original = match checked.wav {
            Some(wav) => state.artifacts.put(&format!("{prefix}/original.wav"), wav).await?,
            None => prompt.clone(),
        };
        Ok(NewUpload {
            id,
            name,
            artifact: original.path,
            sha256: original.sha256,
            prompt_artifact: prompt.path,
            prompt_sha256: prompt.sha256,
            dim: checked.dim,
            duration_ms: checked.duration_ms,
        })
    };
    let write = async |tx: &mut Tx, new: NewUpload| {
        let view = VoiceView::from(store::voices::insert(tx, &new).await?);
        Ok(Created { location: format!("/v1/voices/{id}"), view })
    };
    let answer = posted.once(&state.store, &[], prepare, write).await;
    // Whoever did not become a row leaves no files: a failed check, a lost race, a replay.
    if matches!(store::voices::get(&state.store, &id.to_string()).await, Err(StoreError::NotFound { .. }))
        && let Err(error) = state.artifacts.delete_prefix(&prefix).await
    {
        tracing::warn!(%error, %prefix, "cannot remove the files of a refused voice");
    }
    answer
}

/// Name, file and what to do with a long recording.
fn checked_fields(mut form: Form) -> Result<(String, Bytes, LongVoice), Problem> {
    let (consent, trim) = (form.flag("consent")?, form.flag("trim")?);
    let fault = |pointer: &str, detail: &str| FieldFault { pointer: pointer.into(), detail: detail.into() };
    let mut faults = Vec::new();
    if consent != Some(true) {
        faults.push(fault("/consent", "must be true: a voice is registered only with its speaker's consent"));
    }
    let name = form.texts.remove("name").unwrap_or_default();
    if let Some(prefix) = ENGINE_PREFIXES.iter().find(|p| name.starts_with(**p)) {
        faults.push(fault("/name", &format!("names that begin with {prefix:?} belong to a speech engine")));
    }
    if form.file.as_ref().is_none_or(Bytes::is_empty) {
        faults.push(fault("/file", "is missing or empty"));
    }
    names::check(&name, faults)?;
    let long = if trim == Some(true) { LongVoice::Trim } else { LongVoice::Refuse };
    Ok((name, form.file.unwrap_or_default(), long))
}

/// Reads the file by what it is, not by what it is called.
fn check(file: Bytes, long: LongVoice) -> Result<Checked, Problem> {
    if file.starts_with(b"RIFF") {
        let samples = voice_samples_with(&file, long).map_err(|e| refused(&e, long))?;
        let duration_ms = samples_to_ms(samples.len() as u64, SAMPLE_RATE);
        let prompt = VoiceFile::Samples(samples).to_bytes();
        return Ok(Checked { wav: Some(file), prompt, dim: None, duration_ms });
    }
    let voice = VoiceFile::from_torch(&file).map_err(|error| {
        Problem::field("/file", format!("is neither a WAV nor a .pt voice prompt that can be used: {error}"))
    })?;
    let VoiceFile::Embeddings(embeddings) = &voice else {
        return Err(Problem::field("/file", "holds no embeddings"));
    };
    let samples = (embeddings.calls() * SAMPLES_PER_FRAME) as u64;
    Ok(Checked {
        wav: None,
        dim: Some(i32::try_from(embeddings.dim).unwrap_or(i32::MAX)),
        duration_ms: samples_to_ms(samples, SAMPLE_RATE),
        prompt: voice.to_bytes(),
    })
}

fn refused(error: &audio::AudioError, long: LongVoice) -> Problem {
    let hint = match (error, long) {
        (audio::AudioError::TooLong { .. }, LongVoice::Refuse) => "; `trim=true` keeps the first 60 s",
        _ => "",
    };
    Problem::field("/file", format!("{error}{hint}"))
}

/// List voices.
#[utoipa::path(operation_id = "listVoices", tag = "models", params(PageQuery),
    responses((status = 200, description = "A page of voices.", body = List<VoiceView>)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/voices")]
async fn list_voices(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::voices::list(&state.store, page.0.request(VoiceId::uuid)?).await?;
    let views = page.items.into_iter().map(VoiceView::from).collect();
    Ok(List::page(views, |v: &VoiceView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a voice.
#[utoipa::path(operation_id = "getVoice", tag = "models", params(("id" = String, Path, description = "Id or name of the voice.", example = "flite-slt")),
    responses((status = 200, description = "The voice.", body = VoiceView)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/voices/{id}")]
async fn get_voice(state: Shared, req: HttpRequest) -> Result<HttpResponse, Problem> {
    let id = req.match_info().get("id").filter(|id| !id.contains('\0')).unwrap_or("");
    Ok(HttpResponse::Ok().json(VoiceView::from(store::voices::get(&state.store, id).await?)))
}
