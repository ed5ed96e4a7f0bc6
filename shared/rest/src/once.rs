//! `Idempotency-Key`: the answer is kept in the transaction of its effect, and given again.

use actix_web::HttpResponse;
use actix_web::http::header;
use domain::ErrorCode;
use serde::Serialize;
use store::idempotency::{self, SavedAnswer, Seen};
use store::{Store, Tx};

use crate::{Posted, Problem};

/// What a POST made.
#[derive(Debug)]
pub struct Created<V> {
    /// Where it can be read.
    pub location: String,
    /// The answer.
    pub view: V,
}

impl<T> Posted<T> {
    /// Checks with `prepare`, then runs `write` in a transaction, at most once per key; answers 201.
    ///
    /// `prepare` reads through the pool; `write` uses only its transaction, so that many callers cannot starve each other
    /// of connections. `redact` names members of the answer that must not be kept: they are `null` when it is given again.
    ///
    /// # Errors
    /// Those of `prepare` and `write`; 422 when the key was used with another body.
    pub async fn once<P, V: Serialize>(
        self,
        store: &Store,
        redact: &[&str],
        prepare: impl AsyncFnOnce(T) -> Result<P, Problem>,
        write: impl AsyncFnOnce(&mut Tx, P) -> Result<Created<V>, Problem>,
    ) -> Result<HttpResponse, Problem> {
        let Self { body, scope, key, fingerprint } = self;
        let seen = Key { store, scope, key, fingerprint };
        if let Some(answer) = seen.answered().await? {
            return Ok(answer);
        }
        let attempt = async {
            let prepared = prepare(body).await?;
            let mut tx = store.begin().await?;
            let created = write(&mut tx, prepared).await?;
            seen.keep(tx, created, redact).await
        };
        match attempt.await {
            Ok(answer) => Ok(answer),
            // A twin may have committed while we worked: then its answer is ours.
            Err(problem) => seen.answered().await?.ok_or(problem),
        }
    }
}

/// A request as the table of keys knows it.
struct Key<'s> {
    store: &'s Store,
    scope: String,
    key: Option<String>,
    fingerprint: [u8; 32],
}

impl Key<'_> {
    /// The answer that was given before.
    async fn answered(&self) -> Result<Option<HttpResponse>, Problem> {
        let Some(key) = &self.key else { return Ok(None) };
        match idempotency::look_up(self.store, &self.scope, key, &self.fingerprint).await? {
            Seen::No => Ok(None),
            Seen::Same(saved) => Ok(Some(replay(&saved))),
            Seen::Other => Err(other_body()),
        }
    }

    /// Commits the effect with its answer, or gives that of the twin that was first.
    async fn keep<V: Serialize>(
        &self,
        mut tx: Tx,
        created: Created<V>,
        redact: &[&str],
    ) -> Result<HttpResponse, Problem> {
        if let Some(key) = &self.key {
            let saved = save(&created, redact);
            match idempotency::keep(&mut tx, &self.scope, key, &self.fingerprint, &saved).await? {
                Seen::No => {}
                Seen::Same(saved) => return Ok(replay(&saved)),
                Seen::Other => return Err(other_body()),
            }
        }
        store::commit(tx).await?;
        Ok(fresh(&created))
    }
}

fn other_body() -> Problem {
    Problem::new(
        ErrorCode::IdempotencyMismatch,
        "this Idempotency-Key was used with another body; use a new key for a new request",
    )
}

fn save<V: Serialize>(created: &Created<V>, redact: &[&str]) -> SavedAnswer {
    let mut body = serde_json::to_value(&created.view).expect("views are plain JSON");
    for name in redact {
        if let Some(member) = body.get_mut(*name) {
            *member = serde_json::Value::Null;
        }
    }
    SavedAnswer { status: 201, location: Some(created.location.clone()), body }
}

fn fresh<V: Serialize>(created: &Created<V>) -> HttpResponse {
    HttpResponse::Created().insert_header((header::LOCATION, created.location.as_str())).json(&created.view)
}

fn replay(saved: &SavedAnswer) -> HttpResponse {
    let status =
        actix_web::http::StatusCode::from_u16(saved.status).unwrap_or(actix_web::http::StatusCode::CREATED);
    let mut response = HttpResponse::build(status);
    response.insert_header(("Idempotent-Replayed", "true"));
    if let Some(location) = &saved.location {
        response.insert_header((header::LOCATION, location.as_str()));
    }
    response.json(&saved.body)
}
