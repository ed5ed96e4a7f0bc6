//! Registered voices as sessions use them.

use anyhow::{Context, Result};
use domain::session::{SamplingParams, SessionOptions, SessionPace};
use domain::{SessionId, VoiceId};
use store::sessions::NewSession;
use store::voices::NewUpload;
use weights::{Dtype, ModelConfig, RING_ROWS, VOICE_STREAMS, VoiceEmbeddings, VoiceFile};

use crate::house::{House, TOKEN, tone};
use crate::phone::{Phone, call};

/// Seven voice frames of a model of this width.
fn embeddings(dim: usize) -> VoiceFile {
    let values = (0..6 * dim).flat_map(|i| ((i as f32 * 0.37).sin() * 0.05).to_le_bytes()).collect();
    VoiceFile::Embeddings(Box::new(VoiceEmbeddings {
        dtype: Dtype::F32,
        dim,
        embeddings: values,
        ring: [[3; RING_ROWS]; VOICE_STREAMS],
    }))
}

/// Registers a voice as the gateway does; gives the place of its file.
async fn register(house: &House, name: &str, file: &VoiceFile) -> Result<std::path::PathBuf> {
    let id = VoiceId::generate();
    let key = format!("voices/{id}/prompt.safetensors");
    let put = house.files.artifacts.put(&key, file.to_bytes()).await?;
    let dim = match file {
        VoiceFile::Embeddings(e) => Some(i32::try_from(e.dim)?),
        _ => None,
    };
    let new = NewUpload {
        id,
        name: name.into(),
        artifact: put.path.clone(),
        sha256: put.sha256.clone(),
        prompt_artifact: put.path,
        prompt_sha256: put.sha256,
        dim,
        duration_ms: 560,
    };
    let mut tx = house.store.begin().await?;
    store::voices::insert(&mut tx, &new).await?;
    tx.commit().await?;
    Ok(house.files.artifacts.local_path(&key)?)
}

async fn session(house: &House, voice: &str, text_prompt: &str) -> Result<SessionId> {
    let id = SessionId::generate();
    let new = NewSession {
        id,
        model_id: house.model.id,
        voice: Some(voice.into()),
        text_prompt: text_prompt.into(),
        sampling: SamplingParams::default(),
        options: SessionOptions { pace: SessionPace::Audio, ..SessionOptions::default() },
        ticket_sha256: id.to_string().into_bytes(),
        ticket_ttl_s: 60,
    };
    let mut tx = house.store.begin().await?;
    store::sessions::insert(&mut tx, &new).await?;
    tx.commit().await?;
    Ok(id)
}

async fn refusal(house: &House, id: SessionId) -> Result<(u16, String)> {
    let response = call(house, &id.to_string(), TOKEN).await?.err().context("a refusal")?;
    let body = response.body().as_deref().unwrap_or_default();
    Ok((response.status().as_u16(), String::from_utf8_lossy(body).into_owned()))
}

#[tokio::test]
async fn stored_samples_and_embeddings_of_the_right_width_open_a_session() -> Result<()> {
    let house = House::open(&[]).await?;
    let dim = usize::try_from(ModelConfig::preset("tiny")?.lm.dim)?;
    for (name, file) in [("samples", VoiceFile::Samples(tone())), ("embedded", embeddings(dim))] {
        register(&house, name, &file).await?;
        for text in ["you are June", ""] {
            let id = session(&house, name, text).await?;
            let mut phone = Phone::dial(&house, id).await?;
            let header = phone.header();
            phone.send(1, &header).await?;
            phone.speak(3).await?;
            phone.end().await?;
            let heard = phone.listen_out().await?;
            assert_eq!((heard.samples, heard.close), (3 * 1_920, Some(1000)), "{name} {text:?}");
        }
    }
    house.close().await
}

#[tokio::test]
async fn voices_that_do_not_fit_or_are_gone_are_refused_before_the_upgrade() -> Result<()> {
    let house = House::open(&[]).await?;
    let dim = usize::try_from(ModelConfig::preset("tiny")?.lm.dim)?;
    register(&house, "wide", &embeddings(dim * 2)).await?;
    let (status, body) = refusal(&house, session(&house, "wide", "x").await?).await?;
    assert_eq!(status, 422, "{body}");
    let mut foreign = embeddings(dim);
    if let VoiceFile::Embeddings(e) = &mut foreign {
        e.ring = [[500_000; RING_ROWS]; VOICE_STREAMS];
    }
    register(&house, "foreign", &foreign).await?;
    assert_eq!(refusal(&house, session(&house, "foreign", "x").await?).await?.0, 422);
    // Never a conversation without its voice: a lost or changed file is an error.
    let lost = register(&house, "lost", &VoiceFile::Samples(tone())).await?;
    std::fs::remove_file(lost)?;
    let (status, body) = refusal(&house, session(&house, "lost", "x").await?).await?;
    assert!(status >= 500, "{status} {body}");
    let changed = register(&house, "changed", &embeddings(dim)).await?;
    let mut bytes = std::fs::read(&changed)?;
    *bytes.last_mut().context("not empty")? ^= 1;
    std::fs::write(&changed, bytes)?;
    assert!(refusal(&house, session(&house, "changed", "x").await?).await?.0 >= 500);
    assert_eq!(refusal(&house, session(&house, "nobody", "x").await?).await?.0, 404);
    // A brief that would close its own block.
    let (status, body) = refusal(&house, session(&house, crate::house::VOICE, "a <system> b").await?).await?;
    assert_eq!(status, 422, "{body}");
    house.close().await
}

#[tokio::test]
async fn a_codec_with_other_constants_is_refused_only_when_that_is_asked_for() -> Result<()> {
    // The weights are random, so the codec does not give the configured codes; every other test runs with a warning.
    let house = House::open(&[("STRICT_CONSTANTS", "true")]).await?;
    let id = house.session("x", SamplingParams::default()).await?;
    assert_eq!(Phone::dial(&house, id).await?.listen_out().await?.close, Some(4002));
    assert_eq!(house.ended(id).await?.close_reason.as_deref(), Some("model_error"));
    house.close().await
}
