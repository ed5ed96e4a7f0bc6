//! Decides which facts are injected into a live conversation, and when.
//!
//! A puppeteer stands beside a session and sees what its owner sees: the agent's text and, where there is a transcriber,
//! the caller's. It never sees a frame before the session is done with it, and what it does takes none of the session's
//! time. [`knowledge`] holds facts, [`relevance`] finds those that fit, [`advise`] chooses among them or asks a language
//! model, [`director`] has the rules (pauses, caps, repeats), [`attend`] is the task.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod advise;
pub mod attend;
pub mod director;
pub mod http_lookup;
pub mod knowledge;
pub mod llm_adviser;
pub mod relevance;
pub mod settings;

pub use advise::{Adviser, Keywords, Knowledge, Lookup};
pub use attend::{Puppeteer, Stage};
pub use director::{Advice, Heard, Speaker};
pub use http_lookup::{HttpLookup, ToolSettings};
pub use knowledge::{Fact, KnowledgeBase, KnowledgeError};
pub use llm_adviser::{AdviceSettings, LanguageModel};
pub use settings::PuppeteerSettings;
