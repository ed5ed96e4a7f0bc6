//! The handle on the engine: one operating-system thread that owns the models and every conversation's state.
//!
//! Tensors may be sent to another thread but not shared, so everything that touches them happens there. The rest of the
//! process sends [`EngineCommand`]s; each that wants an answer carries a place for it. User audio waits in a bounded line
//! beside them. Dropping a [`Conversation`] (or the answer to an open command that nobody waits for any more) frees its
//! slot.

mod conversation;
#[cfg(test)]
mod failing;
mod group;
mod loading;
mod memory;
mod models;
mod pace;
mod prefixes;
mod slot;
mod step;
mod thread;
mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use domain::ModelId;
use domain::session::SamplingParams;
use personaplex::Frame;
use streams::inject_queue::{InjectEvent, InjectItem, QueueLimits, Rejection};
use streams::{layout::Codes, tokens::PromptCodes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Span;
use weights::VoiceFile;

use crate::{InferenceError, InferenceSettings};
pub use conversation::{Conversation, Injector, MAX_BACKLOG, MAX_UNDER_WAY, Pushed};
use loading::Loader;
pub use loading::Source;
use models::Loaded;
pub use pace::{Absent, Pace};
pub use window::WindowPolicy;

/// Times that an open loads what it needs.
const TRIES: usize = 3;

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

/// Where an adapter lies that goes beside its base.
#[derive(Debug, Clone)]
pub struct AdapterSource {
    /// Its row.
    pub id: ModelId,
    /// Folder on the local disk.
    pub dir: PathBuf,
    /// File name and SHA-256 of every registered file.
    pub files: Vec<(String, String)>,
}

/// A model or an adapter that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelStatus {
    /// Its row.
    pub id: ModelId,
    /// Of an adapter: the model it lies on.
    pub base: Option<ModelId>,
    /// Conversations that use it.
    pub sessions: usize,
    /// Bytes reckoned for it, its conversations included.
    pub bytes: u64,
    /// Prompts kept; with the base for its adapters too.
    pub prompts: usize,
    /// Bytes of the prompts kept.
    pub prompt_bytes: u64,
    /// Conversations that started from a kept prompt.
    pub prompt_hits: u64,
}

impl ModelStatus {
    const fn none() -> Self {
        let id = ModelId::from_uuid(uuid::Uuid::nil());
        Self { id, base: None, sessions: 0, bytes: 0, prompts: 0, prompt_bytes: 0, prompt_hits: 0 }
    }
}

/// How the engine has kept up with its clock since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadFigures {
    /// Ticks worked on.
    pub ticks: u64,
    /// Those of them that were over only after the next one was due.
    pub late: u64,
    /// The longest, from when it was due to its end.
    pub longest: Duration,
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
    /// The model, or the base of the adapter.
    pub model: ModelSource,
    /// The adapter that the conversation goes through.
    pub adapter: Option<AdapterSource>,
    /// Voice prompt.
    pub voice: Option<StoredVoice>,
    /// Tokens of the wrapped text prompt.
    pub prompt_tokens: Vec<i32>,
    /// How tokens are drawn; clamped to sensible bounds.
    pub sampling: SamplingParams,
    /// Bounds of the inject queue.
    pub limits: QueueLimits,
    /// When it steps.
    pub pace: Pace,
    /// Rows of an interrupted conversation with the same prompt ([`Rows`]): it goes on after them.
    pub resume: Option<Vec<Frame>>,
}

/// Rows of a conversation from its beginning: 17 ids a frame, all that another process needs to go on with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// Number of the first complete row here.
    pub first: usize,
    /// Rows that will not change any more. Those of a voice given as embeddings hold -2.
    pub complete: Vec<Frame>,
    /// What is known of the rows after them; -2 where nothing is. To go on, give complete and open rows in a row.
    pub open: Vec<Frame>,
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
    /// What the client should know about the conversation itself.
    pub notices: Vec<Notice>,
    /// The user audio that was fed, 1,920 samples.
    pub user: Vec<f32>,
    /// Nothing came from the user in time: silence was fed.
    pub was_absent: bool,
    /// Codec, model and codec again, of all conversations that stepped together.
    pub took: Duration,
}

/// Something about a conversation as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The window ends, and the conversation with it ([`WindowPolicy::Stop`]).
    WindowEnds {
        /// Frames left.
        frames: usize,
    },
    /// The window was filled anew: older parts of the conversation are forgotten ([`WindowPolicy::Refresh`]).
    WindowRefreshed {
        /// Rows that the model still sees, the prompt's included.
        rows: usize,
    },
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
    /// The model or the adapter must be loaded first; the request comes back.
    NotLoaded(Box<OpenRequest>, Place),
}

