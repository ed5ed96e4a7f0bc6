//! Typed identifiers: a prefix that says what it names, then a UUID v7 in simple hex.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind} id: expected {prefix}_ and 32 hex digits")]
pub struct IdError {
    /// The rejected text.
    pub text: String,
    /// The noun that the id would name.
    pub kind: &'static str,
    /// The expected prefix without the underscore.
    pub prefix: &'static str,
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Prefix without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh, time-ordered id.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
            /// Wraps a stored UUID.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }
            /// The UUID as stored.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.as_simple())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .filter(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()))
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or_else(|| IdError { text: text.chars().take(80).collect(), kind: $kind, prefix: $prefix })
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(concat!("^", $prefix, "_[0-9a-f]{32}$")))
                    .description(Some(concat!("Identifier of a ", $kind, ".")))
                    .examples([concat!($prefix, "_01938f6e0c3b7a54b1f2a0c4d5e6f708")])
                    .into()
            }
        }
        impl utoipa::ToSchema for $name {}
    };
}

typed_id!(/// A durable unit of work.
    JobId, "job", "job");
typed_id!(/// A set of samples.
    DatasetId, "dataset", "ds");
typed_id!(/// An archive sent to be imported.
    UploadId, "upload", "upl");
typed_id!(/// One generated dialogue.
    DialogueId, "dialogue", "dlg");
typed_id!(/// One training.
    RunId, "run", "run");
typed_id!(/// Saved training state at a step.
    CheckpointId, "checkpoint", "ckpt");
typed_id!(/// A servable model: base or merged.
    ModelId, "model", "mdl");
typed_id!(/// A voice for the agent.
    VoiceId, "voice", "voice");
typed_id!(/// One live conversation.
    SessionId, "session", "sess");
typed_id!(/// Facts that a puppeteer may tell the agent.
    KnowledgeBaseId, "knowledge base", "kb");
typed_id!(/// A judged set of dialogues.
    EvaluationId, "evaluation", "eval");
typed_id!(/// A paired comparison of two evaluations.
    ComparisonId, "comparison", "cmp");
typed_id!(/// An API key.
    ApiKeyId, "API key", "key");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text_and_json_and_refuses_other_shapes() {
        let id = JobId::generate();
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        let json = serde_json::to_string(&id).expect("ids serialize");
        assert_eq!(serde_json::from_str::<JobId>(&json).expect("ids parse"), id);
        for bad in [
            "",
            "job_",
            "job_1",
            "run_01938f6e0c3b7a54b1f2a0c4d5e6f708",
            "job_01938F6E0C3B7A54B1F2A0C4D5E6F708",
        ] {
            let error = bad.parse::<JobId>().expect_err(bad);
            assert_eq!(error.kind, "job");
        }
    }
}
