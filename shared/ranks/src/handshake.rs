//! How a process proves that it belongs to the group, before anything else is sent. Both sides show that they know the
//! token (HMAC-SHA256 over fresh random numbers of both) without sending it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rand::RngCore;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::RanksError;

/// Version of the messages between ranks; only equal versions talk.
const VERSION: u32 = 1;
const MAGIC: &[u8; 4] = b"PXRK";
/// A peer that stays silent this long in a handshake is no rank.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest text of a refusal.
const MAX_TEXT: usize = 1024;
const NONCE: usize = 16;
const MAC: usize = 32;

/// The secret that the processes of one group share.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Name of the variable that carries it to a process.
    pub const VARIABLE: &'static str = "PPX_RANKS_TOKEN";

    /// A token of at least 16 characters.
    ///
    /// # Errors
    /// When it is shorter.
    pub fn new(text: &str) -> Result<Self, RanksError> {
        if text.len() < 16 {
            let detail = format!("has {} characters: at least 16 are needed", text.len());
            return Err(RanksError::Variable { name: Self::VARIABLE, detail });
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// A fresh random token.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(hex::encode(bytes).into_bytes())
    }

    /// Reads it through `lookup` from [`Token::VARIABLE`].
    ///
    /// # Errors
    /// When it is missing or too short.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, RanksError> {
        let missing = || RanksError::Variable { name: Self::VARIABLE, detail: "is not set".into() };
        Self::new(&lookup(Self::VARIABLE).ok_or_else(missing)?)
    }

    /// The secret, for the environment of a child process. Never write it anywhere else.
    pub(crate) fn reveal(&self) -> std::ffi::OsString {
        std::os::unix::ffi::OsStringExt::from_vec(self.0.clone())
    }

    /// HMAC-SHA256 (RFC 2104) of the parts.
    fn mac(&self, parts: &[&[u8]]) -> [u8; MAC] {
        let mut key = [0_u8; 64];
        if self.0.len() > key.len() {
            key[..MAC].copy_from_slice(&Sha256::digest(&self.0));
        } else {
            key[..self.0.len()].copy_from_slice(&self.0);
        }
        let mut inner = Sha256::new_with_prefix(key.map(|byte| byte ^ 0x36));
        for part in parts {
            inner.update(part);
        }
        let outer = Sha256::new_with_prefix(key.map(|byte| byte ^ 0x5c));
        outer.chain_update(inner.finalize()).finalize().into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a connection is for: every rank but 0 opens one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Calls and their data.
    Data = 0,
    /// Signs of life, and the news of a failure.
    Life = 1,
}

/// Who opens a connection and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) purpose: Purpose,
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

impl Caller {
    fn bytes(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[0] = self.purpose as u8;
        bytes[1..5].copy_from_slice(&self.rank.to_be_bytes());
        bytes[5..].copy_from_slice(&self.world.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; 9]) -> Option<Self> {
        let [purpose, a, b, c, d, e, f, g, h] = bytes;
        let purpose = [Purpose::Data, Purpose::Life].into_iter().find(|known| *known as u8 == purpose)?;
        Some(Self {
            purpose,
            rank: u32::from_be_bytes([a, b, c, d]),
            world: u32::from_be_bytes([e, f, g, h]),
        })
    }
}

