//! Several models at once: what is loaded, what makes room, adapters beside their base, prompts kept.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use domain::session::SamplingParams;
use domain::{ErrorCode, ModelId};
use futures::FutureExt;
use inference::InferenceError;
use inference::engine::{AdapterSource, Engine, ModelStatus, OpenRequest, Source};
use personaplex::{AdapterMeta, Lm, LoraConfig};
use serde_json::Value;
use store::models::NewModel;
use tch::{Device, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::engine::{free, open, request, talk, tokens};
use crate::house::{Files, House, TOKEN, settings};

/// Writes an adapter that changes what a model says.
fn adapter(files: &Files, model: &NewModel, seed: u64) -> Result<NewModel> {
    let base = files.artifacts.local_path(&model.prefix)?;
    let mut lm = Lm::load(&base, Device::Cpu, Kind::Float)?;
    lm.add_lora(&LoraConfig { rank: 8, ..LoraConfig::default() }, seed)?;
    tch::manual_seed(seed as i64);
    for mut param in lm.trainable().into_iter().filter(|p| p.is_b()) {
        tch::no_grad(|| param.tensor.copy_(&(param.tensor.randn_like() * 0.2)));
    }
    let id = ModelId::generate();
    let prefix = format!("models/{id}");
    let dir = files.artifacts.local_path(&prefix)?;
    let base_sha256 = weights::checkpoint_sha256(&base.join(weights::LM_FILE))?;
    let meta = AdapterMeta { base_sha256, ..AdapterMeta::default() };
    lm.adapter()?.save(&dir, lm.config(), &meta)?;
    let mut written = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        let path = entry?.path();
        let content = std::fs::read(&path)?;
        written.push(domain::dataset::DatasetFile {
            path: path.file_name().context("a name")?.to_string_lossy().into_owned(),
            bytes: content.len() as u64,
            sha256: artifacts::sha256_hex(&content),
        });
    }
    let (name, base_id) = (id.to_string(), Some(model.id));
    Ok(NewModel { id, name, kind: "adapter", prefix, files: written, base_id, run_id: None })
}

fn with_adapter(files: &Files, base: &NewModel, adapter: &NewModel, seed: u64) -> Result<OpenRequest> {
    let mut request = request(files, base, seed)?;
    request.adapter = Some(AdapterSource {
        id: adapter.id,
        dir: files.artifacts.local_path(&adapter.prefix)?,
        files: adapter.files.iter().map(|f| (f.path.clone(), f.sha256.clone())).collect(),
    });
    Ok(request)
}

async fn status(engine: &Engine, id: ModelId) -> Result<Option<ModelStatus>> {
    Ok(engine.models().await?.into_iter().find(|m| m.id == id))
}

#[tokio::test]
async fn adapters_share_their_base_and_each_conversation_says_what_it_says_alone() -> Result<()> {
    let files = Files::new()?;
    let base = files.model(1)?;
    let adapters = [adapter(&files, &base, 1)?, adapter(&files, &base, 2)?];
    let plans = [
        request(&files, &base, 3)?,
        with_adapter(&files, &base, &adapters[0], 3)?,
        with_adapter(&files, &base, &adapters[1], 3)?,
    ];
    let mut alone = Vec::new();
    for plan in &plans {
        let engine = Engine::start(&settings(&[])?)?;
        alone.push(tokens(&talk(&mut open(&engine, plan.clone()).await?, 0..25).await?));
    }
    assert!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0] != alone[2]);
    let engine = Engine::start(&settings(&[("MAX_MODELS", "1")])?)?;
    let mut conversations = Vec::new();
    for plan in &plans {
        conversations.push(open(&engine, plan.clone()).await?);
    }
    let mut together = vec![Vec::new(); 3];
    for i in 0..25 {
        for (said, conversation) in together.iter_mut().zip(&mut conversations) {
            said.extend(tokens(&talk(conversation, i..i + 1).await?));
        }
    }
    assert_eq!(together, alone);
    let loaded = engine.models().await?;
    let found: Vec<_> = loaded.iter().map(|m| (m.id, m.base, m.sessions)).collect();
    let on = Some(base.id);
    assert_eq!(found, [(base.id, None, 1), (adapters[0].id, on, 1), (adapters[1].id, on, 1)]);

    // An adapter in use stays, one that is not goes alone, the base only when nothing of it is used.
    let used = engine.unload(adapters[0].id).await;
    assert!(matches!(used, Err(InferenceError::ModelInUse { sessions: 1, .. })), "{used:?}");
    assert!(matches!(engine.unload(base.id).await, Err(InferenceError::ModelInUse { sessions: 3, .. })));
    drop(conversations.remove(1));
    engine.unload(adapters[0].id).await?;
    assert_eq!(status(&engine, adapters[0].id).await?, None);
    let again = open(&engine, plans[1].clone()).await?;
    conversations.insert(1, again);
    assert_eq!(tokens(&talk(&mut conversations[1], 0..25).await?), alone[1]);
    drop(conversations);
    engine.unload(base.id).await?;
    assert_eq!(engine.models().await?, []);
    assert!(matches!(engine.unload(base.id).await, Err(InferenceError::NotLoaded { .. })));
    Ok(())
}

