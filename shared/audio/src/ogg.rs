//! Ogg pages (RFC 3533) for one stream: a writer of single-packet pages and a reader that takes any cut of bytes.

const CAPTURE: &[u8; 4] = b"OggS";
const HEADER: usize = 27;
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// Kind of page to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Middle,
    Last,
}

/// Checksum of a page whose checksum field is zero.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |crc, &byte| {
        (0..8).fold(crc ^ (u32::from(byte) << 24), |c, _| {
            if c & 0x8000_0000 == 0 { c << 1 } else { (c << 1) ^ 0x04c1_1db7 }
        })
    })
}

/// Builds a page that holds one whole packet (or none when `packet` is none).
pub(crate) fn page(serial: u32, sequence: u32, granule: u64, place: Place, packet: Option<&[u8]>) -> Vec<u8> {
    let body = packet.unwrap_or(&[]);
    let mut lacing = Vec::new();
    if packet.is_some() {
        lacing = vec![255; body.len() / 255];
        lacing.push(u8::try_from(body.len() % 255).unwrap_or(0));
    }
    let mut out = Vec::with_capacity(HEADER + lacing.len() + body.len());
    out.extend_from_slice(CAPTURE);
    out.push(0);
    out.push(match place {
        Place::First => FIRST,
        Place::Middle => 0,
        Place::Last => LAST,
    });
    out.extend(granule.to_le_bytes());
    out.extend(serial.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend([0; 4]);
    out.push(u8::try_from(lacing.len()).unwrap_or(u8::MAX));
    out.extend(lacing);
    out.extend_from_slice(body);
    let crc = checksum(&out);
    out[22..26].copy_from_slice(&crc.to_le_bytes());
    out
}

/// What a reader has met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageStats {
    pub(crate) pages: u64,
    pub(crate) bad_pages: u64,
    pub(crate) broken_packets: u64,
    pub(crate) skipped_bytes: u64,
}

/// Takes bytes in any cut and gives packets; damaged pages are counted and skipped.
#[derive(Debug, Default)]
pub(crate) struct PageReader {
    buffer: Vec<u8>,
    partial: Vec<u8>,
    in_packet: bool,
    next_sequence: Option<u32>,
    pub(crate) stats: PageStats,
}

enum Found {
    Page(usize),
    Damaged,
    Incomplete,
}

impl PageReader {
    /// Packets that `bytes` complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.buffer.extend_from_slice(bytes);
        let mut packets = Vec::new();
        let mut at = 0;
        loop {
            at = self.seek_capture(at);
            match inspect(&self.buffer[at..]) {
                Found::Page(len) => {
                    let page = self.buffer[at..at + len].to_vec();
                    self.take_page(&page, &mut packets);
                    at += len;
                }
                Found::Damaged => {
                    self.stats.bad_pages += 1;
                    at += CAPTURE.len();
                }
                Found::Incomplete => match self.whole_page_after(at) {
                    // A damaged length would otherwise hold everything back for up to 65 kB.
                    Some(next) => {
                        self.stats.bad_pages += 1;
                        self.stats.skipped_bytes += (next - at) as u64;
                        at = next;
                    }
                    None => break,
                },
            }
        }
        self.buffer.drain(..at);
        packets
    }

    /// Position of the next capture pattern; all but a possible beginning of one is skipped.
    fn seek_capture(&mut self, from: usize) -> usize {
        let rest = &self.buffer[from..];
        let skip = rest.windows(4).position(|w| w == CAPTURE).unwrap_or_else(|| {
            let keep = (1..4).rev().find(|&n| rest.ends_with(&CAPTURE[..n])).unwrap_or(0);
            rest.len() - keep
        });
        self.stats.skipped_bytes += skip as u64;
        from + skip
    }

    fn whole_page_after(&self, at: usize) -> Option<usize> {
        (at + CAPTURE.len()..self.buffer.len().saturating_sub(HEADER)).find(|&p| {
            self.buffer[p..].starts_with(CAPTURE) && matches!(inspect(&self.buffer[p..]), Found::Page(_))
        })
    }

    fn take_page(&mut self, page: &[u8], packets: &mut Vec<Vec<u8>>) {
        self.stats.pages += 1;
        let sequence = u32::from_le_bytes([page[18], page[19], page[20], page[21]]);
        let in_order = self.next_sequence.replace(sequence.wrapping_add(1)).is_none_or(|n| n == sequence);
        let continued = page[5] & CONTINUED != 0;
        if self.in_packet && !(continued && in_order) {
            self.stats.broken_packets += 1;
            self.partial.clear();
            self.in_packet = false;
        }
        // The head of a packet that continues here was lost: its tail is no packet.
        let mut headless = continued && !self.in_packet;
        if headless {
            self.stats.broken_packets += 1;
        }
        let segments = usize::from(page[26]);
        let mut body = &page[HEADER + segments..];
        for &lace in &page[HEADER..HEADER + segments] {
            let (part, rest) = body.split_at(usize::from(lace));
            body = rest;
            if !headless {
                self.partial.extend_from_slice(part);
                self.in_packet = true;
            }
            if lace < 255 {
                if !headless {
                    packets.push(std::mem::take(&mut self.partial));
                }
                (headless, self.in_packet) = (false, false);
            }
        }
    }
}

fn inspect(bytes: &[u8]) -> Found {
    let Some(header) = bytes.get(..HEADER) else { return Found::Incomplete };
    if header[4] != 0 {
        return Found::Damaged;
    }
    let segments = usize::from(header[26]);
    let Some(lacing) = bytes.get(HEADER..HEADER + segments) else { return Found::Incomplete };
    let len = HEADER + segments + lacing.iter().map(|&l| usize::from(l)).sum::<usize>();
    let Some(page) = bytes.get(..len) else { return Found::Incomplete };
    let mut zeroed = page.to_vec();
    zeroed[22..26].fill(0);
    if checksum(&zeroed).to_le_bytes() == page[22..26] { Found::Page(len) } else { Found::Damaged }
}
