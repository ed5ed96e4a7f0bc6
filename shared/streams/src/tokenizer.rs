//! The text tokenizer and the only places that decide how a word, a system prompt and a context become tokens.

use sentencepiece::SentencePieceProcessor;

use crate::error::StreamsError;
use crate::pieces::{Piece, read_pieces};

/// Tag at both ends of a system prompt; the published model closes with the opening form.
pub const SYSTEM_TAG: &str = "<system>";
/// Tag before a context.
pub const CONTEXT_OPEN: &str = "<context>";
/// Tag after a context.
pub const CONTEXT_CLOSE: &str = "</context>";
const SYSTEM_CLOSE: &str = "</system>";

/// A SentencePiece model; shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    model: SentencePieceProcessor,
    pieces: Vec<Piece>,
    newline: Option<i32>,
}

impl Tokenizer {
    /// Reads a serialized SentencePiece model.
    ///
    /// # Errors
    /// When the bytes are not such a model.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StreamsError> {
        let bad = |reason: &str| StreamsError::BadTokenizer(reason.to_owned());
        let pieces =
            read_pieces(bytes).filter(|p| !p.is_empty()).ok_or_else(|| bad("not a SentencePiece model"))?;
        let model = SentencePieceProcessor::from_serialized_proto(bytes).map_err(|e| bad(&e.to_string()))?;
        let mut tokenizer = Self { model, pieces, newline: None };
        tokenizer.newline = tokenizer.encode("\n")?.last().copied();
        Ok(tokenizer)
    }

    /// Number of ids.
    #[must_use]
    pub fn vocabulary_size(&self) -> usize {
        self.pieces.len()
    }

    /// Tokens of `text` as it stands: no BOS, no EOS, no newline handling.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, StreamsError> {
        let failed = |reason: String| StreamsError::Tokenize { chars: text.chars().count(), reason };
        let pieces = self.model.encode(text).map_err(|e| failed(e.to_string()))?;
        pieces
            .iter()
            .map(|p| i32::try_from(p.id).map_err(|_| failed(format!("id {} is too large", p.id))))
            .collect()
    }

    /// Tokens of one spoken word: trimmed, parts between newlines joined by the newline's token.
    ///
    /// # Errors
    /// See [`Self::encode`].
    pub fn word_tokens(&self, word: &str) -> Result<Vec<i32>, StreamsError> {
        let mut out = Vec::new();
        for (i, part) in word.trim().split('\n').enumerate() {
            if i > 0 {
                out.extend(self.newline);
            }
            out.extend(self.encode(part)?);
        }
        Ok(out)
    }

    /// Tokens of a system prompt, wrapped by [`wrap_system`]; none for an empty prompt.
    ///
    /// # Errors
    /// See [`Self::encode`].
    pub fn system_tokens(&self, text: &str) -> Result<Vec<i32>, StreamsError> {
        match wrap_system(text) {
            wrapped if wrapped.is_empty() => Ok(Vec::new()),
            wrapped => self.encode(&wrapped),
        }
    }

    /// Tokens of `<context> text </context>`.
    ///
    /// # Errors
    /// When [`check_context`] refuses the text, or see [`Self::encode`].
    pub fn context_tokens(&self, text: &str) -> Result<Vec<i32>, StreamsError> {
        let text = check_context(text)?;
        self.encode(&format!("{CONTEXT_OPEN} {text} {CONTEXT_CLOSE}"))
    }

    /// Text of an id with U+2581 as a space; none for unknown ids, control ids and single bytes.
    #[must_use]
    pub fn piece(&self, id: i32) -> Option<&str> {
        match self.lookup(id)? {
            Piece::Text(text) => Some(text),
            Piece::Byte(_) | Piece::Silent => None,
        }
    }

    /// Text of a run of ids; padding and control ids are left out.
    #[must_use]
    pub fn decode(&self, ids: &[i32]) -> String {
        let mut decoder = TextDecoder::new();
        let mut out: String = ids.iter().map(|&id| decoder.push(self, id)).collect();
        out.push_str(&decoder.finish());
        out
    }

    fn lookup(&self, id: i32) -> Option<&Piece> {
        self.pieces.get(usize::try_from(id).ok()?)
    }
}