#[tokio::test]
async fn an_adapter_of_another_base_or_with_other_bytes_is_refused_and_its_base_serves() -> Result<()> {
    let files = Files::new()?;
    let (base, other) = (files.model(1)?, files.model(2)?);
    let theirs = adapter(&files, &other, 1)?;
    let engine = Engine::start(&settings(&[])?)?;
    for wrong_bytes in [false, true] {
        let owner = if wrong_bytes { &other } else { &base };
        let mut plan = with_adapter(&files, owner, &theirs, 1)?;
        if wrong_bytes && let Some(adapter) = &mut plan.adapter {
            adapter.files[0].1 = "0".repeat(64);
        }
        let refused = engine.open(plan, engine.reserve().context("free")?).await.err().context("refused")?;
        assert!(matches!(&refused, InferenceError::Model { model, .. } if *model == theirs.id.to_string()));
        talk(&mut open(&engine, request(&files, owner, 1)?).await?, 0..2).await?;
    }
    free(&engine, 4).await
}

#[tokio::test]
async fn what_does_not_fit_into_memory_is_refused_before_it_is_read_and_idle_models_make_room() -> Result<()>
{
    let files = Files::new()?;
    let (one, two) = (files.model(1)?, files.model(2)?);
    let roomy = Engine::start(&settings(&[])?)?;
    drop(open(&roomy, request(&files, &one, 1)?).await?);
    let bytes = status(&roomy, one.id).await?.context("loaded")?.bytes;
    let limit = |share: f64| ((bytes as f64 * share) as u64 >> 20).to_string();
    let narrow = Engine::start(&settings(&[("MEMORY_LIMIT_MB", &limit(0.9))])?)?;
    // A folder that is not there: nothing of it is read but its configuration.
    let mut plan = request(&files, &one, 1)?;
    plan.model.files.clear();
    let refused = narrow.open(plan, narrow.reserve().context("free")?).await.err().context("refused")?;
    assert!(matches!(refused, InferenceError::OutOfMemory { .. }), "{refused}");
    assert_eq!(refused.code(), ErrorCode::GpuOutOfMemory);
    assert_eq!(narrow.models().await?, []);

    let engine = Engine::start(&settings(&[("MEMORY_LIMIT_MB", &limit(1.5)), ("MAX_MODELS", "4")])?)?;
    let mut talking = open(&engine, request(&files, &one, 1)?).await?;
    let refused = engine.open(request(&files, &two, 1)?, engine.reserve().context("free")?).await;
    assert!(matches!(refused, Err(InferenceError::OutOfMemory { .. })));
    talk(&mut talking, 0..2).await?;
    drop(talking);
    talk(&mut open(&engine, request(&files, &two, 1)?).await?, 0..2).await?;
    let left: Vec<_> = engine.models().await?.into_iter().map(|m| m.id).collect();
    assert_eq!(left, [two.id]);
    Ok(())
}

