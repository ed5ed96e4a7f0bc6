use std::path::Path;

use crate::{ModelConfig, WeightsError, check_downloaded};

/// Checks that a file has the form of a SentencePiece model (a protobuf message whose first fields are the pieces) and
/// returns the number of its pieces. Whether it tokenizes is for the library that reads it to say.
pub fn check_tokenizer(path: &Path) -> Result<u64, WeightsError> {
    check_downloaded(path)?;
    let bytes = std::fs::read(path).map_err(WeightsError::io("read", path))?;
    count_pieces(&bytes).map_err(|detail| WeightsError::BadTokenizer { path: path.into(), detail })
}

/// [`check_tokenizer`], and every piece is an id of the model's text stream.
pub fn check_tokenizer_of(path: &Path, config: &ModelConfig) -> Result<(), WeightsError> {
    let pieces = check_tokenizer(path)?;
    let text_card = config.lm.text_card;
    if i64::try_from(pieces).is_ok_and(|n| n <= text_card) {
        return Ok(());
    }
    let detail = format!("it has {pieces} pieces, the model's text_card is {text_card}");
    Err(WeightsError::BadTokenizer { path: path.into(), detail })
}

/// Pieces are the length-delimited fields number 1 of the outermost message.
fn count_pieces(mut rest: &[u8]) -> Result<u64, String> {
    let length = rest.len();
    let mut pieces = 0;
    while !rest.is_empty() {
        let at = length - rest.len();
        let key = varint(&mut rest).ok_or_else(|| format!("it is cut at byte {length}"))?;
        if key & 7 != 2 {
            return Err(format!("byte {at} does not start a field of a model"));
        }
        let size = varint(&mut rest).and_then(|n| usize::try_from(n).ok());
        let size = size.filter(|n| *n <= rest.len()).ok_or_else(|| format!("it is cut at byte {length}"))?;
        rest = &rest[size..];
        pieces += u64::from(key >> 3 == 1);
    }
    if pieces == 0 { Err("it has no pieces".into()) } else { Ok(pieces) }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_and_a_cut_anywhere_is_noticed_or_shortens_the_list() -> Result<(), String> {
        let whole = include_bytes!("../../../configs/model/tiny.tokenizer.model");
        let all = count_pieces(whole)?;
        assert!(all > 100, "{all}");
        for cut in 0..whole.len() {
            assert!(count_pieces(&whole[..cut]).is_err() || count_pieces(&whole[..cut])? <= all, "{cut}");
        }
        assert!(count_pieces(b"hello, world").is_err());
        assert!(count_pieces(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
        Ok(())
    }
}
