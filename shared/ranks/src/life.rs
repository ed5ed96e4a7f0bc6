//! The second connection of every rank to rank 0: it carries signs of life and the news of a failure, so that a death
//! is noticed at once whatever the ranks are doing, and by all of them.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::RanksError;

/// A rank that left in good order while this one still wants something from it counts as gone after this.
const GRACE: Duration = Duration::from_secs(5);
/// How long a broken data connection waits for the news that tells why.
const NEWS: Duration = Duration::from_secs(1);
const MAX_TEXT: usize = 4096;

const PING: u8 = 1;
const GAVE_UP: u8 = 2;
const LOST: u8 = 3;
const LEFT: u8 = 4;

/// The two connections with one other rank: of rank 0 with each, of the others with rank 0.
pub(crate) struct Peer {
    pub(crate) rank: usize,
    pub(crate) data: TcpStream,
    pub(crate) life: TcpStream,
}

/// Called once, with the failure.
type Hook = Box<dyn Fn(&RanksError) + Send>;

#[derive(Default)]
struct State {
    failed: Option<RanksError>,
    left: BTreeSet<usize>,
    closing: bool,
}

/// What a group knows about its connections.
pub(crate) struct Watch {
    own: usize,
    peers: Vec<Peer>,
    /// Held while a message is written to the peer of the same index.
    writing: Vec<Mutex<()>>,
    state: Mutex<State>,
    changed: Condvar,
    hooks: Mutex<Vec<Hook>>,
    /// Held while a failure is told, so that nothing is closed before.
    telling: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts one thread for each peer; a peer that is silent for `silence` is gone.
    pub(crate) fn start(
        own: usize,
        peers: Vec<Peer>,
        silence: Duration,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let writing = peers.iter().map(|_| Mutex::new(())).collect();
        let beat = (silence / 4).max(Duration::from_millis(1));
        for peer in &peers {
            peer.life.set_read_timeout(Some(beat))?;
            peer.life.set_write_timeout(Some(GRACE))?;
        }
        let (state, changed, hooks, telling) = Default::default();
        let watch = Arc::new(Self { own, peers, writing, state, changed, hooks, telling });
        let mut threads = Vec::new();
        for index in 0..watch.peers.len() {
            let watch = Arc::clone(&watch);
            let name = format!("rank-{}-life", watch.peers[index].rank);
            threads.push(
                std::thread::Builder::new().name(name).spawn(move || watch.listen(index, silence, beat))?,
            );
        }
        Ok((watch, threads))
    }

    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// The failure, once there is one.
    pub(crate) fn failed(&self) -> Option<RanksError> {
        lock(&self.state).failed.clone()
    }

    /// Has `hook` called when the group fails, at once if it has failed.
    pub(crate) fn on_failure(&self, hook: impl Fn(&RanksError) + Send + 'static) {
        let mut hooks = lock(&self.hooks);
        match self.failed() {
            Some(error) => hook(&error),
            None => hooks.push(Box::new(hook)),
        }
    }

    /// Ends the group for all ranks: the first failure is told to every peer and stops calls under way. Gives that
    /// first failure.
    pub(crate) fn fail(&self, error: RanksError) -> RanksError {
        let telling = lock(&self.telling);
        {
            let mut state = lock(&self.state);
            if let Some(first) = &state.failed {
                return first.clone();
            }
            state.failed = Some(error.clone());
        }
        self.changed.notify_all();
        tracing::debug!(rank = self.own, %error, "the group of ranks has failed");
        let (code, rank, text) = match &error {
            RanksError::Lost { rank, detail } => (LOST, *rank, detail.clone()),
            RanksError::GaveUp { rank, detail } => (GAVE_UP, *rank, detail.clone()),
            other => (GAVE_UP, self.own, other.to_string()),
        };
        for index in 0..self.peers.len() {
            if self.peers[index].rank != rank {
                self.tell(index, code, rank, &text);
            }
        }
        for peer in &self.peers {
            shut(&peer.data);
        }
        drop(telling);
        for hook in lock(&self.hooks).drain(..) {
            hook(&error);
        }
        error
    }

