//! The processes that train one run together, as its loop sees them: every process holds a replica and adds up what the
//! others found. One process on its own is a group too ([`Alone`]); several are a [`TcpGroup`] on CPUs and a
//! [`NcclGroup`] on GPUs. docs/TRAINING_RANKS.md tells how they are started.

#![deny(missing_docs)]

mod alone;
mod error;
mod flat;
mod frame;
mod handshake;
mod life;
pub mod local;
mod membership;
mod nccl;
mod rendezvous;
mod shared;
mod tcp;

use tch::Tensor;

pub use alone::Alone;
pub use error::RanksError;
pub use handshake::Token;
pub use membership::Membership;
pub use nccl::NcclGroup;
pub use rendezvous::Rendezvous;
pub use shared::Shared;
pub use tcp::{Options, TcpGroup};

/// What processes do together. Every process makes the same calls in the same order; a process that is gone makes the
/// calls of the others fail within the group's timeout.
pub trait Group: Send {
    /// Number of this process, from 0.
    fn rank(&self) -> usize;
    /// Number of processes.
    fn world(&self) -> usize;
    /// Replaces every value by its sum over the processes, added in the order of ranks.
    ///
    /// # Errors
    /// When another process is gone.
    fn sum(&self, values: &mut [f64]) -> Result<(), RanksError>;
    /// Replaces every f32 tensor, in place, by its sum over the processes.
    ///
    /// # Errors
    /// When another process is gone.
    fn sum_tensors(&self, tensors: &[Tensor]) -> Result<(), RanksError>;
    /// The bytes that rank 0 gives; what others give is ignored.
    ///
    /// # Errors
    /// When another process is gone.
    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError>;
    /// Fills `whole`, a flat tensor, with the `part`s of all processes in the order of ranks; parts have one size and
    /// kind.
    ///
    /// # Errors
    /// When another process is gone.
    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError>;
}
