//! What goes into the inject queue and what comes out of it.

/// What an item is for; earlier variants go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InjectKind {
    /// A fact or instruction from outside.
    Context,
    /// A hidden cue to break a silence; dropped when a context arrives.
    Nudge,
    /// A hidden cue to open the conversation.
    Greeting,
}

/// When an item may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum When {
    /// At the next frame, even if a word is cut.
    Immediate,
    /// When the agent is not speaking, or at the deadline.
    #[default]
    Pause,
    /// When the user speaks and the agent does not, or at the deadline: nobody hears the gap.
    UserSpeech,
}

/// Something to inject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectItem {
    /// Chosen by the sender; a second item with the same id is refused.
    pub id: String,
    /// Priority.
    pub kind: InjectKind,
    /// Tokens including the tags.
    pub tokens: Vec<i32>,
    /// Start condition.
    pub when: When,
    /// Frames after which it starts anyway; none for the default.
    pub deadline_frames: Option<u32>,
    /// Frames after which it is stale and dropped; none for the default.
    pub ttl_frames: Option<u32>,
    /// Id of an item that is dropped if it still waits.
    pub supersedes: Option<String>,
}

/// Bounds and times, frames unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueLimits {
    /// Waiting items.
    pub max_items: usize,
    /// Waiting tokens of all items together.
    pub max_waiting_tokens: usize,
    /// Tokens of one item.
    pub max_item_tokens: usize,
    /// Free frames after a block.
    pub cooldown_frames: u32,
    /// Padding frames in a row that count as a pause.
    pub pause_frames: u32,
    /// Default deadline.
    pub deadline_frames: u32,
    /// Extra wait for a word boundary after the deadline.
    pub boundary_frames: u32,
    /// Default time to live.
    pub ttl_frames: u32,
    /// Emitted frames in a row below [`Self::quiet_dbfs`] that a pause needs beside the padding.
    pub quiet_frames: u32,
    /// Level below which a frame of the agent is silence, dBFS.
    pub quiet_dbfs: f32,
    /// Level from which a frame of the user is speech, dBFS.
    pub speech_dbfs: f32,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            max_items: 8,
            max_waiting_tokens: 512,
            max_item_tokens: 256,
            cooldown_frames: 3,
            pause_frames: 6,
            deadline_frames: 25,
            boundary_frames: 4,
            ttl_frames: 250,
            quiet_frames: 3,
            quiet_dbfs: -45.0,
            speech_dbfs: -40.0,
        }
    }
}

/// Why an item is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No room.
    #[error("queue is full: {items} items with {tokens} tokens wait")]
    QueueFull {
        /// Waiting items.
        items: usize,
        /// Waiting tokens.
        tokens: usize,
    },
    /// Nothing to inject.
    #[error("item {0:?} has no tokens")]
    Empty(String),
    /// Longer than one block may be.
    #[error("item has {tokens} tokens, the limit is {limit}")]
    TooLong {
        /// Its tokens.
        tokens: usize,
        /// Largest allowed number.
        limit: usize,
    },
    /// The id was used before in this session.
    #[error("id {0:?} was used before")]
    DuplicateId(String),
    /// The session is over.
    #[error("session has ended")]
    Ended,
}

/// Where the queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// The prompt is being fed; items wait.
    Prompt,
    /// Nothing is being injected.
    Idle,
    /// A block is running.
    Injecting,
    /// Between two blocks.
    Cooldown,
    /// The session is over.
    Ended,
}

/// What happened, for the client and the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectEvent {
    /// The first token was given at `frame`.
    Started {
        /// Item.
        id: String,
        /// Conversation frame.
        frame: u64,
    },
    /// All tokens were given in `[frame_start, frame_end)`.
    Completed {
        /// Item.
        id: String,
        /// First frame.
        frame_start: u64,
        /// Frame after the last.
        frame_end: u64,
    },
    /// It waited too long.
    Expired {
        /// Item.
        id: String,
    },
    /// It gave way: a nudge to a context, or to an item that supersedes it.
    Dropped {
        /// Item.
        id: String,
    },
    /// The session ended first.
    Aborted {
        /// Item.
        id: String,
        /// Tokens already given.
        consumed: usize,
    },
}

/// What to do with the frame about to be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Sample text and agent audio.
    Free,
    /// Give this text id and agent silence; hide the frame from the client.
    Forced {
        /// Text id.
        token: i32,
    },
}
