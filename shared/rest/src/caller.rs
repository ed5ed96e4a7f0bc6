//! Who calls, and what they may do.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest};
use domain::{ApiKeyId, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::Problem;

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a key may do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Scope {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }
        impl Scope {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// Name in the API and the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

scopes! {
    /// Read datasets, dialogues and domains.
    DatasetsRead = "datasets:read",
    /// Create datasets.
    DatasetsWrite = "datasets:write",
    /// Read jobs and their events.
    JobsRead = "jobs:read",
    /// Cancel jobs.
    JobsWrite = "jobs:write",
    /// Read models and voices.
    ModelsRead = "models:read",
    /// Register models.
    ModelsWrite = "models:write",
    /// Read runs, metrics and checkpoints.
    RunsRead = "runs:read",
    /// Start and cancel runs.
    RunsWrite = "runs:write",
    /// Read sessions.
    SessionsRead = "sessions:read",
    /// Open sessions.
    SessionsCreate = "sessions:create",
    /// Read evaluations and comparisons.
    EvalsRead = "evals:read",
    /// Start evaluations and comparisons.
    EvalsWrite = "evals:write",
    /// Manage API keys; includes every other scope.
    Admin = "admin",
}

// By hand: the derive does not see names that come through a macro.
impl utoipa::PartialSchema for Scope {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .enum_values(Some(Self::ALL.iter().map(|s| s.as_str())))
            .description(Some("What a key may do; `admin` includes every other scope."))
            .into()
    }
}
impl utoipa::ToSchema for Scope {}

impl std::str::FromStr for Scope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|s| s.as_str() == text).ok_or_else(|| format!("{text:?} is no scope"))
    }
}

/// An authenticated key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The key's id.
    pub key: ApiKeyId,
    /// What it may do.
    pub scopes: Vec<Scope>,
}

impl Caller {
    /// Fails unless the key has the scope.
    ///
    /// # Errors
    /// 403 that names the scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin) {
            return Ok(());
        }
        let has: Vec<_> = self.scopes.iter().map(|s| s.as_str()).collect();
        Err(Problem::new(
            ErrorCode::Forbidden,
            format!("this needs a key with scope {}; yours has {}", scope.as_str(), has.join(", ")),
        ))
    }
}

impl FromRequest for Caller {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(req.extensions().get::<Self>().cloned().ok_or_else(|| {
            Problem::internal(anyhow::anyhow!("a handler wants a caller on an open operation")).into()
        }))
    }
}
