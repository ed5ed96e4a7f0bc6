//! `[trainer]`

use serde::Deserialize;

/// What this process trains with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerSettings {
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Threads of arithmetic; 0 leaves libtorch's own choice.
    pub threads: usize,
    /// Refuse a base whose codec gives other codes for silence and the marker tone than its configuration.
    pub strict_constants: bool,
}