enum EngineCommand {
    Open {
        request: Box<OpenRequest>,
        place: Place,
        /// For the conversation, which keeps the engine alive.
        mailbox: Mailbox,
        span: Span,
        reply: Answer<Opened>,
    },
    Inject {
        slot: SlotId,
        item: InjectItem,
        span: Span,
        reply: Answer<Result<usize, Rejection>>,
    },
    Rows {
        slot: SlotId,
        since: usize,
        reply: Answer<Rows>,
    },
    Finish {
        slot: SlotId,
        reply: Answer<Vec<InjectEvent>>,
    },
    /// Room for a model of so many bytes; the answer is whether it is loaded already.
    MakeRoom {
        model: ModelId,
        bytes: u64,
        reply: Answer<bool>,
    },
    /// As [`EngineCommand::MakeRoom`] for an adapter.
    MakeAdapterRoom {
        base: ModelId,
        adapter: ModelId,
        bytes: u64,
        reply: Answer<bool>,
    },
    Keep {
        loaded: Box<Loaded>,
        reply: Answer<()>,
    },
    Unload {
        model: ModelId,
        reply: Answer<()>,
    },
    Models {
        reply: Answer<Vec<ModelStatus>>,
    },
    Figures {
        reply: Answer<LoadFigures>,
    },
    /// There is audio, or a conversation is gone.
    Wake,
}

/// The way to the engine thread. The thread ends when the last one is gone.
#[derive(Clone)]
struct Mailbox {
    commands: mpsc::Sender<EngineCommand>,
    /// A wake command is on its way: one is enough.
    waking: Arc<AtomicBool>,
    running: Arc<AtomicBool>,
}

impl Mailbox {
    fn wake(&self) {
        if !self.waking.swap(true, Ordering::AcqRel) {
            let _ = self.commands.send(EngineCommand::Wake);
        }
    }
}

/// Starts conversations; cheap to clone. The thread ends when the last handle and conversation are gone.
#[derive(Clone)]
pub struct Engine {
    mailbox: Mailbox,
    places: Arc<Semaphore>,
    loader: Loader,
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
        let (commands, inbox) = mpsc::channel();
        let (waking, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let mailbox = Mailbox { commands, waking: Arc::clone(&waking), running: Arc::clone(&running) };
        let options = thread::Options::new(settings, device, threads);
        std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || thread::run(&inbox, &options, &waking, &running))?;
        let places = Arc::new(Semaphore::new(settings.max_sessions));
        tracing::info!(device = settings.device, dtype = settings.dtype, threads, "engine started");
        let strict_constants = settings.strict_constants;
        let loader =
            Loader::new(loading::Place { device, kind, threads, strict_constants, sizes: options.sizes() });
        Ok(Self { mailbox, places, loader })
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
        self.mailbox.running.load(Ordering::Acquire)
    }

    /// Opens a conversation: loads the model and its adapter unless they are loaded, encodes the voice, feeds the whole
    /// prompt. A model that is being loaded is kept when nobody waits for it any more.
    ///
    /// # Errors
    /// When the model files are damaged, there is no room for the model, or the engine fails.
    pub async fn open(&self, request: OpenRequest, place: Place) -> Result<Conversation, InferenceError> {
        let (mut request, mut place) = (Box::new(request), place);
        // Another model may take the place of the one just loaded before it is used.
        for _ in 0..TRIES {
            match self.try_open(request, place).await? {
                Opened::Ready(conversation) => return Ok(conversation),
                Opened::NotLoaded(again, kept) => (request, place) = (again, kept),
            }
            let source = match &request.adapter {
                Some(adapter) => Source::Adapter(request.model.clone(), adapter.clone()),
                None => Source::Model(request.model.clone()),
            };
            self.load(source).await?;
        }
        Err(InferenceError::Engine("a model just loaded is missing again and again".into()))
    }

    async fn try_open(&self, request: Box<OpenRequest>, place: Place) -> Result<Opened, InferenceError> {
        let (span, mailbox) = (Span::current(), self.mailbox.clone());
        ask(&self.mailbox, |reply| EngineCommand::Open { request, place, mailbox, span, reply }).await
    }

    /// Loads a model or an adapter unless it is loaded. Live conversations go on meanwhile.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn load(&self, source: Source) -> Result<(), InferenceError> {
        self.loader.load(&self.mailbox, source).await
    }

    /// Unloads a model or an adapter.
    ///
    /// # Errors
    /// When it is not loaded, or conversations use it.
    pub async fn unload(&self, model: ModelId) -> Result<(), InferenceError> {
        ask(&self.mailbox, |reply| EngineCommand::Unload { model, reply }).await
    }

    /// What is loaded.
    ///
    /// # Errors
    /// When the engine is gone.
    pub async fn models(&self) -> Result<Vec<ModelStatus>, InferenceError> {
        ask(&self.mailbox, |reply| EngineCommand::Models { reply }).await
    }

    /// How it has kept up with its clock.
    ///
    /// # Errors
    /// When the engine is gone.
    pub async fn load_figures(&self) -> Result<LoadFigures, InferenceError> {
        ask(&self.mailbox, |reply| EngineCommand::Figures { reply }).await
    }

    /// What is being loaded.
    #[must_use]
    pub fn loading(&self) -> Vec<ModelId> {
        self.loader.under_way()
    }
}

async fn ask<T>(
    mailbox: &Mailbox,
    command: impl FnOnce(Answer<T>) -> EngineCommand,
) -> Result<T, InferenceError> {
    let (reply, answer) = oneshot::channel();
    mailbox.commands.send(command(reply)).map_err(|_| InferenceError::EngineGone)?;
    answer.await.map_err(|_| InferenceError::EngineGone)?
}
