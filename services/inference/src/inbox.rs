//! User audio on its way in: Ogg-Opus bytes become whole frames of samples.

use std::collections::VecDeque;

use audio::AudioError;
use audio::opus::OpusReader;
use bytes::Bytes;
use domain::frame::{SAMPLE_RATE, SAMPLES_PER_FRAME, samples_to_ms};

/// Bytes decoded at a time. A page of tiny packets can stand for half a minute of sound, so a large message is not
/// decoded at once.
const SLICE: usize = 1_024;

/// Decodes, cuts into frames and counts.
pub struct Inbox {
    reader: OpusReader,
    raw: Bytes,
    pcm: VecDeque<f32>,
    ended: bool,
    dropped: u64,
}

impl Inbox {
    /// An inbox at the start of a stream.
    ///
    /// # Errors
    /// When the decoder cannot be made.
    pub fn new() -> Result<Self, AudioError> {
        let reader = OpusReader::new()?;
        Ok(Self { reader, raw: Bytes::new(), pcm: VecDeque::new(), ended: false, dropped: 0 })
    }

    /// Takes audio that comes before the handshake; of more than `limit` samples the oldest are dropped and counted.
    pub fn push_early(&mut self, bytes: &Bytes, limit: usize) {
        if self.ended {
            return;
        }
        for slice in bytes.chunks(SLICE) {
            self.pcm.extend(self.reader.push(slice));
            let excess = self.pcm.len().saturating_sub(limit);
            self.pcm.drain(..excess);
            self.dropped += excess as u64;
        }
    }

    /// Counts frames that the engine had no use for.
    pub fn count_dropped(&mut self, frames: usize) {
        self.dropped += (frames * SAMPLES_PER_FRAME) as u64;
    }

    /// Takes one message of audio. The message before must have been worked off ([`Self::next_frame`] gave `None`);
    /// that is what keeps this bounded.
    pub fn push(&mut self, bytes: Bytes) {
        if self.ended {
            return;
        }
        if self.raw.is_empty() {
            self.raw = bytes;
        } else {
            self.raw = [self.raw.as_ref(), &bytes].concat().into();
        }
    }

    /// The client has sent everything; later audio is ignored.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the client has sent everything.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The next whole frame; at the end the last one is filled up with silence.
    pub fn next_frame(&mut self) -> Option<Vec<f32>> {
        while self.pcm.len() < SAMPLES_PER_FRAME && !self.raw.is_empty() {
            let slice = self.raw.split_to(SLICE.min(self.raw.len()));
            self.pcm.extend(self.reader.push(&slice));
        }
        if self.pcm.len() >= SAMPLES_PER_FRAME {
            return Some(self.pcm.drain(..SAMPLES_PER_FRAME).collect());
        }
        if !self.ended || self.pcm.is_empty() {
            return None;
        }
        let mut last: Vec<f32> = self.pcm.drain(..).collect();
        last.resize(SAMPLES_PER_FRAME, 0.0);
        Some(last)
    }

    /// Pages and packets that could not be decoded.
    #[must_use]
    pub fn bad_pages(&self) -> u64 {
        let stats = self.reader.stats();
        stats.bad_pages + stats.bad_packets
    }

    /// Milliseconds of audio that were dropped.
    #[must_use]
    pub fn dropped_ms(&self) -> u64 {
        samples_to_ms(self.dropped, SAMPLE_RATE)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use audio::opus::{OpusWriter, OpusWriterConfig};

    use super::*;

    fn pages(frames: usize, packet_samples: usize) -> Result<Bytes> {
        let mut writer = OpusWriter::new(OpusWriterConfig { packet_samples, ..OpusWriterConfig::default() })?;
        let mut bytes = writer.header();
        bytes.extend(writer.push(&vec![0.1; frames * SAMPLES_PER_FRAME])?);
        Ok(bytes.into())
    }

    #[test]
    fn any_packet_length_and_any_cut_gives_the_same_number_of_frames() -> Result<()> {
        for packet_samples in [60, 480, 960, 1_440] {
            let mut inbox = Inbox::new()?;
            let mut frames = 0;
            inbox.push(Bytes::new());
            for piece in pages(12, packet_samples)?.chunks(7) {
                inbox.push(Bytes::copy_from_slice(piece));
                frames += std::iter::from_fn(|| inbox.next_frame()).count();
            }
            assert_eq!(frames, 12, "packets of {packet_samples} samples");
        }
        Ok(())
    }

    #[test]
    fn early_audio_beyond_the_limit_is_dropped_and_counted() -> Result<()> {
        let mut inbox = Inbox::new()?;
        inbox.push_early(&pages(10, 960)?, 4 * SAMPLES_PER_FRAME);
        assert_eq!(inbox.dropped_ms(), 480);
        assert_eq!(std::iter::from_fn(|| inbox.next_frame()).count(), 4);
        Ok(())
    }

    #[test]
    fn the_last_part_of_a_frame_counts_only_when_the_client_has_ended() -> Result<()> {
        let mut writer = OpusWriter::new(OpusWriterConfig::default())?;
        let mut bytes = writer.header();
        bytes.extend(writer.push(&vec![0.1; SAMPLES_PER_FRAME / 2])?);
        let mut inbox = Inbox::new()?;
        inbox.push(bytes.into());
        assert_eq!(inbox.next_frame(), None);
        inbox.end();
        assert_eq!(inbox.next_frame().map(|f| f.len()), Some(SAMPLES_PER_FRAME));
        assert_eq!(inbox.next_frame(), None);
        Ok(())
    }

    #[test]
    fn a_damaged_page_costs_its_own_sound_only() -> Result<()> {
        let mut bytes = pages(4, 960)?.to_vec();
        let at = bytes.len() - 5;
        bytes[at] ^= 0xff;
        let mut inbox = Inbox::new()?;
        inbox.push(bytes.into());
        assert_eq!(std::iter::from_fn(|| inbox.next_frame()).count(), 3);
        assert_eq!(inbox.bad_pages(), 1);
        Ok(())
    }
}
