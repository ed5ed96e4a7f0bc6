//! Little-endian values from a file in memory, with the file's name in every error.

use std::path::{Path, PathBuf};

use crate::error::AlignerError;

/// A file and how far it has been read.
pub(crate) struct Bytes {
    path: PathBuf,
    data: Vec<u8>,
    at: usize,
}

impl Bytes {
    pub(crate) fn open(path: &Path) -> Result<Self, AlignerError> {
        let data =
            std::fs::read(path).map_err(|source| AlignerError::Read { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), data, at: 0 })
    }

    pub(crate) fn wrong(&self, reason: impl Into<String>) -> AlignerError {
        AlignerError::Format { path: self.path.clone(), reason: reason.into() }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn skip_to(&mut self, at: usize) -> Result<(), AlignerError> {
        self.take(at.saturating_sub(self.at)).map(|_| ())
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8], AlignerError> {
        let size = self.data.len();
        let end = self.at.checked_add(count).filter(|end| *end <= size);
        let end = end.ok_or_else(|| {
            self.wrong(format!("it ends at byte {size}, {count} more were expected at {}", self.at))
        })?;
        let start = std::mem::replace(&mut self.at, end);
        Ok(&self.data[start..end])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], AlignerError> {
        Ok(self.take(N)?.try_into().expect("take gives as many as asked for"))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, AlignerError> {
        self.array().map(i16::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, AlignerError> {
        self.array().map(i32::from_le_bytes)
    }

    /// A count or index: not negative and not absurd.
    pub(crate) fn count(&mut self) -> Result<usize, AlignerError> {
        let value = self.i32()?;
        usize::try_from(value)
            .ok()
            .filter(|count| *count <= 1 << 28)
            .ok_or_else(|| self.wrong(format!("a count of {value} at byte {}", self.at - 4)))
    }

    pub(crate) fn f32s(&mut self, count: usize) -> Result<Vec<f32>, AlignerError> {
        let bytes = self.take(count.saturating_mul(4))?;
        let value = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("chunks of four"));
        Ok(bytes.chunks_exact(4).map(value).collect())
    }

    pub(crate) fn u16s(&mut self, count: usize) -> Result<Vec<u16>, AlignerError> {
        let bytes = self.take(count.saturating_mul(2))?;
        let value = |b: &[u8]| u16::from_le_bytes(b.try_into().expect("chunks of two"));
        Ok(bytes.chunks_exact(2).map(value).collect())
    }

    /// Text up to the next NUL.
    pub(crate) fn text(&mut self) -> Result<String, AlignerError> {
        let rest = &self.data[self.at..];
        let length = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    /// Skips the text header of the parameter files and checks the byte order.
    pub(crate) fn parameter_header(&mut self) -> Result<(), AlignerError> {
        const END: &[u8] = b"endhdr\n";
        let end = self.data.windows(END.len()).take(4096).position(|w| w == END);
        let end = end.ok_or_else(|| self.wrong("no endhdr line in its first 4096 bytes"))?;
        self.skip_to(end + END.len())?;
        match self.i32()? {
            0x1122_3344 => Ok(()),
            other => Err(self.wrong(format!("byte order mark {other:#x}"))),
        }
    }

    /// Reads counts that must be these.
    pub(crate) fn expect(&mut self, what: &str, wanted: &[usize]) -> Result<(), AlignerError> {
        let found = wanted.iter().map(|_| self.count()).collect::<Result<Vec<_>, _>>()?;
        if found != wanted {
            return Err(self.wrong(format!("{what} are {found:?}, not {wanted:?}")));
        }
        Ok(())
    }
}
