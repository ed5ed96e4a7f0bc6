//! A star over TCP: every rank talks with rank 0, which adds and passes on. It works everywhere; between GPUs it only
//! carries what is small ([`crate::NcclGroup`]).

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tch::Tensor;

use crate::flat::{self, Buckets};
use crate::frame::{self, Broken, Call, Operation};
use crate::life::{Peer, Watch};
use crate::{Group, Membership, RanksError, Rendezvous, Token};

/// Times and sizes of a [`TcpGroup`]. Equal in all ranks, but only `bucket_bytes` must be (rank 0's counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long a call waits for another rank that is alive but busy (default 10 minutes).
    pub timeout: Duration,
    /// How long the ranks wait for each other at the start (default 2 minutes).
    pub join: Duration,
    /// A rank without a sign of life for so long is gone (default 60 s). A process that ends, and a machine that closes
    /// its connections, are noticed at once.
    pub silence: Duration,
    /// Most bytes of a message (default 16 MiB, from 4 KiB to 64 MiB); calls with more are cut.
    pub bucket_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            join: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            bucket_bytes: 16 << 20,
        }
    }
}

/// Ranks that are connected over TCP. Sums are added in the order of ranks, so they are equal to the last bit on every
/// rank and in every repetition.
pub struct TcpGroup {
    rank: usize,
    world: usize,
    timeout: Duration,
    bucket: usize,
    calls: Cell<u64>,
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
}

impl TcpGroup {
    /// Brings the ranks together: rank 0 listens at `listen` and the port of `member`, the others look for it at its
    /// master.
    ///
    /// # Errors
    /// When they are not complete within `options.join`, or one is refused.
    pub fn connect(
        member: &Membership,
        listen: IpAddr,
        token: &Token,
        options: &Options,
    ) -> Result<Self, RanksError> {
        if member.rank > 0 {
            return crate::rendezvous::join(member, token, options);
        }
        Rendezvous::bind((listen, member.port).into())?.wait(member.world, token, options, || Ok(()))
    }

