//! The closed list of stable error codes.

use serde::{Deserialize, Serialize};

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = ($text:literal, $status:literal, $title:literal),)*) => {
        /// Stable code of a problem; part of the API contract (`docs/API.md`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }
        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// The code as text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
            /// HTTP status that carries it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
            /// Short title for people.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

error_codes! {
    /// The request is not well-formed.
    InvalidRequest = ("invalid_request", 400, "The request is not well-formed"),
    /// The body is well-formed JSON with wrong content.
    ValidationFailed = ("validation_failed", 422, "The request has invalid content"),
    /// A path id does not have the shape of its noun.
    InvalidId = ("invalid_id", 400, "The identifier is not well-formed"),
    /// The cursor names no row of this list.
    InvalidCursor = ("invalid_cursor", 400, "The cursor is not well-formed"),
    /// No credentials were given, or they are not known.
    Unauthenticated = ("unauthenticated", 401, "A valid API key is required"),
    /// The key lacks the scope.
    Forbidden = ("forbidden", 403, "The API key does not allow this"),
    /// No such path.
    RouteNotFound = ("route_not_found", 404, "No such path"),
    /// No such resource.
    NotFound = ("not_found", 404, "No such resource"),
    /// The path exists with other methods.
    MethodNotAllowed = ("method_not_allowed", 405, "The path does not support this method"),
    /// The resource is in a state that does not allow this.
    Conflict = ("conflict", 409, "The resource's state does not allow this"),
    /// A resource with this name exists.
    NameTaken = ("name_taken", 409, "The name is in use"),
    /// The same idempotency key is being worked on.
    IdempotencyInFlight = ("idempotency_in_flight", 409, "A request with this Idempotency-Key is in flight"),
    /// The idempotency key was used with another body.
    IdempotencyMismatch = ("idempotency_mismatch", 422, "The Idempotency-Key was used with another request"),
    /// The resource was changed since the caller saw it.
    PreconditionFailed = ("precondition_failed", 412, "The resource was changed meanwhile"),
    /// The body is too large.
    PayloadTooLarge = ("payload_too_large", 413, "The request body is too large"),
    /// The request target is longer than allowed.
    UriTooLong = ("uri_too_long", 414, "The request target is too long"),
    /// The body has another media type.
    UnsupportedMediaType = ("unsupported_media_type", 415, "The media type is not supported"),
    /// The request has to say which revision it is about.
    PreconditionRequired = ("precondition_required", 428, "If-Match is required"),
    /// Too many requests.
    RateLimited = ("rate_limited", 429, "Too many requests"),
    /// No inference process has a free slot.
    SessionCapacity = ("session_capacity", 503, "No free session slot"),
    /// Something that the request needs is down.
    Unavailable = ("unavailable", 503, "A dependency is not available"),
    /// A fault of ours.
    Internal = ("internal", 500, "Internal error"),
    /// A worker died too often while it held the job.
    WorkerLost = ("worker_lost", 500, "The worker was lost"),
    /// A job that this one needs did not succeed.
    NeedFailed = ("need_failed", 409, "A needed job did not succeed"),
    /// Generated records did not pass validation.
    InvalidDialogue = ("invalid_dialogue", 422, "A dialogue is invalid"),
    /// Synthesis failed.
    SynthesisFailed = ("synthesis_failed", 500, "Speech synthesis failed"),
    /// Alignment failed.
    AlignmentFailed = ("alignment_failed", 500, "Alignment failed"),
    /// The dataset has faults.
    InvalidDataset = ("invalid_dataset", 422, "The dataset is invalid"),
    /// The training specification is invalid.
    InvalidTrainingSpec = ("invalid_training_spec", 422, "The training specification is invalid"),
    /// A check before a training found an error, or a warning that the request does not acknowledge.
    PreflightFailed = ("preflight_failed", 422, "The training cannot start as requested"),
    /// Loss or gradient is not finite.
    TrainingDiverged = ("training_diverged", 500, "Training diverged"),
    /// The model files are damaged, incomplete or of another kind.
    InvalidModel = ("invalid_model", 422, "The model files are invalid"),
    /// A stored file is missing or damaged.
    ArtifactDamaged = ("artifact_damaged", 500, "A stored file is missing or damaged"),
    /// A live session could not be held during an evaluation.
    SessionFailed = ("session_failed", 500, "A session failed"),
    /// The device has not enough memory.
    GpuOutOfMemory = ("gpu_out_of_memory", 503, "Not enough device memory"),
}

impl ErrorCode {
    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self.status(), 429 | 500 | 503) || matches!(self, Self::IdempotencyInFlight)
    }
}

// By hand: the derive does not see names that come through a macro.
impl utoipa::PartialSchema for ErrorCode {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .enum_values(Some(Self::ALL.iter().map(|c| c.as_str())))
            .description(Some("Stable code of a problem or of a job's failure."))
            .into()
    }
}
impl utoipa::ToSchema for ErrorCode {}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ErrorCode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|c| c.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no error code"))
    }
}
