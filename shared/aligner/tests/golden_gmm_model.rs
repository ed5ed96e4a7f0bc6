//! Front end, model files and senone scores against golden `speech/gmm_align`.

use std::path::Path;

use aligner::AlignerError;
use aligner::frontend::{Frontend, features, mean};
use aligner::model::AcousticModel;
use aligner::phones::Position;
use aligner::senones::{BLOCK, Scorer};
use anyhow::{Context, Result, ensure};
use testkit::{Golden, golden_json, golden_path};

const FOLDER: &str = "/usr/share/pocketsphinx/model/en-us/en-us";
const UTTERANCES: [&str; 2] = ["flite_slt", "espeak_f3"];

/// Samples of a 16-bit mono file as they stand.
fn samples(name: &str) -> Result<Vec<f32>> {
    let bytes = std::fs::read(golden_path(&format!("speech/gmm_align/{name}.wav"))?)?;
    ensure!(&bytes[36..40] == b"data", "a header of 44 bytes");
    Ok(bytes[44..].chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]]))).collect())
}

fn largest_difference(ours: impl Iterator<Item = f32>, right: &[f32]) -> f32 {
    ours.zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn cepstra_and_features_are_those_of_the_reference() -> Result<()> {
    let golden = Golden::open("speech/gmm_align/io.safetensors")?;
    let io = golden_json("speech/gmm_align/io.json")?;
    for name in UTTERANCES {
        let cepstra = Frontend::new().cepstra(&samples(name)?);
        assert_eq!(Some(cepstra.len() as u64), io["utts"][name]["frames"].as_u64(), "{name}");
        let (_, right) = golden.f32(&format!("{name}.mfcc_nodenoise"))?;
        let difference = largest_difference(cepstra.iter().flatten().copied(), &right);
        assert!(difference < 1e-2, "{name}: cepstra differ by {difference}");
        let (_, right) = golden.f32(&format!("{name}.feat"))?;
        let ours = features(&cepstra, &mean(&cepstra));
        let difference = largest_difference(ours.iter().flatten().flatten().copied(), &right);
        assert!(difference < 2e-2, "{name}: features differ by {difference}");
    }
    Ok(())
}

#[test]
fn the_model_has_the_phones_triphones_and_transitions_of_the_reference() -> Result<()> {
    let model = AcousticModel::open(Path::new(FOLDER))?;
    let io = golden_json("speech/gmm_align/io.json")?;
    let phones = model.phones();
    assert_eq!(serde_json::json!(phones.names()), io["model"]["ciphones"]);
    assert_eq!(Some(phones.len() as u64), io["model"]["n_phone"].as_u64());
    assert_eq!(Some(phones.senone_count() as u64), io["model"]["n_sen"].as_u64());
    for row in io["triphones"].as_array().context("triphones")? {
        let name = |i: usize| phones.named(row[i].as_str().unwrap_or_default()).context("a phone");
        let position = [Position::Internal, Position::Begin, Position::End, Position::Single]
            [row[3].as_u64().context("a position")? as usize];
        let found = phones.triphone(name(0)?, name(1)?, name(2)?, position);
        let ours = serde_json::json!([found.id, found.sequence, phones.states(found)]);
        assert_eq!(ours, serde_json::json!([row[4], row[5], row[6]]), "{row}");
    }
    let transitions = model.transitions(0);
    for (ours, right) in transitions.iter().zip(io["tmat_0"].as_array().context("a matrix")?) {
        for (ours, right) in ours.iter().zip(right.as_array().context("a row")?) {
            let right = right.as_f64().context("a number")?;
            assert!((f64::from(ours.exp()) - right).abs() < 1e-4, "{transitions:?}");
        }
    }
    Ok(())
}

#[test]
fn senones_score_as_in_the_reference() -> Result<()> {
    let model = AcousticModel::open(Path::new(FOLDER))?;
    let golden = Golden::open("speech/gmm_align/io.safetensors")?;
    for name in UTTERANCES {
        let cepstra = Frontend::new().cepstra(&samples(name)?);
        let features = features(&cepstra, &mean(&cepstra));
        let (_, ids) = golden.i64(&format!("{name}.senone_ids"))?;
        let senones = ids.into_iter().map(u16::try_from).collect::<Result<Vec<_>, _>>()?;
        let (shape, right) = golden.f32(&format!("{name}.senone_scores"))?;
        let scorer = Scorer::new(&model, &senones);
        let mut ours = vec![0.0; right.len()];
        let (frames, width) = (&features[..shape[0]], shape[1]);
        for (block, out) in frames.chunks(BLOCK).zip(ours.chunks_mut(BLOCK * width)) {
            scorer.score(block, out);
        }
        let difference = largest_difference(ours.into_iter(), &right);
        assert!(difference < 0.05, "{name}: scores differ by {difference}");
    }
    Ok(())
}

#[test]
fn a_missing_or_foreign_model_is_named() -> Result<()> {
    let error = AcousticModel::open(Path::new("no/such/folder")).expect_err("missing");
    assert!(error.to_string().contains("no/such/folder/mdef"), "{error}");
    let folder = tempfile::tempdir()?;
    for start in [&b"MDEF"[..], b"BMDF", b"BMDF\x01\0\0\0\xff\xff\xff\xff", b"BMDF\x01\0\0\0\xff\xff\xff\x07"]
    {
        std::fs::write(folder.path().join("mdef"), start)?;
        let error = AcousticModel::open(folder.path()).expect_err("no model");
        assert!(matches!(error, AlignerError::Format { .. }), "{error}");
    }
    Ok(())
}
