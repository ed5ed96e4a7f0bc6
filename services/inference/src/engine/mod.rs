//! The handle on the engine: one operating-system thread that owns the models and every conversation's state.
//!
//! Tensors may be sent to another thread but not shared, so everything that touches them happens there. The rest of the
//! process sends [`EngineCommand`]s through a bounded channel; each carries its span and a place for the answer. Dropping
//! a [`Conversation`] (or the answer to an open command that nobody waits for any more) frees its slot.

mod models;
mod slot;
mod thread;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::ModelId;
use domain::session::SamplingParams;
use streams::inject_queue::{InjectEvent, InjectItem, QueueLimits, Rejection};
use streams::{layout::Codes, tokens::PromptCodes};
use tch::{Device, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tracing::Span;
use weights::VoiceFile;

use crate::{InferenceError, InferenceSettings};
use models::LoadedModel;

/// Commands that may wait; a session has at most one open at a time, plus its end.
const CHANNEL: usize = 256;

/// Where a model lies and what its files must be.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// Its row.
    pub id: ModelId,
    /// Folder on the local disk.
    pub dir: PathBuf,
    /// File name and SHA-256 of every registered file.
    pub files: Vec<(String, String)>,
    /// Silence and marker codes of its codec.
    pub codes: PromptCodes,
}

/// A registered voice.
#[derive(Debug, Clone)]
pub struct StoredVoice {
    /// Hash of the registered file; with the model it names what the engine made of it.
    pub sha256: String,
    /// Content.
    pub file: Arc<VoiceFile>,
}

/// Everything a conversation starts from.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The model.
    pub model: ModelSource,
    /// Voice prompt.
    pub voice: Option<StoredVoice>,
    /// Tokens of the wrapped text prompt.
    pub prompt_tokens: Vec<i32>,
    /// How tokens are drawn; clamped to sensible bounds.
    pub sampling: SamplingParams,
    /// Bounds of the inject queue.
    pub limits: QueueLimits,
}

/// One frame of the agent.
#[derive(Debug, Clone)]
pub struct AgentFrame {
    /// Conversation frame, counted from 0 after the prompt.
    pub index: u64,
    /// 1,920 samples.
    pub pcm: Vec<f32>,
    /// The agent's codes.
    pub agent: Codes,
    /// The text id; `None` when the frame carries hidden context, so that such an id never leaves the engine.
    pub text: Option<i32>,
    /// Whether the frame carries hidden context.
    pub hidden: bool,
    /// What the inject queue did.
    pub events: Vec<InjectEvent>,
    /// Codec, model and codec again.
    pub took: Duration,
}

/// A place for one conversation, taken before the upgrade.
#[derive(Debug)]
pub struct Place {
    /// Given back when this is dropped.
    _permit: OwnedSemaphorePermit,
}

type SlotId = u64;
type Answer<T> = oneshot::Sender<Result<T, InferenceError>>;

enum Opened {
    Ready(Conversation),
    /// The model must be loaded first; the request comes back.
    NotLoaded(Box<OpenRequest>, Place),
}

enum EngineCommand {
    Open {
        request: Box<OpenRequest>,
        place: Place,
        loaded: Option<Box<LoadedModel>>,
        span: Span,
        reply: Answer<Opened>,
    },
    Frame {
        slot: SlotId,
        pcm: Vec<f32>,
        span: Span,
        reply: Answer<AgentFrame>,
    },
    Inject {
        slot: SlotId,
        item: InjectItem,
        span: Span,
        reply: Answer<Result<usize, Rejection>>,
    },
    Close,
}

