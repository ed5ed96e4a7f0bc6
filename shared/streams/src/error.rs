//! What can go wrong when a view is built.

/// Errors of this crate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StreamsError {
    /// The bytes are not a SentencePiece model.
    #[error("cannot read the text tokenizer: {0}")]
    BadTokenizer(String),
    /// The tokenizer failed on a text.
    #[error("cannot tokenize a text of {chars} characters: {reason}")]
    Tokenize {
        /// Length of the text.
        chars: usize,
        /// What the tokenizer said.
        reason: String,
    },
    /// Context without words.
    #[error("context text is empty")]
    EmptyContext,
    /// Context that carries a tag would close or open a block.
    #[error("context text contains the tag {0:?}")]
    TagInContext(String),
    /// A system prompt that carries a tag would close or open a block.
    #[error("the prompt contains the tag {0:?}")]
    TagInPrompt(String),
    /// Context with a control character.
    #[error("context text contains the control character U+{0:04X}")]
    ControlInContext(u32),
    /// More tokens than one injection may have.
    #[error("injection {index} has {tokens} tokens, the limit is {limit}")]
    InjectionTooLong {
        /// Position in the list of injections.
        index: usize,
        /// Tokens including the tags.
        tokens: usize,
        /// Largest allowed number.
        limit: usize,
    },
    /// `after_turn` names no turn.
    #[error("after_turn {after_turn} is out of range: the dialogue has {turns} turns")]
    AfterTurnOutOfRange {
        /// The index asked for.
        after_turn: u32,
        /// Turns there are.
        turns: usize,
    },
    /// The turns are not numbered 0, 1, 2, …
    #[error("turn at position {position} carries index {index}")]
    TurnIndexMismatch {
        /// Position in the list.
        position: usize,
        /// Index it carries.
        index: u32,
    },
    /// An injection lies past the end of the audio.
    #[error("injection {index} is placed at frame {offset}, the audio has {frames} frames")]
    OffsetBeyondAudio {
        /// Position in the list of injections.
        index: usize,
        /// Its frame.
        offset: usize,
        /// Frames of the conversation.
        frames: usize,
    },
    /// An injection was never placed.
    #[error("injection {index} has no frame offset")]
    NotPlaced {
        /// Position in the list of injections.
        index: usize,
    },
    /// The two sides have different lengths.
    #[error("agent codes have {agent} frames, user codes {user}")]
    LengthMismatch {
        /// Agent frames.
        agent: usize,
        /// User frames.
        user: usize,
    },
    /// Real frames must carry codec codes.
    #[error("{side} code {code} at frame {frame} is outside 0..2048")]
    BadCode {
        /// `agent` or `user`.
        side: &'static str,
        /// The value found.
        code: i32,
        /// Where.
        frame: usize,
    },
    /// The prompt leaves too little room.
    #[error(
        "the prompt takes {prompt_frames} of {duration_frames} frames and leaves {left}; at least {needed} are needed"
    )]
    PromptTooLong {
        /// Frames of the prefix.
        prompt_frames: usize,
        /// Frames of a sample.
        duration_frames: usize,
        /// What is left for the conversation.
        left: usize,
        /// Smallest usable window.
        needed: usize,
    },
    /// A context span does not fit in any window.
    #[error("context span of {span} frames at frame {start} is longer than the window of {window} frames")]
    SpanTooLong {
        /// First frame of the span.
        start: usize,
        /// Its length.
        span: usize,
        /// Frames of a window.
        window: usize,
    },
}
