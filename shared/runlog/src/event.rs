//! TensorBoard event files: length-prefixed records with masked CRC-32C around `Event` messages.

use crate::Point;

/// Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Added to a rotated checksum, so that checksums of data that holds checksums stay strong.
const MASK: u32 = 0xa282_ead8;
/// First record of every file.
const VERSION: &[u8] = b"brain.Event:2";

const fn table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let (mut value, mut bit) = (i as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
}

static TABLE: [u32; 256] = table();

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8;
    !bytes.iter().fold(!0, step)
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

fn record(out: &mut Vec<u8>, message: &[u8]) {
    let length = (message.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(&length).to_le_bytes());
    out.extend(message);
    out.extend(masked(message).to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A length-delimited field.
fn nested(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, content.len() as u64);
    out.extend(content);
}

fn event(seconds: f64, step: u32) -> Vec<u8> {
    // wall_time: 1, double; step: 2, int64.
    let mut message = vec![1 << 3 | 1];
    message.extend(seconds.to_le_bytes());
    if step > 0 {
        message.push(2 << 3);
        varint(&mut message, u64::from(step));
    }
    message
}

/// One event file with every point as a scalar, in the order given. Values are 32-bit there.
#[must_use]
pub fn event_file(points: &[Point]) -> Vec<u8> {
    let seconds = |p: &Point| p.at.timestamp_micros() as f64 / 1e6;
    let mut out = Vec::new();
    let mut first = event(points.first().map_or(0.0, seconds), 0);
    // file_version: 3, string.
    nested(&mut first, 3, VERSION);
    record(&mut out, &first);
    for point in points {
        // Summary.Value: tag 1, string; simple_value 2, float.
        let mut value = Vec::new();
        nested(&mut value, 1, point.name.as_bytes());
        value.push(2 << 3 | 5);
        value.extend((point.value as f32).to_le_bytes());
        let (mut summary, mut message) = (Vec::new(), event(seconds(point), point.step));
        nested(&mut summary, 1, &value);
        nested(&mut message, 5, &summary);
        record(&mut out, &message);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_published_vectors() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
