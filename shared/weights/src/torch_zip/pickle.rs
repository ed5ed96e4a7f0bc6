//! The pickle interpreter. Values live in a heap and refer to each other by index, so a value that the file uses twice is
//! stored once, and a file of nested doubling cannot fill the memory while it is read.

use super::archive::shown;
use super::{TorchZipError, storage_dtype};
use crate::Dtype;

/// Index of a value in the heap.
pub(super) type Id = usize;

/// A value while the program runs.
#[derive(Debug)]
pub(super) enum Cell {
    Int(i64),
    Bool(bool),
    Str(String),
    Tuple(Vec<Id>),
    /// A dict, or an `OrderedDict`.
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Storage),
    /// Arguments of `_rebuild_tensor_v2`, not yet looked at.
    Tensor([Id; 6]),
}

/// All that a file may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    RebuildTensor,
    Storage(Dtype),
}

impl Global {
    fn find(module: &str, name: &str) -> Option<Self> {
        match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensor),
            ("torch", name) => storage_dtype(name).map(Self::Storage),
            _ => None,
        }
    }
}

/// A run of elements in an entry of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) dtype: Dtype,
    pub(super) key: String,
    pub(super) elements: u64,
}

/// What the program left behind.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) cells: Vec<Cell>,
    pub(super) root: Id,
}

/// Runs a pickle program to its end.
pub(super) fn run(program: &[u8]) -> Result<Heap, TorchZipError> {
    let mut machine =
        Machine { program, at: 0, cells: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: Vec::new() };
    loop {
        if let Some(root) = machine.step()? {
            return Ok(Heap { cells: machine.cells, root });
        }
    }
}

struct Machine<'p> {
    program: &'p [u8],
    at: usize,
    cells: Vec<Cell>,
    stack: Vec<Id>,
    /// Heights of the stack at open marks.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

