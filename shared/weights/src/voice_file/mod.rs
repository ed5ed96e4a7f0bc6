//! A voice as it is stored for serving: one safetensors file in one of three forms.
//!
//! | form | tensors | made from | valid for |
//! |---|---|---|---|
//! | `samples` | `samples` `[N]` f32: mono, 24 kHz, -24 LUFS | a WAV, at registration | every model; its codec encodes them |
//! | `codes` | `codes` `[8, F]` i32 | samples and one codec | models with that codec (`codec_sha256`) |
//! | `embeddings` | `embeddings` `[F - 1, dim]`, `cache` `[17, 4]` i64 | a `.pt` of the published package | models of that width whose embedding tables are unchanged |
//!
//! The `.pt` form is read by [`crate::torch_zip`] once, when the voice is registered; serving reads this file only.

mod raw;

use std::collections::HashMap;

use safetensors::SafeTensors;

use crate::Dtype;
use crate::torch_zip::{TorchZipError, TorchZipLimits, parse_torch_zip};
use raw::{Owned, Raw, le};

/// Value of the metadata key `format`.
pub const VOICE_FORMAT: &str = "plexforge-voice-1";
/// Streams of a model row: text, eight agent and eight user codebooks.
pub const VOICE_STREAMS: usize = 17;
/// Codebooks of one side.
const CODEBOOKS: usize = 8;
/// Rows that the published package keeps: the largest delay and three more.
pub const RING_ROWS: usize = 4;
/// Fewest voice frames of a `.pt`: the ring must have been written once around.
const MIN_FRAMES: usize = RING_ROWS;
/// Most voice frames, one minute.
const MAX_FRAMES: usize = 750;
/// Widest model that a file may be for; the published one has 4096.
const MAX_DIM: usize = 65_536;
/// Above every id that a model has.
const MAX_ID: i64 = 1 << 20;
/// A value of the ring that was never written.
pub const UNWRITTEN: i64 = -2;

/// Why a voice file is refused.
#[derive(Debug, thiserror::Error)]
pub enum VoiceFileError {
    /// The `.pt` could not be read.
    #[error(transparent)]
    Torch(#[from] TorchZipError),
    /// The stored file is no safetensors file.
    #[error("not a voice file: {detail}")]
    NotVoice {
        /// What is wrong.
        detail: String,
    },
    /// A tensor is missing, or one is there that does not belong.
    #[error("a voice prompt holds {wanted}; this file holds {found}")]
    Names {
        /// Names of the form.
        wanted: String,
        /// Names in the file.
        found: String,
    },
    /// Wrong shape.
    #[error("{name} has shape {found:?}, expected {wanted}")]
    Shape {
        /// The tensor.
        name: &'static str,
        /// Shape in the file.
        found: Vec<i64>,
        /// What it must be.
        wanted: String,
    },
    /// Wrong element type.
    #[error("{name} has dtype {found}, expected {wanted}")]
    Dtype {
        /// The tensor.
        name: &'static str,
        /// Type in the file.
        found: String,
        /// Types that are read.
        wanted: &'static str,
    },
    /// A value that cannot be.
    #[error("{name}[{index}] is {found}, expected {wanted}")]
    Value {
        /// The tensor.
        name: &'static str,
        /// Position, flat.
        index: usize,
        /// The value.
        found: String,
        /// What it must be.
        wanted: String,
    },
}

type Result<T> = std::result::Result<T, VoiceFileError>;

/// The content of a voice file.
#[derive(Debug, Clone, PartialEq)]
pub enum VoiceFile {
    /// What a codec still has to encode.
    Samples(Vec<f32>),
    /// What the codec of hash `codec_sha256` made of it.
    Codes {
        /// Hash of the codec's weights file.
        codec_sha256: String,
        /// Codes of each frame.
        frames: Vec<[i32; CODEBOOKS]>,
    },
    /// What the model's embedding tables made of the codes, and the rows that are not through the model yet.
    Embeddings(Box<VoiceEmbeddings>),
}

/// Summed input embeddings of the voice phase, and the ring of rows after its last call (personaplex.md 2.4).
#[derive(Debug, Clone, PartialEq)]
pub struct VoiceEmbeddings {
    /// BF16, F16 or F32.
    pub dtype: Dtype,
    /// Width of the model.
    pub dim: usize,
    /// `[F - 1, dim]`, little-endian: inputs of rows 0..F-2, row 0 being the initial row.
    pub embeddings: Vec<u8>,
    /// Row p of the voice phase is in column p mod 4; -1 is the zero id, -2 was never written.
    pub ring: [[i64; RING_ROWS]; VOICE_STREAMS],
}

impl VoiceEmbeddings {
    /// F: calls of the published package in the voice phase, one for each frame of the clip.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.embeddings.len() / (self.dim * self.dtype.size()) + 1
    }

    /// Row `p` as the ring has it; only the last four rows up to F are right, row F only where a delay wrote ahead.
    #[must_use]
    pub fn ring_row(&self, p: usize) -> [i64; VOICE_STREAMS] {
        self.ring.map(|slots| slots[p % RING_ROWS])
    }

    fn from_tensors(embeddings: &Raw<'_>, cache: &Raw<'_>) -> Result<Self> {
        let (rows, dim) = embeddings.embedding_shape()?;
        if !matches!(embeddings.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32) {
            let found = embeddings.dtype.name().into();
            return Err(VoiceFileError::Dtype { name: "embeddings", found, wanted: "BF16, F16 or F32" });
        }
        embeddings.check_finite()?;
        let voice =
            Self { dtype: embeddings.dtype, dim, embeddings: embeddings.data.to_vec(), ring: cache.ring()? };
        debug_assert_eq!(voice.calls(), rows + 1);
        voice.check_ring()?;
        Ok(voice)
    }

