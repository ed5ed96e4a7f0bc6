//! Serves live sessions.
//!
//! A session is a websocket on the internal listener ([`ws`]); the gateway pipes the client's frames through unchanged.
//! [`prepare`] turns the session's row into what the model needs: model folder, voice samples, prompt tokens.
//! [`engine`] is one thread that owns the models and every conversation; it takes a frame of user audio and gives a
//! frame of agent audio and a text id back. [`session`] is the life of one socket: prompt, handshake, frames, injections,
//! end. [`registry`] tells the gateway where there is a free slot.
//!
//! Texts, tokens and audio of a conversation are never logged.

#![forbid(unsafe_code)]

pub mod context;
mod control;
pub mod engine;
mod error;
pub mod inbox;
pub mod prepare;
mod problem;
pub mod protocol;
pub mod puppeteers;
pub mod registry;
mod serving;
pub mod session;
pub mod settings;
pub mod stats;
pub mod ws;

use std::sync::Arc;

use chassis::secrecy::ExposeSecret;
use chassis::settings::{Internal, Redis, Sessions};
use chassis::{Boot, ReadyCheck, Service};

pub use error::InferenceError;
pub use settings::InferenceSettings;

/// Builds the service: engine thread, internal listener, registry entry.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: InferenceSettings = boot.settings.section("inference")?;
    let token = boot.settings.section::<Internal>("internal")?.token;
    anyhow::ensure!(
        !token.expose_secret().is_empty(),
        "[internal].token is empty: set PPX__INTERNAL__TOKEN to the value that the gateway has"
    );
    let redis = boot.settings.section::<Redis>("redis")?;
    let sessions = boot.settings.section::<Sessions>("sessions")?;
    let engine = engine::Engine::start(&settings)?;
    let shared = Arc::new(ws::Shared {
        catalog: prepare::Catalog::new(boot.store.clone(), boot.artifacts.clone()).with_rows(settings.rows()),
        store: boot.store.clone(),
        engine: engine.clone(),
        token,
        settings: settings.clone(),
        sessions,
        rows: session::rows::RowStore::new(&redis, sessions.resume_for())?,
        puppeteers: puppeteers::Puppeteers::new(boot.store.clone(), boot.settings.section("puppeteer")?)?,
        live: ws::LiveSessions::default(),
        shutdown: boot.shutdown.clone(),
    });
    let listener = ws::listen(&settings.bind, settings.port)?;
    let url = settings.advertised(listener.local_addr()?);
    let entry = registry::Registry::new(&redis, url)?;
    let alive = engine.clone();
    let check = ReadyCheck {
        name: "engine",
        check: Arc::new(move || {
            let alive = alive.is_alive();
            Box::pin(async move {
                anyhow::ensure!(alive, "the engine thread has ended");
                Ok(())
            })
        }),
    };
    Ok(Service::new()
        .task("listener", ws::serve(listener, shared))
        .task("registry", entry.announce(engine, boot.shutdown.clone()))
        .ready_check(check))
}
