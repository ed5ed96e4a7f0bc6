//! What every handler may use.

use std::path::PathBuf;
use std::sync::Arc;

use actix_web::web;
use artifacts::Artifacts;
use bus::Bus;
use chassis::CancellationToken;
use chassis::secrecy::SecretString;
use chassis::settings::Sessions;
use store::Store;

use crate::auth::keyring::Keyring;
use crate::chat::live::LiveSessions;
use crate::chat::registry::Registry;
use crate::events::hub::Hub;
use crate::settings::{AuthSettings, GatewaySettings};

/// The state as handlers take it.
pub type Shared = web::Data<State>;

/// Built once per process and shared by all workers.
pub struct State {
    /// `[gateway]`
    pub gateway: GatewaySettings,
    /// `[auth]`
    pub auth: AuthSettings,
    /// `[sessions]`
    pub sessions: Sessions,
    /// What the routes of the library use.
    pub library: library::Shared,
    /// Tries of a job (`[jobs]`).
    pub max_attempts: i32,
    /// Folder from which models may be registered.
    pub import_dir: PathBuf,
    /// Carried by calls to internal listeners.
    pub internal_token: SecretString,
    /// The database.
    pub store: Store,
    /// The broker, only to report on.
    pub bus: Arc<Bus>,
    /// The files.
    pub artifacts: Artifacts,
    /// Who holds which key.
    pub keyring: Keyring,
    /// Wakes event streams.
    pub hub: Arc<Hub>,
    /// For calls of internal listeners.
    pub http: reqwest::Client,
    /// Where inference runs.
    pub registry: Registry,
    /// Sessions with an open socket here.
    pub live: LiveSessions,
    /// Cancelled when the process goes down.
    pub shutdown: CancellationToken,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}
