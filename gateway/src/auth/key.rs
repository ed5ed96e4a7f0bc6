//! The text of an API key: `ppx_<environment>_<key id>_<secret><checksum>`.
//!
//! The checksum lets a typing mistake be told from a wrong key without a look into the database, and lets scanners
//! recognise leaked keys.

use rand::Rng;
use sha2::{Digest, Sha256};

const KEY_ID_LENGTH: usize = 12;
const CHECKSUM_LENGTH: usize = 8;
/// 32 random bytes in base 58 need 43 or 44 characters.
const SECRET_LENGTH: std::ops::RangeInclusive<usize> = 43..=64;

/// A fresh key; the text is shown once.
#[derive(Clone)]
pub struct NewKey {
    /// The whole key.
    pub text: String,
    /// Its public part.
    pub key_id: String,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKey").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// The public part of a well-formed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedKey<'k> {
    /// Finds the row.
    pub key_id: &'k str,
}

/// Why a text is not a key. The text is not repeated: it may be one with a typing mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not `ppx_<environment>_<key id>_<secret>`.
    Shape,
    /// The checksum does not fit the rest.
    Checksum,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shape => "not of the form ppx_<environment>_<key id>_<secret>",
            Self::Checksum => "its checksum does not fit: a character is missing or mistyped",
        })
    }
}
impl std::error::Error for Malformed {}

/// Draws a key with 256 random bits.
#[must_use]
pub fn generate(environment: &str) -> NewKey {
    let mut rng = rand::rng();
    let secret = bs58::encode(rng.random::<[u8; 32]>()).into_string();
    // A secret with leading zero bytes may be shorter; pad with the alphabet's zero.
    let secret = format!("{secret:1>43}");
    let id = bs58::encode(rng.random::<[u8; 9]>()).into_string();
    let key_id = format!("{id:1>KEY_ID_LENGTH$}").chars().take(KEY_ID_LENGTH).collect::<String>();
    let body = format!("ppx_{environment}_{key_id}_{secret}");
    NewKey { text: format!("{body}{}", checksum(&body)), key_id }
}

/// Splits a key and checks its form.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<ParsedKey<'_>, Malformed> {
    let base58 = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric());
    let parts: Vec<&str> = text.split('_').collect();
    let [prefix, environment, key_id, rest] = parts.as_slice() else { return Err(Malformed::Shape) };
    let good = *prefix == "ppx"
        && !environment.is_empty()
        && text.len() <= 200
        && key_id.len() == KEY_ID_LENGTH
        && [*environment, *key_id, *rest].into_iter().all(base58);
    let secret_length = rest.len().checked_sub(CHECKSUM_LENGTH).ok_or(Malformed::Shape)?;
    if !good || !SECRET_LENGTH.contains(&secret_length) {
        return Err(Malformed::Shape);
    }
    let (body, found) = text.split_at(text.len() - CHECKSUM_LENGTH);
    if checksum(body) == found { Ok(ParsedKey { key_id }) } else { Err(Malformed::Checksum) }
}

/// What the database keeps. The secret has 256 random bits, so a slow hash would protect nothing.
#[must_use]
pub fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// CRC-32 (IEEE 802.3) in hex.
fn checksum(text: &str) -> String {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    format!("{:08x}", !crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_key_parses_and_one_changed_character_does_not() {
        for _ in 0..200 {
            let key = generate("local");
            assert_eq!(parse(&key.text), Ok(ParsedKey { key_id: &key.key_id }), "{}", key.text);
        }
        let key = generate("local").text;
        let last = key.len() - 1;
        let other = if key.ends_with('0') { "1" } else { "0" };
        assert_eq!(parse(&format!("{}{other}", &key[..last])), Err(Malformed::Checksum));
        assert!(parse(&key[..last]).is_err());
        for bad in ["", "ppx", "ppx_local_x_y", "sk-123", "ppx_a_b_c_d", &key.replace("ppx", "ppy")] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_checksum_is_the_standard_crc32() {
        assert_eq!(checksum("123456789"), "cbf43926");
    }
}
