//! Ogg-Opus at 24 kHz mono, one continuous stream per direction (personaplex.md 4.1).
//!
//! The writer gives whole pages as soon as their packet is full. The reader takes any cut of bytes: pages may
//! split packets, messages may split pages, and a damaged page costs its own sound only.

use domain::frame::SAMPLE_RATE;
use opus::{Application, Bitrate, Channels, Decoder, Encoder};

use crate::error::{AudioError, library};
use crate::ogg::{PageReader, Place, page};

/// Ogg positions and pre-skip count 48 kHz samples whatever the rate.
const GRANULES_PER_SAMPLE: u64 = 2;
/// Longest packet: 120 ms at 24 kHz.
const MAX_PACKET_SAMPLES: usize = 2_880;
const MAX_PACKET_BYTES: usize = 4_000;

/// How to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpusWriterConfig {
    /// Samples of one packet at 24 kHz; 960 is 40 ms, two packets a frame.
    pub packet_samples: usize,
    /// Bits per second.
    pub bitrate: i32,
    /// Serial number of the Ogg stream.
    pub serial: u32,
}

impl Default for OpusWriterConfig {
    fn default() -> Self {
        Self { packet_samples: 960, bitrate: 32_000, serial: 42 }
    }
}

/// Encodes 24 kHz mono sound into Ogg pages of one packet each.
pub struct OpusWriter {
    encoder: Encoder,
    config: OpusWriterConfig,
    pending: Vec<f32>,
    sequence: u32,
    granule: u64,
    pre_skip: u16,
}

impl OpusWriter {
    /// A writer that has not written its header yet.
    ///
    /// # Errors
    /// When the packet length does not exist in Opus.
    pub fn new(config: OpusWriterConfig) -> Result<Self, AudioError> {
        if ![60, 120, 240, 480, 960, 1_440].contains(&config.packet_samples) {
            return Err(AudioError::BadPacketLength(config.packet_samples));
        }
        let failed = |e: opus::Error| library("cannot set up the opus encoder")(&e);
        let mut encoder = Encoder::new(SAMPLE_RATE, Channels::Mono, Application::Audio).map_err(failed)?;
        encoder.set_bitrate(Bitrate::Bits(config.bitrate)).map_err(failed)?;
        let lookahead = u16::try_from(encoder.get_lookahead().map_err(failed)?).unwrap_or(0);
        Ok(Self { encoder, config, pending: Vec::new(), sequence: 0, granule: 0, pre_skip: lookahead * 2 })
    }

    /// The two header pages; send them once, before any sound.
    pub fn header(&mut self) -> Vec<u8> {
        let mut head = b"OpusHead\x01\x01".to_vec();
        head.extend(self.pre_skip.to_le_bytes());
        head.extend(SAMPLE_RATE.to_le_bytes());
        head.extend([0, 0, 0]);
        let vendor = b"plexforge";
        let mut tags = b"OpusTags".to_vec();
        tags.extend(u32::try_from(vendor.len()).unwrap_or(0).to_le_bytes());
        tags.extend(vendor);
        tags.extend([0; 4]);
        let mut out = self.page(Place::First, Some(&head));
        out.extend(self.page(Place::Middle, Some(&tags)));
        out
    }

    /// Pages of all packets that `pcm` completes; may be empty.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn push(&mut self, pcm: &[f32]) -> Result<Vec<u8>, AudioError> {
        self.pending.extend_from_slice(pcm);
        let mut out = Vec::new();
        while self.pending.len() >= self.config.packet_samples {
            let packet: Vec<f32> = self.pending.drain(..self.config.packet_samples).collect();
            out.extend(self.encode(&packet, Place::Middle)?);
        }
        Ok(out)
    }

    /// The last page; what is pending is filled up with silence.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn finish(mut self) -> Result<Vec<u8>, AudioError> {
        if self.pending.is_empty() {
            return Ok(self.page(Place::Last, None));
        }
        let mut packet = std::mem::take(&mut self.pending);
        packet.resize(self.config.packet_samples, 0.0);
        self.encode(&packet, Place::Last)
    }

    fn encode(&mut self, pcm: &[f32], place: Place) -> Result<Vec<u8>, AudioError> {
        let packet = self
            .encoder
            .encode_vec_float(pcm, MAX_PACKET_BYTES)
            .map_err(|e| library("cannot encode opus")(&e))?;
        self.granule += pcm.len() as u64 * GRANULES_PER_SAMPLE;
        Ok(self.page(place, Some(&packet)))
    }

    fn page(&mut self, place: Place, packet: Option<&[u8]>) -> Vec<u8> {
        let out = page(self.config.serial, self.sequence, self.granule, place, packet);
        self.sequence += 1;
        out
    }
}

/// What a reader has met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpusStats {
    /// Whole pages.
    pub pages: u64,
    /// Pages with a wrong checksum or version.
    pub bad_pages: u64,
    /// Packets decoded.
    pub packets: u64,
    /// Packets that lost a part with a page or that the decoder refused.
    pub bad_packets: u64,
    /// Bytes outside any page.
    pub skipped_bytes: u64,
}

/// Decodes Ogg-Opus to 24 kHz mono. Stereo is mixed down; the pre-skip is kept, as the published servers do.
pub struct OpusReader {
    decoder: Decoder,
    pages: PageReader,
    packets: u64,
    bad_packets: u64,
}

impl OpusReader {
    /// A reader at the start of a stream.
    ///
    /// # Errors
    /// When the decoder cannot be made.
    pub fn new() -> Result<Self, AudioError> {
        let decoder = Decoder::new(SAMPLE_RATE, Channels::Mono)
            .map_err(|e| library("cannot set up the opus decoder")(&e))?;
        Ok(Self { decoder, pages: PageReader::default(), packets: 0, bad_packets: 0 })
    }

    /// Sound that `bytes` complete. Never fails: what is damaged is counted and left out.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<f32> {
        let mut pcm = Vec::new();
        let mut frame = [0.0; MAX_PACKET_SAMPLES];
        for packet in self.pages.push(bytes) {
            if packet.starts_with(b"OpusHead") || packet.starts_with(b"OpusTags") {
                continue;
            }
            // An empty packet would ask the decoder to invent sound.
            let decoded = (!packet.is_empty()).then(|| self.decoder.decode_float(&packet, &mut frame, false));
            match decoded {
                Some(Ok(samples)) => {
                    self.packets += 1;
                    pcm.extend_from_slice(&frame[..samples]);
                }
                Some(Err(_)) | None => self.bad_packets += 1,
            }
        }
        pcm
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> OpusStats {
        let pages = self.pages.stats;
        OpusStats {
            pages: pages.pages,
            bad_pages: pages.bad_pages,
            packets: self.packets,
            bad_packets: self.bad_packets + pages.broken_packets,
            skipped_bytes: pages.skipped_bytes,
        }
    }
}