impl Machine<'_> {
    /// One opcode. The id of the result after STOP.
    fn step(&mut self) -> Result<Option<Id>, TorchZipError> {
        let start = self.at;
        let opcode = self.byte()?;
        match opcode {
            0x80 => self.protocol()?,
            b'}' => self.push(Cell::Dict(Vec::new())),
            b')' => self.push(Cell::Tuple(Vec::new())),
            b'(' => self.marks.push(self.stack.len()),
            b'X' => self.text()?,
            b'c' => self.global()?,
            b'J' => self.int::<4>()?,
            b'K' => self.int::<1>()?,
            b'M' => self.int::<2>()?,
            0x8a => self.long()?,
            0x88 => self.push(Cell::Bool(true)),
            0x89 => self.push(Cell::Bool(false)),
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Cell::Tuple(items));
            }
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(opcode - 0x84))?;
                self.push(Cell::Tuple(items));
            }
            b'q' => self.put::<1>()?,
            b'r' => self.put::<4>()?,
            b'h' => self.get::<1>()?,
            b'j' => self.get::<4>()?,
            b'Q' => self.persistent()?,
            b'R' => self.reduce()?,
            b's' => {
                let pair = self.pop_many(2)?;
                self.set_items(&pair)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }
            b'.' => return self.stop().map(Some),
            other => return Err(TorchZipError::Opcode { opcode: opcode_name(other), at: start }),
        }
        Ok(None)
    }

    fn bad(&self, detail: impl Into<String>) -> TorchZipError {
        TorchZipError::Pickle { at: self.at, detail: detail.into() }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], TorchZipError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.program.len());
        let end = end.ok_or_else(|| self.bad("it ends too early"))?;
        let taken = &self.program[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, TorchZipError> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned little-endian number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Result<usize, TorchZipError> {
        let bytes = self.take(N)?;
        Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    /// Four bytes are signed, fewer are not.
    fn int<const N: usize>(&mut self) -> Result<(), TorchZipError> {
        let value = self.number::<N>()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "at most four bytes")]
        let value = if N == 4 { i64::from(value as u32 as i32) } else { value as i64 };
        self.push(Cell::Int(value));
        Ok(())
    }

    /// LONG1: two's complement of any length; more than eight bytes are no size or stride.
    fn long(&mut self) -> Result<(), TorchZipError> {
        let length = self.number::<1>()?;
        if length > 8 {
            return Err(self.bad(format!("an integer of {length} bytes")));
        }
        let bytes = self.take(length)?;
        let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [fill; 8];
        whole[..length].copy_from_slice(bytes);
        self.push(Cell::Int(i64::from_le_bytes(whole)));
        Ok(())
    }

    fn text(&mut self) -> Result<(), TorchZipError> {
        let length = self.number::<4>()?;
        let text = std::str::from_utf8(self.take(length)?).map(str::to_owned);
        let text = text.map_err(|e| self.bad(format!("a str is not UTF-8: {e}")))?;
        self.push(Cell::Str(text));
        Ok(())
    }

    fn line(&mut self) -> Result<String, TorchZipError> {
        let rest = &self.program[self.at..];
        let length = rest.iter().position(|b| *b == b'\n').ok_or_else(|| self.bad("it ends too early"))?;
        let line = String::from_utf8_lossy(&rest[..length]).into_owned();
        self.at += length + 1;
        Ok(line)
    }

    fn global(&mut self) -> Result<(), TorchZipError> {
        let (module, name) = (self.line()?, self.line()?);
        let global = Global::find(&module, &name).ok_or_else(|| TorchZipError::Global {
            global: format!("{}.{}", shown(&module), shown(&name)),
        })?;
        self.push(Cell::Global(global));
        Ok(())
    }

    fn protocol(&mut self) -> Result<(), TorchZipError> {
        match self.byte()? {
            2 => Ok(()),
            other => Err(self.bad(format!("protocol {other}, only 2 is read"))),
        }
    }

    fn push(&mut self, cell: Cell) {
        self.stack.push(self.cells.len());
        self.cells.push(cell);
    }

    /// The stack above the newest open mark is all that an opcode may take.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, TorchZipError> {
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= self.floor());
        let from = from.ok_or_else(|| self.bad("it takes from an empty stack"))?;
        Ok(self.stack.split_off(from))
    }

    fn pop(&mut self) -> Result<Id, TorchZipError> {
        Ok(self.pop_many(1)?[0])
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, TorchZipError> {
        let mark = self.marks.pop().ok_or_else(|| self.bad("it has no mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn put<const N: usize>(&mut self) -> Result<(), TorchZipError> {
        let slot = self.number::<N>()?;
        // Writers number their memo from 0; a far number would only cost memory.
        if slot > self.program.len() {
            return Err(self.bad(format!("memo number {slot}")));
        }
        let top = self.stack.get(self.floor()..).and_then(<[Id]>::last).copied();
        let top = top.ok_or_else(|| self.bad("it remembers the top of an empty stack"))?;
        if self.memo.len() <= slot {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(top);
        Ok(())
    }

    fn get<const N: usize>(&mut self) -> Result<(), TorchZipError> {
        let slot = self.number::<N>()?;
        let id = self.memo.get(slot).copied().flatten();
        self.stack.push(id.ok_or_else(|| self.bad(format!("memo number {slot} was never set")))?);
        Ok(())
    }

    /// `('storage', class, key, device, elements)`; the device is of no interest.
    fn persistent(&mut self) -> Result<(), TorchZipError> {
        let id = self.pop()?;
        let Cell::Tuple(parts) = &self.cells[id] else { return Err(self.bad("a persistent id is no tuple")) };
        let cells: Vec<&Cell> = parts.iter().map(|id| &self.cells[*id]).collect();
        let storage = match cells[..] {
            [
                Cell::Str(tag),
                Cell::Global(Global::Storage(dtype)),
                Cell::Str(key),
                Cell::Str(_),
                Cell::Int(elements),
            ] if tag == "storage" => Storage {
                dtype: *dtype,
                key: plain_key(key).ok_or_else(|| self.bad(format!("storage key {:?}", shown(key))))?,
                elements: u64::try_from(*elements)
                    .map_err(|_| self.bad(format!("a storage of {elements} elements")))?,
            },
            _ => return Err(self.bad("a persistent id is not a storage of a known class")),
        };
        self.push(Cell::Storage(storage));
        Ok(())
    }

    /// "Calls" one of the two functions there are.
    fn reduce(&mut self) -> Result<(), TorchZipError> {
        let pair = self.pop_many(2)?;
        let Cell::Global(callee) = self.cells[pair[0]] else {
            return Err(self.bad("it calls something that is not a function"));
        };
        let Cell::Tuple(args) = &self.cells[pair[1]] else {
            return Err(self.bad("the arguments of a call are no tuple"));
        };
        let made = match callee {
            Global::OrderedDict if args.is_empty() => Cell::Dict(Vec::new()),
            Global::OrderedDict => return Err(self.bad("OrderedDict with arguments")),
            Global::RebuildTensor => {
                let args = args.as_slice().try_into();
                Cell::Tensor(args.map_err(|_| self.bad("_rebuild_tensor_v2 takes six arguments"))?)
            }
            Global::Storage(_) => return Err(self.bad("it calls a storage class")),
        };
        self.push(made);
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<(), TorchZipError> {
        if !items.len().is_multiple_of(2) {
            return Err(self.bad("a dict gets a key without a value"));
        }
        let top = self.stack.get(self.floor()..).and_then(<[Id]>::last).copied();
        match top.map(|id| &mut self.cells[id]) {
            Some(Cell::Dict(entries)) => {
                entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                Ok(())
            }
            _ => Err(self.bad("it sets items of something that is not a dict")),
        }
    }

    fn stop(&mut self) -> Result<Id, TorchZipError> {
        let root = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(self.bad("it ends with values left over"));
        }
        if self.at != self.program.len() {
            return Err(self.bad(format!("{} bytes follow its end", self.program.len() - self.at)));
        }
        Ok(root)
    }
}

/// Torch numbers its storages; anything else could be a path.
fn plain_key(key: &str) -> Option<String> {
    ((1..=20).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_digit())).then(|| key.to_owned())
}

/// The opcodes that make objects or call code, by the names of Python's `pickletools`.
fn opcode_name(opcode: u8) -> String {
    let name = match opcode {
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x82..=0x84 => "EXT",
        b'P' => "PERSID",
        b'N' => "NONE",
        b']' => "EMPTY_LIST",
        b'l' => "LIST",
        b'a' => "APPEND",
        b'e' => "APPENDS",
        b'd' => "DICT",
        b'G' => "BINFLOAT",
        b'F' => "FLOAT",
        b'U' => "SHORT_BINSTRING",
        b'T' => "BINSTRING",
        b'B' => "BINBYTES",
        b'C' => "SHORT_BINBYTES",
        0x8b => "LONG4",
        0x8c => "SHORT_BINUNICODE",
        0x8f => "EMPTY_SET",
        0x94 => "MEMOIZE",
        0x95 => "FRAME",
        other => return format!("opcode {other:#04x}"),
    };
    format!("opcode {name}")
}