    pub(crate) fn new(
        rank: usize,
        world: usize,
        peers: Vec<Peer>,
        bucket: usize,
        options: &Options,
    ) -> Result<Self, RanksError> {
        let broken =
            |error: std::io::Error| RanksError::Rendezvous(format!("cannot set up a connection: {error}"));
        for peer in &peers {
            peer.data.set_read_timeout(Some(options.timeout)).map_err(broken)?;
            peer.data.set_write_timeout(Some(options.timeout)).map_err(broken)?;
        }
        let (watch, threads) = Watch::start(rank, peers, options.silence).map_err(broken)?;
        tracing::info!(rank, world, "the ranks are together");
        Ok(Self { rank, world, timeout: options.timeout, bucket, calls: Cell::new(0), watch, threads })
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Ends the group for all ranks with an error of this one, e.g. one that its own work met: the others need not wait
    /// for their timeout.
    pub fn give_up(&self, detail: &str) {
        self.watch.fail(RanksError::GaveUp { rank: self.rank, detail: detail.into() });
    }

    fn call(&self, operation: Operation, kind: u8, total: usize) -> Result<Call, RanksError> {
        if let Some(error) = self.watch.failed() {
            return Err(error);
        }
        let number = self.calls.get();
        self.calls.set(number + 1);
        Ok(Call { operation, kind, number, total: total as u64 })
    }

    fn send(&self, peer: &Peer, call: &Call, data: &[u8]) -> Result<(), RanksError> {
        frame::send(&peer.data, call, data)
            .map_err(|error| self.watch.explain(peer.rank, &error, self.timeout))
    }

    fn receive(
        &self,
        peer: &Peer,
        call: &Call,
        expected: Option<usize>,
        data: &mut Vec<u8>,
    ) -> Result<u64, RanksError> {
        frame::receive(&peer.data, peer.rank, call, expected, data).map_err(|broken| match broken {
            Broken::Io(error) => self.watch.explain(peer.rank, &error, self.timeout),
            Broken::Error(error) => self.watch.fail(error),
        })
    }

    /// The sum of every rank's flat CPU tensor, in one message of each and one back.
    fn total(&self, call: &Call, own: Tensor) -> Result<Tensor, RanksError> {
        let kind = own.kind();
        let mut data = flat::raw(&own);
        let length = data.len();
        if self.rank > 0 {
            let peer = &self.watch.peers()[0];
            self.send(peer, call, &data)?;
            self.receive(peer, call, Some(length), &mut data)?;
            return Ok(flat::from_raw(&data, kind));
        }
        let mut sum = own;
        for peer in self.watch.peers() {
            self.receive(peer, call, Some(length), &mut data)?;
            sum += flat::from_raw(&data, kind);
        }
        let data = flat::raw(&sum);
        self.watch.peers().iter().try_for_each(|peer| self.send(peer, call, &data))?;
        Ok(sum)
    }

    /// Waits until every rank makes this call, of the same size. Carries no data.
    pub(crate) fn agree(&self, total: usize) -> Result<(), RanksError> {
        let call = self.call(Operation::Agree, 0, total)?;
        self.total(&call, Tensor::from_slice::<f32>(&[])).map(drop)
    }
}

impl Group for TcpGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), RanksError> {
        let call = self.call(Operation::Sum, 0, values.len() * 8)?;
        tch::no_grad(|| {
            let mut rest = values;
            loop {
                let (chunk, later) = rest.split_at_mut(rest.len().min(self.bucket / 8));
                let sum = self.total(&call, Tensor::from_slice(chunk))?;
                sum.copy_data(chunk, chunk.len());
                if later.is_empty() {
                    return Ok(());
                }
                rest = later;
            }
        })
    }

    fn sum_tensors(&self, tensors: &[Tensor]) -> Result<(), RanksError> {
        tch::no_grad(|| {
            let buckets = Buckets::new(tensors)?;
            let call = self.call(Operation::SumTensors, 0, buckets.elements() * 4)?;
            if self.world == 1 {
                return Ok(());
            }
            for pieces in buckets.plan(self.bucket / 4) {
                let sum = self.total(&call, buckets.read(&pieces))?;
                buckets.write(&pieces, &sum);
            }
            buckets.finish(tensors);
            Ok(())
        })
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        if self.rank == 0 {
            let call = self.call(Operation::Broadcast, 0, bytes.len())?;
            let mut none = Vec::new();
            for peer in self.watch.peers() {
                // The others do not know the size: they send an empty message first, which shows that they call this.
                let asked = Call { total: 0, ..call };
                self.receive(peer, &asked, Some(0), &mut none)?;
            }
            for peer in self.watch.peers() {
                self.send(peer, &call, &bytes[..bytes.len().min(self.bucket)])?;
            }
            for chunk in bytes.chunks(self.bucket).skip(1) {
                self.watch.peers().iter().try_for_each(|peer| self.send(peer, &call, chunk))?;
            }
            return Ok(bytes);
        }
        let call = self.call(Operation::Broadcast, 0, 0)?;
        let peer = &self.watch.peers()[0];
        self.send(peer, &call, &[])?;
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        loop {
            let total = self.receive(peer, &call, None, &mut chunk)?;
            all.append(&mut chunk);
            if all.len() as u64 >= total {
                return Ok(all);
            }
            if all.is_empty() {
                return Err(self.watch.fail(RanksError::Mismatch {
                    rank: 0,
                    theirs: format!("broadcast of {total} bytes with an empty message"),
                    ours: call.to_string(),
                }));
            }
        }
    }

    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError> {
        tch::no_grad(|| {
            let (own, all) = flat::gather_views(part, whole, self.world)?;
            let size = own.numel();
            let call = self.call(Operation::Gather, part.kind() as u8, size)?;
            // The message back holds the chunks of all ranks.
            let step = (self.bucket / self.world).max(1);
            let mut start = 0;
            loop {
                let count = step.min(size - start);
                let mut data = flat::bytes(&own, start, count);
                let mut chunks = data.clone();
                if self.rank == 0 {
                    self.gather_chunks(&call, &mut chunks)?;
                } else {
                    let peer = &self.watch.peers()[0];
                    self.send(peer, &call, &data)?;
                    self.receive(peer, &call, Some(count * self.world), &mut chunks)?;
                }
                for rank in 0..self.world {
                    data.copy_from_slice(&chunks[rank * count..(rank + 1) * count]);
                    flat::put(&all, rank * size + start, &data);
                }
                start += count;
                if start >= size {
                    return Ok(());
                }
            }
        })
    }
}

impl TcpGroup {
    /// Rank 0's side of one chunk of a gather: appends those of the others and sends all.
    fn gather_chunks(&self, call: &Call, chunks: &mut Vec<u8>) -> Result<(), RanksError> {
        let (count, mut theirs) = (chunks.len(), Vec::new());
        for peer in self.watch.peers() {
            self.receive(peer, call, Some(count), &mut theirs)?;
            chunks.extend_from_slice(&theirs);
        }
        self.watch.peers().iter().try_for_each(|peer| self.send(peer, call, chunks))
    }
}

impl Drop for TcpGroup {
    fn drop(&mut self) {
        self.watch.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(rank = self.rank, "a thread that watches another rank panicked");
            }
        }
    }
}