#[tokio::test]
async fn a_model_is_read_once_for_all_who_wait_and_kept_when_they_have_gone() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut opening = Box::pin(engine.open(request(&files, &model, 1)?, engine.reserve().context("free")?));
    while engine.loading().is_empty() {
        assert!((&mut opening).now_or_never().is_none(), "it must be read first");
        tokio::task::yield_now().await;
    }
    drop(opening);
    let ready = async || status(&engine, model.id).await.ok().flatten().is_some();
    testkit::wait_until("the model is loaded", Duration::from_secs(20), ready).await?;
    free(&engine, 4).await?;
    let sources = (0..4).map(|_| Ok(Source::Model(request(&files, &model, 1)?.model)));
    let sources = sources.collect::<Result<Vec<_>>>()?;
    futures::future::try_join_all(sources.into_iter().map(|source| engine.load(source))).await?;
    assert_eq!(engine.models().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_prompt_is_fed_once_for_all_who_start_with_it_within_its_memory() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(tokens(&talk(&mut open(&engine, request(&files, &model, 8)?).await?, 0..10).await?));
    }
    assert!(said[0] == said[1] && said[1] == said[2]);
    let mut other = request(&files, &model, 8)?;
    other.prompt_tokens.push(9);
    drop(open(&engine, other).await?);
    let kept = status(&engine, model.id).await?.context("loaded")?;
    assert_eq!((kept.prompts, kept.prompt_hits), (2, 2));
    assert!(kept.prompt_bytes > 0 && kept.prompt_bytes < 256 << 20);
    let engine = Engine::start(&settings(&[("PREFIX_CACHE_MB", "0")])?)?;
    for _ in 0..2 {
        drop(open(&engine, request(&files, &model, 8)?).await?);
    }
    let kept = status(&engine, model.id).await?.context("loaded")?;
    assert_eq!((kept.prompts, kept.prompt_bytes, kept.prompt_hits), (0, 0, 0));
    Ok(())
}

/// One request to the internal listener: status and body.
async fn ask(house: &House, method: &str, path: &str, token: &str) -> Result<(u16, Value)> {
    let mut stream = tokio::net::TcpStream::connect(house.address).await?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nx-ppx-internal: {token}\r\ncontent-length: 0\r\n");
    stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).context("a status")?.parse()?;
    let body = answer.split("\r\n\r\n").nth(1).context("a body")?;
    let from = body.find('{').context("json")?;
    let to = body.rfind('}').context("json")?;
    Ok((status, serde_json::from_str(&body[from..=to])?))
}

#[tokio::test]
async fn models_are_listed_loaded_and_unloaded_through_the_listener() -> Result<()> {
    let house = House::open(&[]).await?;
    let adapter = adapter(&house.files, &house.model, 1)?;
    let mut tx = house.store.begin().await?;
    store::models::insert(&mut tx, &adapter).await?;
    tx.commit().await?;
    assert_eq!(ask(&house, "GET", "/internal/models", "wrong").await?.0, 401);
    assert_eq!(ask(&house, "GET", "/internal/models", TOKEN).await?.1["models"], serde_json::json!([]));
    let path = |what: &str| format!("/internal/models/{}/{what}", adapter.id);
    let (code, body) = ask(&house, "POST", &path("load"), TOKEN).await?;
    assert_eq!((code, body["models"].as_array().map(Vec::len)), (200, Some(2)), "{body}");
    let served = &body["models"][1];
    assert_eq!(
        (served["id"].as_str(), served["state"].as_str()),
        (Some(adapter.name.as_str()), Some("ready"))
    );
    assert_eq!(served["base_id"].as_str(), Some(house.model.name.as_str()));
    let id = house.session_of(adapter.id, "x", SamplingParams::default()).await?;
    let mut phone = crate::phone::Phone::dial(&house, id).await?;
    phone.listen_until(|h| h.handshakes == 1).await?;
    let (code, body) = ask(&house, "POST", &path("unload"), TOKEN).await?;
    assert_eq!((code, body["code"].as_str()), (409, Some("conflict")));
    drop(phone);
    house.all_places_free(4, Duration::from_secs(10)).await?;
    assert_eq!(ask(&house, "POST", &path("unload"), TOKEN).await?.0, 200);
    assert_eq!(ask(&house, "POST", &path("unload"), TOKEN).await?.0, 404);
    assert_eq!(ask(&house, "POST", "/internal/models/nothing/load", TOKEN).await?.0, 404);
    house.close().await
}

#[tokio::test]
async fn voices_of_different_conversations_do_not_meet_in_a_kept_prompt() -> Result<()> {
    let files = Files::new()?;
    let model = files.model(1)?;
    let engine = Engine::start(&settings(&[])?)?;
    let mut said = Vec::new();
    for sha256 in ["one", "two", "one"] {
        let mut plan = request(&files, &model, 8)?;
        let samples = (0..48_000).map(|n| (n as f32 * if sha256 == "one" { 0.05 } else { 0.2 }).sin() * 0.3);
        let file = Arc::new(weights::VoiceFile::Samples(samples.collect()));
        plan.voice = Some(inference::engine::StoredVoice { sha256: sha256.into(), file });
        said.push(tokens(&talk(&mut open(&engine, plan).await?, 0..10).await?));
    }
    assert!(said[0] == said[2] && said[0] != said[1]);
    Ok(())
}
