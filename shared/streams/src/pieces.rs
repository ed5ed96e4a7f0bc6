//! The piece table of a SentencePiece model: what text an id stands for.
//!
//! Only field 1 of the model message is read (pieces with their text and kind); the encoder itself is the library's.

/// How a piece turns into text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text with U+2581 already replaced by a space.
    Text(String),
    /// One byte of a UTF-8 sequence.
    Byte(u8),
    /// Unknown, control or unused: no text.
    Silent,
}

const KIND_UNKNOWN: u64 = 2;
const KIND_CONTROL: u64 = 3;
const KIND_UNUSED: u64 = 5;
const KIND_BYTE: u64 = 6;

/// Reads all pieces in id order; none when the bytes are not a protobuf message.
pub(crate) fn read_pieces(mut model: &[u8]) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    while !model.is_empty() {
        if let (1, Value::Bytes(body)) = next_field(&mut model)? {
            pieces.push(read_piece(body)?);
        }
    }
    Some(pieces)
}

fn read_piece(mut body: &[u8]) -> Option<Piece> {
    let (mut text, mut kind) = ("", 1);
    while !body.is_empty() {
        match next_field(&mut body)? {
            (1, Value::Bytes(bytes)) => text = std::str::from_utf8(bytes).ok()?,
            (3, Value::Varint(v)) => kind = v,
            _ => {}
        }
    }
    Some(match kind {
        KIND_UNKNOWN | KIND_CONTROL | KIND_UNUSED => Piece::Silent,
        KIND_BYTE => Piece::Byte(
            text.strip_prefix("<0x")
                .and_then(|t| t.strip_suffix('>'))
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())?,
        ),
        _ => Piece::Text(text.replace('\u{2581}', " ")),
    })
}

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

fn next_field<'a>(input: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = varint(input)?;
    let value = match key & 7 {
        0 => Value::Varint(varint(input)?),
        1 => skip(input, 8)?,
        2 => {
            let len = usize::try_from(varint(input)?).ok()?;
            let (head, tail) = input.split_at_checked(len)?;
            *input = tail;
            Value::Bytes(head)
        }
        5 => skip(input, 4)?,
        _ => return None,
    };
    Some((key >> 3, value))
}

fn skip<'a>(input: &mut &'a [u8], n: usize) -> Option<Value<'a>> {
    *input = input.get(n..)?;
    Some(Value::Fixed)
}

fn varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = input.split_first()?;
        *input = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_bytes_are_refused() {
        assert_eq!(read_pieces(&[0x0a, 0x05, 0x0a]), None);
        assert_eq!(read_pieces(&[0xff; 12]), None);
        assert_eq!(read_pieces(&[]), Some(Vec::new()));
    }

    #[test]
    fn a_byte_piece_is_one_byte() {
        let body = [0x0a, 0x06, b'<', b'0', b'x', b'E', b'2', b'>', 0x18, 0x06];
        let mut model = vec![0x0a, u8::try_from(body.len()).unwrap_or(0)];
        model.extend(body);
        assert_eq!(read_pieces(&model), Some(vec![Piece::Byte(0xe2)]));
    }
}