/// How a handshake failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection broke or was silent: worth another try.
    Broken(io::Error),
    /// The other side is not of this group.
    Stranger(String),
    /// The other side knows the token but was started wrongly, or says so of this one.
    Refused(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Rank 0's side. `admit` says why a caller that knows the token is not let in.
pub(crate) fn receive(
    stream: &TcpStream,
    token: &Token,
    admit: impl FnOnce(Caller) -> Result<(), String>,
) -> Result<Caller, Failure> {
    prepare(stream)?;
    let mut nonce = [0; NONCE];
    rand::rng().fill_bytes(&mut nonce);
    let mut wire = stream;
    wire.write_all(&[&MAGIC[..], &VERSION.to_be_bytes(), &nonce].concat())?;
    let mut hello = [0; 8 + 9 + NONCE + MAC];
    wire.read_exact(&mut hello[..8])?;
    version(&hello[..8]).inspect_err(|failure| refuse(stream, &text(failure)))?;
    wire.read_exact(&mut hello[8..])?;
    let (said, mac) = hello.split_at(8 + 9 + NONCE);
    if !bool::from(token.mac(&[b"join", &nonce, said]).ct_eq(mac)) {
        let detail = "the token is not that of this group";
        refuse(stream, detail);
        return Err(Failure::Stranger(detail.into()));
    }
    let mut caller = [0; 9];
    caller.copy_from_slice(&said[8..17]);
    let admitted = match Caller::from_bytes(caller) {
        Some(caller) => admit(caller).map(|()| caller),
        None => Err(format!("{} is no purpose of a connection", caller[0])),
    };
    match admitted {
        Ok(caller) => {
            let proof = token.mac(&[b"welcome", &said[17..], &nonce]);
            wire.write_all(&[&[0][..], &proof].concat())?;
            Ok(caller)
        }
        Err(detail) => {
            refuse(stream, &detail);
            Err(Failure::Refused(detail))
        }
    }
}

/// The side of the other ranks.
pub(crate) fn present(stream: &TcpStream, token: &Token, caller: Caller) -> Result<(), Failure> {
    prepare(stream)?;
    let mut wire = stream;
    let mut hello = [0; 8 + NONCE];
    wire.read_exact(&mut hello)?;
    let (start, theirs) = hello.split_at(8);
    version(start)?;
    let mut nonce = [0; NONCE];
    rand::rng().fill_bytes(&mut nonce);
    let said = [&MAGIC[..], &VERSION.to_be_bytes(), &caller.bytes(), &nonce].concat();
    let mac = token.mac(&[b"join", theirs, &said]);
    wire.write_all(&[said.as_slice(), &mac].concat())?;
    answer(stream)?;
    let mut proof = [0; MAC];
    wire.read_exact(&mut proof)?;
    if bool::from(token.mac(&[b"welcome", &nonce, theirs]).ct_eq(&proof)) {
        Ok(())
    } else {
        Err(Failure::Stranger("what listens there does not know the token of this group".into()))
    }
}

/// Writes a refusal; the caller may be gone, which is fine.
pub(crate) fn refuse(stream: &TcpStream, text: &str) {
    let cut: String = text.chars().take(MAX_TEXT / 4).collect();
    let length = u16::try_from(cut.len()).expect("at most 4 bytes a character").to_be_bytes();
    let mut wire = stream;
    if let Err(error) = wire.write_all(&[&[1][..], &length, cut.as_bytes()].concat()) {
        tracing::debug!(%error, "a refusal did not arrive");
    }
}

/// Reads a 0 (accepted), or a refusal.
pub(crate) fn answer(stream: &TcpStream) -> Result<(), Failure> {
    let mut wire = stream;
    let mut status = [0];
    wire.read_exact(&mut status)?;
    if status == [0] {
        return Ok(());
    }
    let mut length = [0; 2];
    wire.read_exact(&mut length)?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > MAX_TEXT {
        return Err(Failure::Stranger(format!("a refusal of {length} bytes is no refusal")));
    }
    let mut text = vec![0; length];
    wire.read_exact(&mut text)?;
    Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn version(start: &[u8]) -> Result<(), Failure> {
    let theirs = start[4..].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    if &start[..4] != MAGIC {
        Err(Failure::Stranger("the other side is no rank of a training".into()))
    } else if theirs != VERSION {
        Err(Failure::Stranger(format!("the other side speaks version {theirs}, this one version {VERSION}")))
    } else {
        Ok(())
    }
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::Broken(error) => error.to_string(),
        Failure::Stranger(text) | Failure::Refused(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_hmac_sha256() -> Result<(), RanksError> {
        // RFC 4231, test case 6 (key of 131 bytes), and test case 3 (key of 20 bytes).
        let long = Token::new(&"\u{2a}".repeat(131))?;
        assert_eq!(long.0.len(), 131);
        let known =
            Token(vec![0xaa; 131]).mac(&[b"Test Using Larger Than Block-Size Key", b" - Hash Key First"]);
        assert_eq!(hex::encode(known), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
        let known = Token(vec![0xaa; 20]).mac(&[&[0xdd; 50]]);
        assert_eq!(hex::encode(known), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
        Ok(())
    }

    #[test]
    fn a_token_is_never_shown_and_must_not_be_short() {
        assert_eq!(format!("{:?}", Token::generate()), "Token(..)");
        let error = Token::new("canary").expect_err("too short").to_string();
        assert!(error.contains("PPX_RANKS_TOKEN has 6 characters") && !error.contains("canary"), "{error}");
        let error = Token::from_lookup(|_| None).expect_err("missing").to_string();
        assert_eq!(error, "PPX_RANKS_TOKEN is not set");
    }
}