    /// Row F-1 is the next one through the model, so all of it must be there; other values may be unwritten.
    fn check_ring(&self) -> Result<()> {
        let last = (self.calls() - 1) % RING_ROWS;
        for (index, value) in self.ring.iter().flatten().enumerate() {
            let lowest = if index % RING_ROWS == last { UNWRITTEN + 1 } else { UNWRITTEN };
            if !(lowest..MAX_ID).contains(value) {
                let wanted = format!("{lowest}..{MAX_ID}");
                return Err(VoiceFileError::Value { name: "cache", index, found: value.to_string(), wanted });
            }
        }
        Ok(())
    }
}

impl VoiceFile {
    /// Reads and checks a `.pt` as the published package writes it: `{"embeddings": [F-1, 1, 1, dim], "cache": [1, 17, 4]}`.
    ///
    /// # Errors
    /// When the file is no plain torch file, or its names, shapes, types or ids are wrong.
    pub fn from_torch(bytes: &[u8]) -> Result<Self> {
        let tensors = parse_torch_zip(bytes, &TorchZipLimits::default())?.into_tensors()?;
        let find = |name| tensors.iter().find(|(n, _)| n == name).map(|(_, t)| Raw::of(name, t));
        match (find("embeddings"), find("cache")) {
            (Some(e), Some(c)) if tensors.len() == 2 => {
                Ok(Self::Embeddings(VoiceEmbeddings::from_tensors(&e, &c)?.into()))
            }
            _ => Err(names("embeddings and cache", tensors.iter().map(|(n, _)| n.as_str()))),
        }
    }

    /// Reads and checks a stored voice.
    ///
    /// # Errors
    /// As [`VoiceFile::from_torch`] for the form that the metadata names.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |detail: String| VoiceFileError::NotVoice { detail };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| bad(e.to_string()))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let file = SafeTensors::deserialize(bytes).map_err(|e| bad(e.to_string()))?;
        let format = metadata.get("format").map_or("", String::as_str);
        if format != VOICE_FORMAT {
            return Err(bad(format!("its format is {format:?}, not {VOICE_FORMAT:?}")));
        }
        let found: Vec<&str> = file.names().into_iter().collect();
        let raw = |wanted: &'static str, name: &'static str| {
            file.tensor(name)
                .map_err(|_| names(wanted, found.iter().copied()))
                .and_then(|v| Raw::view(name, &v))
        };
        let only = |wanted: &'static str, count: usize| {
            if found.len() == count { Ok(()) } else { Err(names(wanted, found.iter().copied())) }
        };
        match metadata.get("form").map_or("", String::as_str) {
            "samples" => {
                only("samples", 1)?;
                raw("samples", "samples")?.samples().map(Self::Samples)
            }
            "codes" => {
                only("codes", 1)?;
                let frames = raw("codes", "codes")?.codes()?;
                let codec_sha256 = metadata.get("codec_sha256").cloned();
                let codec_sha256 = codec_sha256.ok_or_else(|| bad("it does not name its codec".into()))?;
                Ok(Self::Codes { codec_sha256, frames })
            }
            "embeddings" => {
                const WANTED: &str = "embeddings and cache";
                only(WANTED, 2)?;
                let (e, c) = (raw(WANTED, "embeddings")?, raw(WANTED, "cache")?);
                Ok(Self::Embeddings(VoiceEmbeddings::from_tensors(&e, &c)?.into()))
            }
            other => Err(bad(format!("its form is {other:?}; there are samples, codes and embeddings"))),
        }
    }

    /// The stored form.
    ///
    /// # Panics
    /// Never: the shapes are those of the data.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut metadata = HashMap::from([
            ("format".to_owned(), VOICE_FORMAT.to_owned()),
            ("form".to_owned(), self.form().to_owned()),
        ]);
        let tensors = match self {
            Self::Samples(samples) => {
                vec![("samples", Owned::new(Dtype::F32, vec![samples.len()], le(samples, f32::to_le_bytes)))]
            }
            Self::Codes { codec_sha256, frames } => {
                metadata.insert("codec_sha256".into(), codec_sha256.clone());
                let by_book: Vec<i32> =
                    (0..CODEBOOKS).flat_map(|k| frames.iter().map(move |f| f[k])).collect();
                let data = le(&by_book, i32::to_le_bytes);
                vec![("codes", Owned::new(Dtype::I32, vec![CODEBOOKS, frames.len()], data))]
            }
            Self::Embeddings(e) => {
                let shape = vec![e.calls() - 1, e.dim];
                let ring = le(e.ring.as_flattened(), i64::to_le_bytes);
                vec![
                    ("embeddings", Owned::new(e.dtype, shape, e.embeddings.clone())),
                    ("cache", Owned::new(Dtype::I64, vec![VOICE_STREAMS, RING_ROWS], ring)),
                ]
            }
        };
        safetensors::serialize(tensors, Some(metadata)).expect("shapes were made from the data")
    }

    /// Name of the form.
    #[must_use]
    pub const fn form(&self) -> &'static str {
        match self {
            Self::Samples(_) => "samples",
            Self::Codes { .. } => "codes",
            Self::Embeddings(_) => "embeddings",
        }
    }
}

fn names<'n>(wanted: &str, found: impl Iterator<Item = &'n str>) -> VoiceFileError {
    let found: Vec<String> = found.map(|n| n.chars().take(80).collect()).collect();
    let found = if found.is_empty() { "nothing".into() } else { found.join(", ") };
    VoiceFileError::Names { wanted: wanted.into(), found }
}
