//! Ports for servers of a test.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex};

use anyhow::{Result, bail};
use rand::Rng;

/// Below the kernel's range for outgoing connections (from 32768), so that no client socket takes the port between
/// this look and the server's start.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A free loopback port. Never given twice by one process.
pub fn free_port() -> Result<u16> {
    free_ports(1)
}

/// The first of `count` consecutive free loopback ports.
pub(crate) fn free_ports(count: u16) -> Result<u16> {
    let mut given = GIVEN.lock().expect("no panic while the lock is held");
    for _ in 0..1000 {
        let base = rand::rng().random_range(RANGE.start..RANGE.end - count);
        let mut ports = base..base + count;
        let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if ports.all(|port| !given.contains(&port) && free(port)) {
            given.extend(base..base + count);
            return Ok(base);
        }
    }
    bail!("no {count} consecutive free ports between {} and {}", RANGE.start, RANGE.end)
}
