//! `[trainer]`

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use tch::Device;

/// What this process trains with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerSettings {
    /// `cpu`, `cuda` or `cuda:N`; several, separated by commas, train one run together, each in a process of its own.
    pub device: String,
    /// Threads of arithmetic; 0 leaves libtorch's own choice.
    pub threads: usize,
    /// Refuse a base whose codec gives other codes for silence and the marker tone than its configuration.
    pub strict_constants: bool,
    /// Other processes of a run.
    pub ranks: RanksSettings,
}

/// How the processes of one run come together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RanksSettings {
    /// Where rank 0 listens for the others; port 0 takes a free one. Beyond loopback only for other machines.
    pub listen: SocketAddr,
    /// Machines that train a run together, this one among them; on the others `ppx train launch` starts the ranks.
    pub nodes: usize,
    /// Seconds that ranks wait for each other at the start.
    pub join_seconds: u64,
    /// Seconds that a rank waits for one that lives but is busy.
    pub timeout_seconds: u64,
}

impl TrainerSettings {
    /// The devices, in the order of local ranks.
    ///
    /// # Errors
    /// When one is not there.
    pub fn devices(&self) -> Result<Vec<Device>, nn::NnError> {
        self.device.split(',').map(|name| nn::device::choose(name.trim())).collect()
    }
}

impl RanksSettings {
    /// As the group takes them.
    #[must_use]
    pub fn options(&self) -> ranks::Options {
        ranks::Options {
            join: Duration::from_secs(self.join_seconds),
            timeout: Duration::from_secs(self.timeout_seconds),
            ..ranks::Options::default()
        }
    }
}
