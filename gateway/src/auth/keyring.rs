//! Looks keys up, remembers them for a few seconds, and slows down who guesses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use actix_web::http::header;
use domain::{ApiKeyId, ErrorCode};
use rest::Problem;
use store::Store;
use subtle::ConstantTimeEq;

use super::{Caller, Scope, key};

/// A revoked key stops working in every process after this time at the latest.
const REMEMBER: Duration = Duration::from_secs(4);
const WINDOW: Duration = Duration::from_secs(60);
/// Keys and addresses remembered at most; both maps start anew beyond it.
const MOST: usize = 10_000;

/// How to present a key.
const EXPECTED: &str = "expected the header `Authorization: Bearer ppx_...`";

/// Authenticates requests.
#[derive(Debug)]
pub struct Keyring {
    store: Store,
    max_failures: u32,
    known: Mutex<HashMap<[u8; 32], Known>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

/// A key that was right at `read_at`; the map's key is the hash of its text.
#[derive(Debug, Clone)]
struct Known {
    caller: Caller,
    read_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    since: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keyring {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(store: Store, max_failures_per_minute: u32) -> Self {
        Self {
            store,
            max_failures: max_failures_per_minute,
            known: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// The caller of a request.
    ///
    /// # Errors
    /// 401 without a valid key, 429 after too many wrong ones, 503 without a database.
    pub async fn authenticate(&self, req: &HttpRequest) -> Result<Caller, Problem> {
        let Some(value) = req.headers().get(header::AUTHORIZATION) else {
            return Err(unauthenticated(&format!("no API key: {EXPECTED}")));
        };
        let address = req.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |a| a.ip());
        let Some(text) = value.to_str().ok().and_then(bearer) else {
            return Err(unauthenticated(&format!(
                "the Authorization header holds no bearer key: {EXPECTED}"
            )));
        };
        let hash = key::hash(text);
        let known = lock(&self.known).get(&hash).cloned();
        if let Some(known) = known.as_ref().filter(|k| k.read_at.elapsed() < REMEMBER) {
            return Ok(known.caller.clone());
        }
        // Who guessed too often is not looked up any more, except with a key that was right before.
        if known.is_none() {
            self.check_failures(address)?;
        }
        match self.read(text, &hash).await? {
            Some(caller) => Ok(caller),
            None => Err(self.failed(address, text)),
        }
    }

    /// Forgets what is remembered, so that a revocation here works at once.
    pub fn forget(&self) {
        lock(&self.known).clear();
    }

    async fn read(&self, text: &str, hash: &[u8; 32]) -> Result<Option<Caller>, Problem> {
        let Ok(parsed) = key::parse(text) else { return Ok(None) };
        let stored = store::api_keys::find(&self.store, parsed.key_id).await?;
        // A missing row is compared too, so that the time tells nothing.
        let expected = stored.as_ref().map_or(&[0u8; 32][..], |k| &k.secret_sha256);
        let same = bool::from(expected.ct_eq(hash));
        let Some(stored) = stored.filter(|k| same && k.revoked_at.is_none()) else {
            lock(&self.known).remove(hash);
            return Ok(None);
        };
        let scopes = stored.scopes.iter().filter_map(|s| s.parse::<Scope>().ok()).collect();
        let caller = Caller { key: stored.id, scopes };
        {
            let mut known = lock(&self.known);
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(*hash, Known { caller: caller.clone(), read_at: Instant::now() });
        }
        self.touch(stored.id).await;
        Ok(Some(caller))
    }

    async fn touch(&self, id: ApiKeyId) {
        if let Err(error) = store::api_keys::touch(&self.store, id).await {
            tracing::debug!(%error, "cannot note the use of a key");
        }
    }

    fn check_failures(&self, address: IpAddr) -> Result<(), Problem> {
        let failures = lock(&self.failures).get(&address).copied();
        match failures {
            Some(f) if f.count >= self.max_failures && f.since.elapsed() < WINDOW => {
                let wait = (WINDOW - f.since.elapsed()).as_secs() + 1;
                let detail = format!("too many wrong API keys from this address; try again in {wait} s");
                Err(Problem::new(ErrorCode::RateLimited, detail).retry_after(wait))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, address: IpAddr, text: &str) -> Problem {
        let mut failures = lock(&self.failures);
        if failures.len() >= MOST {
            failures.clear();
        }
        let now = Instant::now();
        let entry = failures.entry(address).or_insert(Failures { count: 0, since: now });
        if entry.since.elapsed() >= WINDOW {
            *entry = Failures { count: 0, since: now };
        }
        entry.count += 1;
        match key::parse(text) {
            Ok(_) => unauthenticated("the API key is unknown or revoked"),
            Err(why) => unauthenticated(&format!("the API key is malformed: {why}; {EXPECTED}")),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

/// 401 with its challenge.
pub(crate) fn unauthenticated(detail: &str) -> Problem {
    Problem::new(ErrorCode::Unauthenticated, detail).with("www-authenticate", "Bearer realm=\"plexforge\"")
}
