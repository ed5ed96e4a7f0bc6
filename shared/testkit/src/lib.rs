//! What tests share: private servers, a database and a vhost of their own, golden data, waiting by condition, and
//! running stacks of our own binaries.
//!
//! A dev-dependency only. It is not a mock of anything: the servers are real ones, started once per target folder
//! (`.ci/lib/test-servers.sh`) and reused by every test process; what a test owns is a name inside them.

mod broker;
mod bus;
mod database;
mod golden;
mod http;
mod numbers;
mod ports;
mod redis;
mod servers;
mod stack;
mod wait;
mod workspace;

pub use broker::Broker;
pub use bus::TestBus;
pub use database::TestDb;
pub use golden::{Golden, golden_json, golden_path};
pub use numbers::{assert_close, assert_same};
pub use ports::free_port;
pub use redis::TestRedis;
pub use servers::Servers;
pub use stack::{Stack, StackBuilder};
pub use wait::{wait_for, wait_until};
pub use workspace::{binary, workspace_root};
