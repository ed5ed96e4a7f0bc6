//! Boot is a value: build it, ask its port, run it.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::{HttpServer, web};
use anyhow::Context;
use chassis::secrecy::ExposeSecret;
use chassis::settings::{ArtifactsSettings, Internal, Jobs, Redis};
use chassis::{Boot, CancellationToken, Service};
use domain::ApiKeyId;
use rest::contract::Contract;
use rest::{Api, edge};
use utoipa_actix_web::AppExt;

use crate::auth::keyring::Keyring;
use crate::auth::{Scope, guard, key};
use crate::chat::live::LiveSessions;
use crate::chat::registry::Registry;
use crate::events::hub::Hub;
use crate::state::{Shared, State};
use crate::{openapi, routes};

/// How long requests in flight may take once the process goes down.
const DRAIN_SECONDS: u64 = 20;

/// The gateway, bound but not yet serving.
pub struct App {
    server: Server,
    port: u16,
    state: Shared,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("port", &self.port).finish_non_exhaustive()
    }
}

/// What the gateway does in the chassis: it serves.
///
/// # Errors
/// When the settings are wrong or the port is taken.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let app = App::build(&boot).await?;
    tracing::info!(port = app.port(), "the API listens");
    Ok(Service::new().task("api", app.run()))
}

impl App {
    /// Reads the settings, registers the bootstrap key and binds the public listener.
    ///
    /// # Errors
    /// When the settings are wrong or the port is taken.
    pub async fn build(boot: &Boot) -> anyhow::Result<Self> {
        let state = web::Data::new(state(boot)?);
        register_bootstrap_key(&state).await?;
        let (shared, api) = (state.clone(), web::Data::new(api(&state)));
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .app_data(shared.clone())
                .app_data(shared.library.clone())
                .app_data(api.clone())
                .wrap(from_fn(guard::guard))
                .wrap(from_fn(edge::pass))
                .into_utoipa_app()
                .configure(routes::register)
                .into_app()
                .configure(routes::docs::register)
        })
        .disable_signals()
        .shutdown_timeout(DRAIN_SECONDS)
        .bind((state.gateway.bind.as_str(), state.gateway.port))
        .with_context(|| {
            format!("cannot listen on {}:{} ([gateway])", state.gateway.bind, state.gateway.port)
        })?;
        let port = server.addrs().first().context("a bound listener has an address")?.port();
        Ok(Self { server: server.run(), port, state })
    }

    /// The public port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Serves until shutdown, then lets requests in flight end.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { server, state, .. } = self;
        let (handle, shutdown) = (server.handle(), state.shutdown.clone());
        let hub = tokio::spawn(Arc::clone(&state.hub).run(Arc::clone(&state.bus), shutdown.clone()));
        let stop = tokio::spawn(stop_when(shutdown.clone(), handle));
        let ended = server.await.context("the public listener");
        shutdown.cancel();
        hub.await?;
        stop.await?;
        ended
    }
}

async fn stop_when(shutdown: CancellationToken, server: actix_web::dev::ServerHandle) {
    shutdown.cancelled().await;
    server.stop(true).await;
}

fn state(boot: &Boot) -> anyhow::Result<State> {
    let settings = &boot.settings;
    let redis: Redis = settings.section("redis")?;
    let auth: crate::settings::AuthSettings = settings.section("auth")?;
    let gateway: crate::settings::GatewaySettings = settings.section("gateway")?;
    let registry = Registry::new(
        redis.url.expose_secret(),
        Duration::from_millis(redis.timeout_ms),
        &gateway.inference_url,
    )?;
    // Calls have a shorter limit each.
    let http = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(2))
        .timeout(Duration::from_secs(60))
        .build()?;
    Ok(State {
        http,
        keyring: Keyring::new(boot.store.clone(), auth.max_failures_per_minute),
        sessions: settings.section("sessions")?,
        library: library::Shared::new(library::State {
            store: boot.store.clone(),
            puppeteer: settings.section("puppeteer")?,
        }),
        max_attempts: settings.section::<Jobs>("jobs")?.max_attempts,
        import_dir: settings.section::<ArtifactsSettings>("artifacts")?.import_dir,
        internal_token: settings.section::<Internal>("internal")?.token,
        store: boot.store.clone(),
        bus: Arc::clone(&boot.bus),
        artifacts: boot.artifacts.clone(),
        hub: Arc::new(Hub::default()),
        live: LiveSessions::default(),
        shutdown: boot.shutdown.clone(),
        registry,
        gateway,
        auth,
    })
}

fn api(state: &State) -> Api {
    Api {
        contract: Contract::read(openapi::document()),
        max_json_bytes: state.gateway.max_json_bytes,
        max_chat_uri_bytes: state.gateway.max_chat_uri_bytes,
        max_uri_bytes: state.gateway.max_uri_bytes,
    }
}

/// The key of the environment can do everything; a key that was revoked stays so.
async fn register_bootstrap_key(state: &State) -> anyhow::Result<()> {
    let text = state.auth.bootstrap_key.expose_secret();
    if text.is_empty() {
        tracing::warn!("no bootstrap key ([auth].bootstrap_key): only keys already in the database work");
        return Ok(());
    }
    let parsed = key::parse(text)
        .context("PPX__AUTH__BOOTSTRAP_KEY is not an API key; `gateway bootstrap-key` prints one")?;
    let scopes = [Scope::Admin.as_str().to_owned()];
    store::api_keys::ensure(
        &state.store,
        ApiKeyId::generate(),
        "bootstrap",
        parsed.key_id,
        &key::hash(text),
        &scopes,
    )
    .await
    .context("cannot register the bootstrap key")
}
