//! Messages of the data connections. Header (big-endian): operation u8, kind of its elements u8, two zero bytes, number
//! of the call u64, bytes of the whole call u64, bytes of this message u32; then the data, little-endian.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::RanksError;

/// Most bytes of one message, whatever its header says.
pub(crate) const MAX_BYTES: usize = 64 << 20;
const HEADER: usize = 24;
/// Messages up to this size are sent with their header in one piece.
const SMALL: usize = 64 << 10;

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Sum = 1,
    SumTensors = 2,
    Broadcast = 3,
    Gather = 4,
    Agree = 5,
}

const OPERATIONS: [Operation; 5] =
    [Operation::Sum, Operation::SumTensors, Operation::Broadcast, Operation::Gather, Operation::Agree];

/// One call, as every rank must make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    /// `tch::Kind` of the elements as a number; 0 where there is only one.
    pub(crate) kind: u8,
    /// How many calls came before.
    pub(crate) number: u64,
    /// Bytes of the whole call; of a broadcast only rank 0 knows.
    pub(crate) total: u64,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.operation {
            Operation::Sum => "sum",
            Operation::SumTensors => "sum_tensors",
            Operation::Broadcast => "broadcast",
            Operation::Gather => "gather",
            Operation::Agree => "sum_tensors over NCCL",
        };
        write!(f, "{name} of {} bytes", self.total)?;
        if self.kind != 0 {
            write!(f, " of kind {}", self.kind)?;
        }
        write!(f, " (call {})", self.number)
    }
}

/// How reading a message failed.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(io::Error),
    Error(RanksError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes one message.
pub(crate) fn send(stream: &TcpStream, call: &Call, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).expect("messages are cut below MAX_BYTES");
    let mut wire = stream;
    let mut head = Vec::with_capacity(HEADER + data.len().min(SMALL));
    head.extend([call.operation as u8, call.kind, 0, 0]);
    head.extend(call.number.to_be_bytes());
    head.extend(call.total.to_be_bytes());
    head.extend(length.to_be_bytes());
    if data.len() <= SMALL {
        head.extend_from_slice(data);
        return wire.write_all(&head);
    }
    wire.write_all(&head)?;
    wire.write_all(data)
}

/// Reads the header of one message of `rank` and the `expected` bytes after it; `None` takes what rank 0 says a
/// broadcast has. Gives the bytes of the whole call.
pub(crate) fn receive(
    stream: &TcpStream,
    rank: usize,
    call: &Call,
    expected: Option<usize>,
    data: &mut Vec<u8>,
) -> Result<u64, Broken> {
    let mut wire = stream;
    let mut head = [0; HEADER];
    wire.read_exact(&mut head)?;
    let word = |from: usize, bytes: usize| {
        head[from..from + bytes].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let length = word(20, 4) as usize;
    let Some(operation) = OPERATIONS.into_iter().find(|known| *known as u8 == head[0]) else {
        return Err(Broken::Error(mismatch(rank, format!("operation {}, which is none", head[0]), call)));
    };
    let theirs = Call { operation, kind: head[1], number: word(4, 8), total: word(12, 8) };
    let same = Call { total: if expected.is_some() { call.total } else { theirs.total }, ..*call };
    if theirs != same {
        return Err(Broken::Error(mismatch(rank, theirs.to_string(), call)));
    }
    if length > MAX_BYTES || expected.is_some_and(|expected| expected != length) {
        let theirs = format!("{theirs} with a message of {length} bytes");
        return Err(Broken::Error(mismatch(rank, theirs, call)));
    }
    data.resize(length, 0);
    wire.read_exact(data)?;
    Ok(theirs.total)
}

fn mismatch(rank: usize, theirs: String, ours: &Call) -> RanksError {
    RanksError::Mismatch { rank, theirs, ours: ours.to_string() }
}
