//! How the ranks come together: rank 0 listens, the others look for it until it is there.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::frame::MAX_BYTES;
use crate::handshake::{self, Caller, Failure, Purpose};
use crate::life::Peer;
use crate::{Membership, Options, RanksError, TcpGroup, Token};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause between two tries to reach rank 0.
const RETRY: Duration = Duration::from_millis(100);
/// Refusals that an error repeats.
const REMEMBERED: usize = 5;

/// Rank 0's port, open before the other ranks are started.
#[derive(Debug)]
pub struct Rendezvous {
    listener: TcpListener,
    address: SocketAddr,
}

/// The connections of one rank until both are there.
#[derive(Default)]
struct Half {
    data: Option<TcpStream>,
    life: Option<TcpStream>,
}

impl Half {
    fn slot(&mut self, purpose: Purpose) -> &mut Option<TcpStream> {
        match purpose {
            Purpose::Data => &mut self.data,
            Purpose::Life => &mut self.life,
        }
    }
}

impl Rendezvous {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be listened at.
    pub fn bind(address: SocketAddr) -> Result<Self, RanksError> {
        let wrong = |error| RanksError::Rendezvous(format!("cannot listen at {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits, as rank 0, for the other `world - 1` ranks. `check` is asked again and again and ends the wait with its
    /// error, e.g. when a process that was started has ended.
    ///
    /// # Errors
    /// When ranks are missing after `options.join`, or one that knows the token has another `world`, a rank that is
    /// there already, or one that is out of range. A stranger is refused and the wait goes on.
    pub fn wait(
        self,
        world: usize,
        token: &Token,
        options: &Options,
        mut check: impl FnMut() -> Result<(), RanksError>,
    ) -> Result<TcpGroup, RanksError> {
        let mut joined: BTreeMap<u32, Half> = BTreeMap::new();
        let outcome = self.collect(world, token, options, &mut check, &mut joined);
        if let Err(error) = outcome {
            for half in joined.values() {
                half.data.iter().for_each(|stream| handshake::refuse(stream, &error.to_string()));
            }
            return Err(error);
        }
        let bucket = options.bucket_bytes.clamp(4096, MAX_BYTES);
        let mut peers = Vec::new();
        for (rank, half) in joined {
            let (Some(data), Some(life)) = (half.data, half.life) else { continue };
            let size = u32::try_from(bucket).expect("at most MAX_BYTES").to_be_bytes();
            if let Err(error) = (&data).write_all(&[&[0][..], &size].concat()) {
                let detail = format!("it left before the start: {error}");
                return Err(RanksError::Lost { rank: rank as usize, detail });
            }
            peers.push(Peer { rank: rank as usize, data, life });
        }
        TcpGroup::new(0, world, peers, bucket, options)
    }

    fn collect(
        &self,
        world: usize,
        token: &Token,
        options: &Options,
        check: &mut dyn FnMut() -> Result<(), RanksError>,
        joined: &mut BTreeMap<u32, Half>,
    ) -> Result<(), RanksError> {
        let deadline = Instant::now() + options.join;
        let mut refusals: Vec<String> = Vec::new();
        let complete = |joined: &BTreeMap<u32, Half>| {
            joined.values().filter(|half| half.data.is_some() && half.life.is_some()).count() + 1 >= world
        };
        while !complete(joined) {
            check()?;
            if Instant::now() > deadline {
                return Err(missing(world, joined, options.join, &refusals));
            }
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => {
                    return Err(RanksError::Rendezvous(format!(
                        "cannot listen at {}: {error}",
                        self.address
                    )));
                }
            };
            match handshake::receive(&stream, token, |caller| admit(caller, world, joined)) {
                Ok(caller) => {
                    tracing::debug!(rank = caller.rank, %from, purpose = ?caller.purpose, "a rank has joined");
                    *joined.entry(caller.rank).or_default().slot(caller.purpose) = Some(stream);
                }
                Err(Failure::Refused(detail)) => {
                    return Err(RanksError::Refused(format!("a process from {from}: {detail}")));
                }
                Err(Failure::Stranger(detail)) => {
                    tracing::warn!(%from, detail, "refused a connection");
                    refusals.push(format!("{from}: {detail}"));
                    refusals.truncate(REMEMBERED);
                }
                Err(Failure::Broken(error)) => {
                    tracing::debug!(%from, %error, "a connection broke in its handshake")
                }
            }
        }
        Ok(())
    }
}

/// Why a caller that knows the token is wrong here.
fn admit(caller: Caller, world: usize, joined: &BTreeMap<u32, Half>) -> Result<(), String> {
    let Caller { purpose, rank, world: theirs } = caller;
    if theirs as usize != world {
        return Err(format!(
            "rank {rank} was started for a world of {theirs} processes, rank 0 for one of {world}"
        ));
    }
    if rank == 0 || rank as usize >= world {
        return Err(format!("rank {rank} is not one of 1 to {}", world - 1));
    }
    let taken = joined.get(&rank).is_some_and(|half| match purpose {
        Purpose::Data => half.data.is_some(),
        Purpose::Life => half.life.is_some(),
    });
    if taken {
        Err(format!("rank {rank} is here already: two processes have the same number"))
    } else {
        Ok(())
    }
}

fn missing(world: usize, joined: &BTreeMap<u32, Half>, waited: Duration, refusals: &[String]) -> RanksError {
    let here = |rank: &u32| joined.get(rank).is_some_and(|half| half.data.is_some() && half.life.is_some());
    let absent: Vec<String> = (1..u32::try_from(world).unwrap_or(u32::MAX))
        .filter(|rank| !here(rank))
        .map(|rank| rank.to_string())
        .collect();
    let mut text = format!("after {} s missing of {world}: rank {}", waited.as_secs_f64(), absent.join(", "));
    if !refusals.is_empty() {
        text = format!("{text}; refused were {}", refusals.join("; "));
    }
    RanksError::Rendezvous(text)
}

/// The other ranks' side.
pub(crate) fn join(member: &Membership, token: &Token, options: &Options) -> Result<TcpGroup, RanksError> {
    let number = |value: usize| {
        u32::try_from(value).map_err(|_| RanksError::Input(format!("{value} ranks are too many")))
    };
    let (rank, world) = (number(member.rank)?, number(member.world)?);
    let deadline = Instant::now() + options.join;
    let data = reach(member, token, Caller { purpose: Purpose::Data, rank, world }, deadline, None)?;
    let life = reach(member, token, Caller { purpose: Purpose::Life, rank, world }, deadline, Some(&data))?;
    let bucket = started(&data, options.join).map_err(unstarted)?;
    TcpGroup::new(member.rank, member.world, vec![Peer { rank: 0, data, life }], bucket, options)
}

fn unstarted(failure: Failure) -> RanksError {
    match failure {
        Failure::Refused(detail) => RanksError::Refused(detail),
        Failure::Stranger(detail) => RanksError::Rendezvous(detail),
        Failure::Broken(error) => {
            RanksError::Lost { rank: 0, detail: format!("it left before the start: {error}") }
        }
    }
}

/// Waits for the start, which comes when all ranks are there.
fn started(mut data: &TcpStream, wait: Duration) -> Result<usize, Failure> {
    // Rank 0 began to wait before this one came, so its own limit is over sooner and its refusal arrives.
    data.set_read_timeout(Some(wait + RETRY * 20))?;
    handshake::answer(data)?;
    let mut size = [0; 4];
    data.read_exact(&mut size)?;
    let bucket = u32::from_be_bytes(size) as usize;
    if (4096..=MAX_BYTES).contains(&bucket) {
        Ok(bucket)
    } else {
        Err(Failure::Stranger(format!("rank 0 asks for messages of {bucket} bytes")))
    }
}

/// One accepted connection to rank 0, trying again until the deadline. An `earlier` connection may tell meanwhile that
/// rank 0 has given up.
fn reach(
    member: &Membership,
    token: &Token,
    caller: Caller,
    deadline: Instant,
    earlier: Option<&TcpStream>,
) -> Result<TcpStream, RanksError> {
    let place = format!("{}:{}", member.master, member.port);
    loop {
        let failure = match dial(member, deadline).map_err(Failure::Broken) {
            Ok(stream) => match handshake::present(&stream, token, caller) {
                Ok(()) => return Ok(stream),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        match failure {
            Failure::Refused(detail) => {
                return Err(RanksError::Refused(format!("rank 0 at {place} says: {detail}")));
            }
            Failure::Stranger(detail) => return Err(RanksError::Rendezvous(format!("{place}: {detail}"))),
            Failure::Broken(error) if Instant::now() >= deadline => {
                return Err(RanksError::Rendezvous(format!("rank 0 does not answer at {place}: {error}")));
            }
            Failure::Broken(error) => {
                tracing::debug!(place, %error, "rank 0 is not there yet");
                match earlier.map(|stream| started(stream, Duration::ZERO)) {
                    None => std::thread::sleep(RETRY),
                    Some(Ok(_)) => {}
                    Some(Err(failure)) => return Err(unstarted(failure)),
                }
            }
        }
    }
}

fn dial(member: &Membership, deadline: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(ErrorKind::NotFound, format!("{} has no address", member.master));
    for address in (member.master.as_str(), member.port).to_socket_addrs()? {
        let patience = deadline.saturating_duration_since(Instant::now()).max(RETRY);
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
