//! Reading a large checkpoint through does not fill memory. Alone in its file: it looks at the whole process.

use std::collections::BTreeMap;

use weights::{CanonicalReader, CheckpointSource, Dtype, TensorPlan, WriteOptions, write_checkpoint};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const TENSORS: usize = 24;
const ROWS: i64 = 1 << 20;

/// Bytes of mapped files that lie in this process's memory.
fn mapped() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("RssFile:")).ok_or("no RssFile")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<u64>()? * 1024)
}

#[test]
fn pages_of_tensors_that_were_read_are_given_back() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let plan: Vec<TensorPlan> = (0..TENSORS)
        .map(|i| TensorPlan { name: format!("t{i:02}"), dtype: Dtype::F32, shape: vec![ROWS] })
        .collect();
    let one = vec![3u8; ROWS as usize * 4];
    write_checkpoint(&path, &plan, &BTreeMap::new(), WriteOptions::default(), |_, sink| sink(&one))?;
    let (tensor, whole) = (one.len() as u64, (one.len() * TENSORS) as u64);

    let reader = CanonicalReader::any(CheckpointSource::open(&path)?);
    let read = |name: &str| -> Result<u64, weights::WeightsError> {
        let parts = reader.parts(name)?;
        Ok(parts.iter().flat_map(|p| p.bytes.iter()).map(|b| u64::from(*b)).sum())
    };
    let before = mapped()?;
    let mut largest = 0;
    for t in &plan {
        assert_eq!(read(&t.name)?, 3 * tensor);
        largest = largest.max(mapped()?.saturating_sub(before));
        reader.release(&t.name);
    }
    assert!(largest < 4 * tensor, "{largest} bytes of {whole} were in memory");
    // Without giving back all of it is there, so the measurement above means something.
    for t in &plan {
        read(&t.name)?;
    }
    assert!(mapped()?.saturating_sub(before) > whole / 2);
    Ok(())
}
