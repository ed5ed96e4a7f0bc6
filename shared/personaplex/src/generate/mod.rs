//! Streaming generation (personaplex.md 1.6): a batch of conversations, one row each per 80 ms frame.
//!
//! Row p of a conversation is complete when its 17 values are known, given or sampled. A frame of user audio makes one
//! [`Lm::step`](crate::Lm::step): the newest row of every slot goes through the temporal transformer together, the next row is decided from
//! it. What happens on the device is one function of fixed tensors ([`row`]), so that CUDA can replay it as a graph.

mod batch;
mod history;
mod inputs;
mod prefix;
mod replay;
mod row;

pub use batch::{BatchOptions, Emitted, Given, LmBatch, Order};
pub use history::History;
pub(crate) use history::UNKNOWN;
pub use prefix::{Prefix, Prompt};
