#![allow(dead_code, reason = "each test binary uses a part")]

pub mod dialogues;

use std::path::PathBuf;

use serde_json::Value;
use streams::{CHANNELS, Frame, Tokenizer};

pub type TestResult = Result<(), Box<dyn std::error::Error>>;

pub fn golden(path: &str) -> PathBuf {
    let root = std::env::var_os("PPX_GOLDEN_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden"), PathBuf::from);
    root.join(path)
}

pub fn golden_json(path: &str) -> Result<Value, Box<dyn std::error::Error>> {
    let path = golden(path);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

pub fn tokenizer() -> Result<Tokenizer, Box<dyn std::error::Error>> {
    Ok(Tokenizer::from_bytes(&std::fs::read(golden("finetune/a_interleaver/tiny_spm.model"))?)?)
}

pub fn ints(value: &Value) -> Vec<i32> {
    serde_json::from_value(value.clone()).expect("a list of integers")
}

pub fn spans(value: &Value) -> Vec<(usize, usize)> {
    serde_json::from_value(value.clone()).expect("a list of pairs")
}

pub fn frames(value: &Value) -> Vec<Frame> {
    let rows: Vec<Vec<i32>> = serde_json::from_value(value.clone()).expect("a list of rows");
    rows.into_iter().map(|r| <[i32; CHANNELS]>::try_from(r).expect("17 values")).collect()
}

pub fn cases(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
