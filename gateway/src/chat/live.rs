//! One socket per session in this process.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use domain::SessionId;

/// Sessions with an open socket.
#[derive(Debug, Clone, Default)]
pub struct LiveSessions {
    open: Arc<Mutex<HashSet<SessionId>>>,
}

/// Keeps the place of a session until dropped.
#[derive(Debug)]
pub struct LiveGuard {
    session: SessionId,
    sessions: LiveSessions,
}

impl LiveSessions {
    /// Takes the place of a session; `None` when it is taken.
    #[must_use]
    pub fn enter(&self, session: SessionId) -> Option<LiveGuard> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.insert(session) {
            return None;
        }
        gauge(&open);
        Some(LiveGuard { session, sessions: self.clone() })
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        let mut open = self.sessions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.session);
        gauge(&open);
    }
}

#[expect(clippy::cast_precision_loss, reason = "sockets are few")]
fn gauge(open: &HashSet<SessionId>) {
    metrics::gauge!("ppx_open_sockets").set(open.len() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_place_until_it_is_left() {
        let (sessions, id) = (LiveSessions::default(), SessionId::generate());
        let guard = sessions.enter(id);
        assert!(guard.is_some());
        assert!(sessions.enter(id).is_none());
        assert!(sessions.enter(SessionId::generate()).is_some());
        drop(guard);
        assert!(sessions.enter(id).is_some());
    }
}
