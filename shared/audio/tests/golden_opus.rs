//! The published server's Ogg-Opus stream (golden set personaplex/ogg_opus).

use audio::opus::{OpusReader, OpusStats};
use std::path::PathBuf;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn golden(name: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let root = std::env::var_os("PPX_GOLDEN_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden"), PathBuf::from);
    let path = root.join("personaplex/ogg_opus").join(name);
    std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()).into())
}

#[test]
fn the_published_stream_decodes_to_the_published_sound_frame_by_frame() -> TestResult {
    let stream = golden("writer_stream.ogg")?;
    let bytes = golden("opus.safetensors")?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    let words = |name: &str| -> Result<Vec<[u8; 4]>, safetensors::SafeTensorError> {
        Ok(file.tensor(name)?.data().chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect())
    };
    let expected: Vec<f32> = words("pcm_decoded")?.into_iter().map(f32::from_le_bytes).collect();
    let chunks: Vec<usize> = words("chunk_bytes")?
        .into_iter()
        .map(|b| usize::try_from(i32::from_le_bytes(b)))
        .collect::<Result<_, _>>()?;

    let mut reader = OpusReader::new()?;
    // Every frame is two packets of 40 ms; two header pages come before the first.
    let packets = 2 * chunks.len() as u64;
    let (mut pcm, mut at) = (Vec::new(), 0);
    for len in chunks {
        let part = reader.push(&stream[at..at + len]);
        assert_eq!(part.len(), 1_920, "one frame a chunk");
        pcm.extend(part);
        at += len;
    }
    assert_eq!((at, pcm.len()), (stream.len(), expected.len()));
    let worst = pcm.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-3, "differs by {worst}");
    assert_eq!(reader.stats(), OpusStats { pages: packets + 2, packets, ..OpusStats::default() });
    Ok(())
}
