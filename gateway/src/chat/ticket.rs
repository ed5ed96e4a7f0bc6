//! Tickets: 256 random bits, kept as their hash.

use rand::Rng;
use sha2::{Digest, Sha256};

/// Draws a ticket; URL-safe.
#[must_use]
pub fn generate() -> String {
    bs58::encode(rand::rng().random::<[u8; 32]>()).into_string()
}

/// What the database keeps.
#[must_use]
pub fn hash(ticket: &str) -> Vec<u8> {
    Sha256::digest(ticket.as_bytes()).to_vec()
}
