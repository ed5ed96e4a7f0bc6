//! Settings: `configs/default.toml` in the binary, then the file in `PPX_CONFIG`, then `PPX__SECTION__KEY`.

use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The lowest layer; also the list of every section and key.
const DEFAULT: &str = include_str!("../../../configs/default.toml");

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file or value cannot be read.
    #[error("settings: {0}")]
    Config(#[from] config::ConfigError),
    /// A section that does not exist.
    #[error("settings: unknown section {found:?}; known: {known}")]
    UnknownSection {
        /// As given.
        found: String,
        /// All of them.
        known: String,
    },
    /// A section has a wrong or unknown key.
    #[error("settings: section [{section}]: {source}")]
    Section {
        /// Section.
        section: &'static str,
        /// Why.
        source: config::ConfigError,
    },
}

/// The merged layers; sections are read with their types.
#[derive(Debug, Clone)]
pub struct Settings {
    merged: config::Config,
}

/// A variable of the environment that is no setting: what a launcher tells the processes that it starts.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Settings {
    /// Reads all layers of this process.
    ///
    /// # Errors
    /// When a file is missing or malformed, or a section is unknown.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn load() -> Result<Self, SettingsError> {
        Self::from_layers(std::env::var("PPX_CONFIG").ok().as_deref(), std::env::vars().collect())
    }

    /// Reads the layers given.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_layers(
        file: Option<&str>,
        environment: std::collections::HashMap<String, String>,
    ) -> Result<Self, SettingsError> {
        let toml = config::FileFormat::Toml;
        let defaults = config::Config::builder().add_source(config::File::from_str(DEFAULT, toml)).build()?;
        let known = defaults.cache.into_table()?;
        let mut builder = config::Config::builder().add_source(config::File::from_str(DEFAULT, toml));
        if let Some(path) = file {
            builder = builder.add_source(config::File::new(path, toml));
        }
        let environment = config::Environment::with_prefix("PPX")
            .prefix_separator("__")
            .separator("__")
            .source(Some(environment.into_iter().map(|(k, v)| (k.to_uppercase(), v)).collect()));
        let merged = builder.add_source(environment).build()?;
        for section in merged.cache.clone().into_table()?.keys() {
            if !known.contains_key(section) {
                let mut names: Vec<_> = known.keys().cloned().collect();
                names.sort();
                return Err(SettingsError::UnknownSection {
                    found: section.clone(),
                    known: names.join(", "),
                });
            }
        }
        Ok(Self { merged })
    }

    /// One section with its type.
    ///
    /// # Errors
    /// When a key is missing, unknown or of another type.
    pub fn section<T: DeserializeOwned>(&self, section: &'static str) -> Result<T, SettingsError> {
        self.merged.get(section).map_err(|source| SettingsError::Section { section, source })
    }
}

/// `[database]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Where; may hold a password.
    pub url: SecretString,
    /// Pool size.
    pub max_connections: u32,
    /// Longest wait for a connection.
    pub acquire_timeout_seconds: u64,
    /// Longest statement.
    pub statement_timeout_seconds: u64,
}

/// `[amqp]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amqp {
    /// Where; may hold a password.
    pub url: SecretString,
    /// Longest wait for an answer.
    pub timeout_seconds: u64,
}

/// `[redis]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// Where; may hold a password.
    pub url: SecretString,
    /// Longest call.
    pub timeout_ms: u64,
}

/// `[artifacts]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactsSettings {
    /// Folder of everything stored.
    pub root: std::path::PathBuf,
    /// Folder from which models may be registered.
    pub import_dir: std::path::PathBuf,
}

/// `[health]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Address.
    pub bind: String,
    /// Port; 0 = any.
    pub port: u16,
}

/// `[telemetry]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// `tracing` filter.
    pub filter: String,
    /// `pretty` or `json`.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For collectors.
    Json,
}

/// `[worker]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSettings {
    /// Jobs at once.
    pub concurrency: usize,
    /// Life of a lease without heartbeat.
    pub lease_seconds: u64,
    /// Time between heartbeats.
    pub heartbeat_seconds: u64,
    /// Wait for a doorbell before polling.
    pub poll_seconds: u64,
    /// Patience on SIGTERM.
    pub drain_seconds: u64,
    /// First back-off.
    pub retry_seconds: u64,
}

/// `[jobs]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// Tries of a job.
    pub max_attempts: i32,
}

/// `[sessions]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// How long a session whose socket was lost may be taken up again; 0 = it ends at once.
    pub resume_seconds: u64,
}

impl Sessions {
    /// How long a session whose socket was lost may be taken up again.
    #[must_use]
    pub const fn resume_for(self) -> Duration {
        Duration::from_secs(self.resume_seconds)
    }
}

/// `[sweeper]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweeper {
    /// Time between sweeps.
    pub interval_seconds: u64,
    /// Age of a doorbell that is rung again.
    pub ring_after_seconds: u64,
    /// Age of a live session that nobody can be serving any more.
    pub max_live_seconds: u64,
}

/// `[internal]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Internal {
    /// Token of calls between services; empty = none set.
    pub token: SecretString,
}

/// Seconds as a duration.
#[must_use]
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use secrecy::ExposeSecret;

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn every_default_section_reads_into_its_type() {
        let settings = Settings::from_layers(None, HashMap::new()).expect("defaults load");
        settings.section::<Database>("database").expect("database");
        settings.section::<Amqp>("amqp").expect("amqp");
        settings.section::<Redis>("redis").expect("redis");
        settings.section::<ArtifactsSettings>("artifacts").expect("artifacts");
        settings.section::<Health>("health").expect("health");
        settings.section::<Telemetry>("telemetry").expect("telemetry");
        settings.section::<WorkerSettings>("worker").expect("worker");
        settings.section::<Jobs>("jobs").expect("jobs");
        settings.section::<Sweeper>("sweeper").expect("sweeper");
        settings.section::<Internal>("internal").expect("internal");
    }

    #[test]
    fn the_environment_wins_and_numbers_and_numeric_secrets_read_alike() {
        let settings = Settings::from_layers(
            None,
            env(&[
                ("PPX__DATABASE__MAX_CONNECTIONS", "3"),
                ("PPX__INTERNAL__TOKEN", "12345"),
                ("OTHER", "x"),
            ]),
        )
        .expect("loads");
        assert_eq!(settings.section::<Database>("database").expect("database").max_connections, 3);
        assert_eq!(
            settings.section::<Internal>("internal").expect("internal").token.expose_secret(),
            "12345"
        );
    }

    #[test]
    fn unknown_sections_and_keys_are_refused_by_name() {
        let error =
            Settings::from_layers(None, env(&[("PPX__DATABSE__URL", "x")])).expect_err("unknown section");
        assert!(error.to_string().contains("databse"), "{error}");
        let settings =
            Settings::from_layers(None, env(&[("PPX__DATABASE__URI", "x")])).expect("sections are known");
        let error = settings.section::<Database>("database").expect_err("unknown key");
        assert!(error.to_string().contains("uri"), "{error}");
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let settings =
            Settings::from_layers(None, env(&[("PPX__INTERNAL__TOKEN", "canary-value")])).expect("loads");
        let section = settings.section::<Internal>("internal").expect("internal");
        assert!(!format!("{section:?}").contains("canary-value"));
    }
}
