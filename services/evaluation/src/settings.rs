//! `[evaluation]`, and the one key of `[auth]` that this service may fall back to.

use chassis::secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// `[evaluation]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSettings {
    /// The gateway, as a client sees it.
    pub gateway_url: String,
    /// Key used for sessions; empty = the bootstrap key.
    pub api_key: SecretString,
}

/// The part of `[auth]` that is read here.
#[derive(Debug, Clone, Deserialize)]
pub struct Auth {
    /// A key with every scope.
    pub bootstrap_key: SecretString,
}

impl EvaluationSettings {
    /// The key that sessions are opened with.
    ///
    /// # Errors
    /// When neither is set.
    pub fn session_key(&self, auth: &Auth) -> anyhow::Result<SecretString> {
        [&self.api_key, &auth.bootstrap_key]
            .into_iter()
            .find(|key| !key.expose_secret().trim().is_empty())
            .cloned()
            .ok_or_else(|| anyhow::anyhow!("no key for sessions: set PPX__EVALUATION__API_KEY"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_key_goes_before_the_bootstrap_key_and_none_is_refused() -> anyhow::Result<()> {
        let settings = |key: &str| EvaluationSettings { gateway_url: String::new(), api_key: key.into() };
        let auth = |key: &str| Auth { bootstrap_key: key.into() };
        assert_eq!(settings("a").session_key(&auth("b"))?.expose_secret(), "a");
        assert_eq!(settings(" ").session_key(&auth("b"))?.expose_secret(), "b");
        assert!(settings("").session_key(&auth("")).is_err());
        Ok(())
    }
}