    /// What a call reports whose data connection with `rank` broke: the news that explains it, if any comes.
    pub(crate) fn explain(&self, rank: usize, error: &io::Error, timeout: Duration) -> RanksError {
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            return self.fail(RanksError::Silent { rank, seconds: timeout.as_secs() });
        }
        let state = lock(&self.state);
        let waited = self
            .changed
            .wait_timeout_while(state, NEWS, |state| state.failed.is_none() && !state.left.contains(&rank));
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.left.contains(&rank);
        let detail = if left { "it left the group".to_owned() } else { broken(error) };
        self.fail(RanksError::Lost { rank, detail })
    }

    /// What a call reports whose work failed, perhaps because a rank is gone: the news of that, if any comes.
    pub(crate) fn settle_failure(&self, error: RanksError) -> RanksError {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout_while(state, NEWS, |state| state.failed.is_none()));
        self.fail(error)
    }

    /// Tells the peers that this rank leaves, in good order or in a panic, and ends the threads.
    pub(crate) fn close(&self) {
        let _told = lock(&self.telling);
        lock(&self.state).closing = true;
        self.changed.notify_all();
        for (index, peer) in self.peers.iter().enumerate() {
            if std::thread::panicking() {
                self.tell(index, LOST, self.own, "its thread panicked");
            } else {
                self.tell(index, LEFT, self.own, "");
            }
            shut(&peer.life);
            shut(&peer.data);
        }
    }

    /// Writes one message; a peer that cannot be told any more is noticed by its thread.
    fn tell(&self, index: usize, code: u8, rank: usize, text: &str) {
        let mut text = text.as_bytes();
        text = &text[..text.len().min(MAX_TEXT)];
        let rank = u32::try_from(rank).unwrap_or(u32::MAX).to_be_bytes();
        let length = u16::try_from(text.len()).expect("cut to MAX_TEXT").to_be_bytes();
        let message = if code == PING { vec![PING] } else { [&[code][..], &rank, &length, text].concat() };
        let _turn = lock(&self.writing[index]);
        let mut wire = &self.peers[index].life;
        if let Err(error) = wire.write_all(&message) {
            tracing::trace!(to = self.peers[index].rank, %error, "a message of life was not delivered");
        }
    }

    /// Body of the thread of one peer.
    fn listen(&self, index: usize, silence: Duration, beat: Duration) {
        let peer = &self.peers[index];
        let (mut heard, mut sent) = (Instant::now(), Instant::now() - beat);
        loop {
            if sent.elapsed() >= beat {
                self.tell(index, PING, self.own, "");
                sent = Instant::now();
            }
            let lost = match hear(&peer.life) {
                Ok(Some(Heard::Ping)) => {
                    heard = Instant::now();
                    None
                }
                Ok(Some(Heard::Failure(error))) => {
                    self.fail(error);
                    return;
                }
                Ok(Some(Heard::Left)) => {
                    self.left(peer.rank);
                    return;
                }
                Ok(None) if heard.elapsed() < silence => None,
                Ok(None) => Some(format!("no sign of life for {} s", silence.as_secs_f64())),
                Err(error) => Some(broken(&error)),
            };
            if lock(&self.state).closing {
                return;
            }
            if let Some(detail) = lost {
                self.fail(RanksError::Lost { rank: peer.rank, detail });
                return;
            }
        }
    }

    fn left(&self, rank: usize) {
        lock(&self.state).left.insert(rank);
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(lock(&self.state), GRACE, |state| !state.closing);
        let closing = waited.unwrap_or_else(PoisonError::into_inner).0.closing;
        if !closing {
            self.fail(RanksError::Lost { rank, detail: "it left the group".into() });
        }
    }
}

enum Heard {
    Ping,
    Failure(RanksError),
    Left,
}

/// One message, or nothing within the read timeout.
fn hear(mut wire: &TcpStream) -> io::Result<Option<Heard>> {
    let mut code = [0];
    match wire.read(&mut code) {
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    if code == [PING] {
        return Ok(Some(Heard::Ping));
    }
    let mut head = [0; 6];
    wire.read_exact(&mut head)?;
    let [a, b, c, d, e, f] = head;
    let rank = u32::from_be_bytes([a, b, c, d]) as usize;
    let length = usize::from(u16::from_be_bytes([e, f]));
    if length > MAX_TEXT {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of life has {length} bytes")));
    }
    let mut text = vec![0; length];
    wire.read_exact(&mut text)?;
    let detail = String::from_utf8_lossy(&text).into_owned();
    match code {
        [LOST] => Ok(Some(Heard::Failure(RanksError::Lost { rank, detail }))),
        [GAVE_UP] => Ok(Some(Heard::Failure(RanksError::GaveUp { rank, detail }))),
        [LEFT] => Ok(Some(Heard::Left)),
        [other] => Err(io::Error::new(ErrorKind::InvalidData, format!("{other} is no message of life"))),
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "its connection closed".into()
        }
        _ => format!("its connection broke: {error}"),
    }
}

fn shut(stream: &TcpStream) {
    if let Err(error) = stream.shutdown(Shutdown::Both) {
        tracing::trace!(%error, "a connection was closed already");
    }
}
