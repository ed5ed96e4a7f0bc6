//! Datasets made elsewhere: the published on-disk format in both record variants, and single-speaker data.
//!
//! [`tree`] lists the source, [`plan`] reads manifests and records, [`dialogue`] checks one sample at a time and brings it
//! into our form. Everything that is wrong is noted with file and line ([`finding`]); one fault is enough to import nothing.
//! What is ours already keeps its bytes, so that a dataset exported and imported again has the same content hash.

pub mod archive;
pub mod dialogue;
pub mod finding;
pub mod labels;
pub mod manifest;
pub mod plan;
pub mod record;
mod script_words;
mod sidecar;
pub mod text;
pub mod tree;
pub mod words;

use std::sync::Arc;

use domain::dataset::ImportSpec;
use streams::Tokenizer;

/// How a source is read.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Label of the agent's words; none finds it.
    pub main_speaker_label: Option<String>,
    /// Leaves voice prompts out.
    pub drop_voices: bool,
    /// Puts the script's words in the place of recognised ones.
    pub script_words: bool,
    /// Longest sample, seconds.
    pub max_seconds: f64,
    /// For the length of injections and the token counts of the report; none leaves them out.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Longest injection, tags included.
    pub max_injection_tokens: usize,
}

impl ImportOptions {
    /// What the request asks for.
    #[must_use]
    pub fn new(spec: &ImportSpec, max_seconds: f64, tokenizer: Option<Arc<Tokenizer>>) -> Self {
        Self {
            main_speaker_label: spec.main_speaker_label.clone(),
            drop_voices: spec.drop_voices,
            script_words: spec.script_words,
            max_seconds,
            tokenizer,
            max_injection_tokens: streams::ViewConfig::default().max_tokens_per_injection,
        }
    }
}
