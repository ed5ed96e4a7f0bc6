use domain::ErrorCode;

/// Why a session cannot be opened or go on. The text never holds what was said.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error(transparent)]
    Artifacts(#[from] artifacts::ArtifactsError),
    #[error("session {0} has ended")]
    SessionEnded(domain::SessionId),
    #[error("session {0} already has a socket")]
    SessionInUse(domain::SessionId),
    #[error("the prompt takes {frames} frames (voice {voice}, text {text}); the model's window is {window}")]
    PromptTooLong { frames: usize, voice: usize, text: usize, window: usize },
    #[error("the text prompt is refused: {0}")]
    Prompt(#[source] streams::StreamsError),
    #[error("voice {name:?} cannot be used: {source}")]
    Voice { name: String, source: audio::AudioError },
    #[error("voice {name:?} cannot be used: {source}")]
    VoiceFile { name: String, source: weights::VoiceFileError },
    #[error("voice {name:?} cannot be used with this model: {source}")]
    VoiceMismatch { name: String, source: Box<personaplex::PersonaplexError> },
    #[error("model {model} cannot be read: {detail}")]
    Model { model: String, detail: String },
    #[error("all {limit} model places are taken by live sessions")]
    NoModelRoom { limit: usize },
    #[error("model {model} takes {needed} MiB of memory, {free} MiB are free")]
    OutOfMemory { model: String, needed: u64, free: u64 },
    #[error("model {model} serves {sessions} sessions")]
    ModelInUse { model: String, sessions: usize },
    #[error("model {model} is not loaded")]
    NotLoaded { model: String },
    #[error("the engine failed: {0}")]
    Engine(String),
    #[error("the engine has no such conversation")]
    NoConversation,
    #[error("cannot go on after {rows} rows: the prompt alone has {prompt}")]
    Resume { rows: usize, prompt: usize },
    #[error("the model's window is full")]
    WindowEnded,
    #[error("the agent's frames are not taken")]
    NotTaken,
    #[error("the puppeteer cannot be made: {0}")]
    Puppeteer(String),
    #[error("the engine has stopped")]
    EngineGone,
}

impl InferenceError {
    /// Code for the problem document.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        use store::StoreError as S;
        match self {
            Self::Store(S::NotFound { .. }) => ErrorCode::NotFound,
            Self::Store(S::Unavailable(_) | S::NotMigrated { .. }) => ErrorCode::Unavailable,
            Self::Store(_) | Self::Engine(_) | Self::NoConversation | Self::NotTaken | Self::WindowEnded => {
                ErrorCode::Internal
            }
            Self::OutOfMemory { .. } => ErrorCode::GpuOutOfMemory,
            Self::ModelInUse { .. } => ErrorCode::Conflict,
            Self::NotLoaded { .. } => ErrorCode::NotFound,
            Self::Artifacts(_) => ErrorCode::ArtifactDamaged,
            Self::SessionEnded(_) | Self::SessionInUse(_) => ErrorCode::Conflict,
            Self::PromptTooLong { .. }
            | Self::Prompt(_)
            | Self::Voice { .. }
            | Self::VoiceFile { .. }
            | Self::Puppeteer(_)
            | Self::VoiceMismatch { .. }
            | Self::Resume { .. } => ErrorCode::ValidationFailed,
            Self::Model { .. } => ErrorCode::InvalidModel,
            Self::NoModelRoom { .. } => ErrorCode::SessionCapacity,
            Self::EngineGone => ErrorCode::Unavailable,
        }
    }

    /// The same once more, for another who waited for the same model.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Model { model, detail } => Self::Model { model: model.clone(), detail: detail.clone() },
            Self::NoModelRoom { limit } => Self::NoModelRoom { limit: *limit },
            Self::OutOfMemory { model, needed, free } => {
                Self::OutOfMemory { model: model.clone(), needed: *needed, free: *free }
            }
            Self::NotLoaded { model } => Self::NotLoaded { model: model.clone() },
            Self::EngineGone => Self::EngineGone,
            other => Self::Engine(other.to_string()),
        }
    }
}