/// Starts conversations; cheap to clone. The thread ends when the last handle and conversation are gone.
#[derive(Clone)]
pub struct Engine {
    commands: mpsc::Sender<EngineCommand>,
    places: Arc<Semaphore>,
    /// One model is loaded at a time, so that two sessions do not read the same 16 GB twice.
    loading: Arc<tokio::sync::Mutex<()>>,
    device: Device,
    kind: Kind,
    threads: usize,
    strict_constants: bool,
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the device does not exist (there is no fall-back to the CPU) or the thread cannot be made.
    pub fn start(settings: &InferenceSettings) -> anyhow::Result<Self> {
        let device = nn::device::choose(&settings.device)?;
        let kind = nn::device::dtype(&settings.dtype)?;
        let threads = match settings.threads {
            0 => std::thread::available_parallelism()?.get(),
            n => n,
        };
        let (commands, inbox) = mpsc::channel(CHANNEL);
        let back = commands.downgrade();
        let max_models = settings.max_models.max(1);
        std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || thread::run(inbox, back, max_models, threads))?;
        let places = Arc::new(Semaphore::new(settings.max_sessions));
        tracing::info!(device = settings.device, dtype = settings.dtype, threads, "engine started");
        let strict_constants = settings.strict_constants;
        Ok(Self { commands, places, loading: Arc::default(), device, kind, threads, strict_constants })
    }

    /// Takes a place for a conversation; `None` when all are taken.
    #[must_use]
    pub fn reserve(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(|permit| Place { _permit: permit })
    }

    /// Places that are free now.
    #[must_use]
    pub fn free_places(&self) -> usize {
        self.places.available_permits()
    }

    /// Whether the thread still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Opens a conversation: loads the model unless it is loaded, encodes the voice, feeds the whole prompt.
    ///
    /// # Errors
    /// When the model files are damaged, there is no room for the model, or the engine fails.
    pub async fn open(&self, request: OpenRequest, place: Place) -> Result<Conversation, InferenceError> {
        let (request, place) = match self.try_open(Box::new(request), place, None).await? {
            Opened::Ready(conversation) => return Ok(conversation),
            Opened::NotLoaded(request, place) => (request, place),
        };
        let _one_at_a_time = self.loading.lock().await;
        let (request, place) = match self.try_open(request, place, None).await? {
            Opened::Ready(conversation) => return Ok(conversation),
            Opened::NotLoaded(request, place) => (request, place),
        };
        let loaded = self.load(request.model.clone()).await?;
        match self.try_open(request, place, Some(loaded)).await? {
            Opened::Ready(conversation) => Ok(conversation),
            Opened::NotLoaded(..) => Err(InferenceError::Engine("a model just loaded is missing".into())),
        }
    }

    async fn try_open(
        &self,
        request: Box<OpenRequest>,
        place: Place,
        loaded: Option<Box<LoadedModel>>,
    ) -> Result<Opened, InferenceError> {
        let span = Span::current();
        ask(&self.commands, |reply| EngineCommand::Open { request, place, loaded, span, reply }).await
    }

    /// Reads and checks model files on a thread of its own: live conversations go on meanwhile.
    async fn load(&self, source: ModelSource) -> Result<Box<LoadedModel>, InferenceError> {
        let (device, kind, threads) = (self.device, self.kind, self.threads);
        let strict = self.strict_constants;
        tokio::task::spawn_blocking(move || {
            nn::device::set_threads(threads);
            LoadedModel::load(&source, device, kind, strict).map(Box::new)
        })
        .await
        .map_err(|e| InferenceError::Engine(e.to_string()))?
    }
}

/// One live conversation. Dropping it frees its slot.
pub struct Conversation {
    slot: SlotId,
    prompt_frames: usize,
    commands: mpsc::Sender<EngineCommand>,
    /// The engine holds the weak end and clears slots whose strong end is gone.
    alive: Option<Arc<()>>,
}

impl Conversation {
    /// Frames of the prompt that was fed.
    #[must_use]
    pub const fn prompt_frames(&self) -> usize {
        self.prompt_frames
    }

    /// Gives one frame of user audio (1,920 samples) and takes the agent's frame of the same number.
    ///
    /// # Errors
    /// When the model fails; the conversation is over then.
    pub async fn frame(&self, pcm: Vec<f32>) -> Result<AgentFrame, InferenceError> {
        let (slot, span) = (self.slot, Span::current());
        ask(&self.commands, |reply| EngineCommand::Frame { slot, pcm, span, reply }).await
    }

    /// Queues an injection; the value is the number of items that go before it.
    ///
    /// # Errors
    /// The outer error when the engine is gone, the inner one when the queue refuses.
    pub async fn inject(&self, item: InjectItem) -> Result<Result<usize, Rejection>, InferenceError> {
        let (slot, span) = (self.slot, Span::current());
        ask(&self.commands, |reply| EngineCommand::Inject { slot, item, span, reply }).await
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.alive = None;
        // Only wakes the engine. When the channel is full there are commands that do the same.
        let _ = self.commands.try_send(EngineCommand::Close);
    }
}

async fn ask<T>(
    commands: &mpsc::Sender<EngineCommand>,
    command: impl FnOnce(Answer<T>) -> EngineCommand,
) -> Result<T, InferenceError> {
    let (reply, answer) = oneshot::channel();
    commands.send(command(reply)).await.map_err(|_| InferenceError::EngineGone)?;
    answer.await.map_err(|_| InferenceError::EngineGone)?
}