/// Puts a prompt on one line between system tags; already wrapped text is not wrapped again.
///
/// A closing `</system>`, which is not what the model was trained on, becomes `<system>`. Empty text stays empty. Other
/// control characters become spaces. Training and serving both come through here.
#[must_use]
pub fn wrap_system(text: &str) -> String {
    let plain = |c: char| if c.is_control() && !matches!(c, '\n' | '\r') { ' ' } else { c };
    let line = one_line(&text.chars().map(plain).collect::<String>());
    let closed = match line.strip_suffix(SYSTEM_CLOSE) {
        Some(head) if line.starts_with(SYSTEM_TAG) => format!("{head}{SYSTEM_TAG}"),
        _ => line,
    };
    if closed.is_empty() || closed == SYSTEM_TAG {
        String::new()
    } else if closed.starts_with(SYSTEM_TAG) && closed.ends_with(SYSTEM_TAG) {
        closed
    } else {
        format!("{SYSTEM_TAG} {closed} {SYSTEM_TAG}")
    }
}

/// Refuses a prompt from outside that would close its block or open another: the tags may stand at its two ends only.
///
/// # Errors
/// Names the tag.
pub fn check_system(text: &str) -> Result<(), StreamsError> {
    let wrapped = wrap_system(text);
    let inner = wrapped.strip_prefix(SYSTEM_TAG).and_then(|t| t.strip_suffix(SYSTEM_TAG)).unwrap_or("");
    match tag_in(inner) {
        Some(tag) => Err(StreamsError::TagInPrompt(tag.to_owned())),
        None => Ok(()),
    }
}

fn tag_in(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    [CONTEXT_OPEN, CONTEXT_CLOSE, SYSTEM_TAG, SYSTEM_CLOSE].into_iter().find(|tag| lower.contains(tag))
}

/// Trims a context text, puts it on one line, and refuses what must not enter the text stream.
///
/// # Errors
/// When it is empty, contains a tag or a control character.
pub fn check_context(text: &str) -> Result<String, StreamsError> {
    let line = one_line(text);
    if line.is_empty() {
        return Err(StreamsError::EmptyContext);
    }
    if let Some(tag) = tag_in(&line) {
        return Err(StreamsError::TagInContext(tag.to_owned()));
    }
    match line.chars().find(|c| c.is_control()) {
        Some(c) => Err(StreamsError::ControlInContext(u32::from(c))),
        None => Ok(line),
    }
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Turns a live stream of ids into text, holding back unfinished UTF-8 sequences.
#[derive(Debug, Default)]
pub struct TextDecoder {
    pending: Vec<u8>,
}

impl TextDecoder {
    /// A decoder with nothing held back.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Text that `id` completes; empty for padding, control ids and the first bytes of a character.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: i32) -> String {
        match tokenizer.lookup(id) {
            None | Some(Piece::Silent) => String::new(),
            Some(Piece::Text(text)) => {
                let mut out = self.finish();
                out.push_str(text);
                out
            }
            Some(Piece::Byte(byte)) => {
                self.pending.push(*byte);
                self.take_complete()
            }
        }
    }

    /// What is still held back, with U+FFFD for an unfinished character.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }

    fn take_complete(&mut self) -> String {
        let mut out = String::new();
        loop {
            let Err(error) = std::str::from_utf8(&self.pending) else {
                out.push_str(&self.finish());
                return out;
            };
            let valid: Vec<u8> = self.pending.drain(..error.valid_up_to()).collect();
            out.push_str(&String::from_utf8_lossy(&valid));
            let Some(bad) = error.error_len() else { return out };
            self.pending.drain(..bad);
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}
