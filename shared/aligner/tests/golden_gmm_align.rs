//! Whole alignments against golden `speech/gmm_align`: words, phones, triphones, likelihood, skipped and repeated words.

use std::path::Path;

use aligner::frontend::{Frontend, features, mean};
use aligner::{Aligner, Deviations, Part, Segment};
use anyhow::{Context, Result, ensure};
use testkit::{golden_json, golden_path};

const FOLDER: &str = "/usr/share/pocketsphinx/model/en-us";

/// Samples of a 16-bit mono file as they stand.
fn samples(name: &str) -> Result<Vec<f32>> {
    let bytes = std::fs::read(golden_path(&format!("speech/gmm_align/{name}.wav"))?)?;
    ensure!(&bytes[36..40] == b"data", "a header of 44 bytes");
    Ok(bytes[44..].chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]]))).collect())
}

fn close(ours: usize, right: Option<u64>) -> bool {
    right.is_some_and(|right| (ours as u64).abs_diff(right) <= 1)
}

/// Frames from the first to the last phone of every word.
fn words(segments: &[Segment]) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    for segment in segments {
        if let Part::Word(index) = segment.part {
            words.resize(index + 1, (segment.start, 0));
            words[index].1 = segment.end;
        }
    }
    words
}

#[test]
fn words_and_phones_lie_where_the_reference_has_them() -> Result<()> {
    let aligner = Aligner::open(Path::new(FOLDER))?;
    let io = golden_json("speech/gmm_align/io.json")?;
    let names = aligner.model().phones().names();
    for name in ["flite_slt", "espeak_f3"] {
        let right = &io["utts"][name];
        let cepstra = Frontend::new().cepstra(&samples(name)?);
        let features = features(&cepstra, &mean(&cepstra));
        let text: Vec<&str> = right["text"].as_str().context("a text")?.split(' ').collect();
        let trace = aligner.trace(&features, &text).context("a path")?;
        for (ours, word) in words(&trace.segments).iter().zip(right["words"].as_array().context("words")?) {
            let frame = |i: usize| word[i].as_f64().map(|s| (s * 100.0).round() as u64);
            assert!(close(ours.0, frame(1)) && close(ours.1, frame(2)), "{name}: {ours:?}, not {word}");
        }
        let phones = right["phones"].as_array().context("phones")?;
        assert_eq!(phones.len(), trace.segments.len(), "{name}");
        for (ours, phone) in trace.segments.iter().zip(phones) {
            assert_eq!(Some(names[usize::from(ours.phone)].as_str()), phone[0].as_str(), "{name}: {ours:?}");
            assert!(
                close(ours.start, phone[1].as_u64()) && close(ours.end, phone[2].as_u64()),
                "{name}: {ours:?}, not {phone}"
            );
            assert_eq!(Some(u64::from(ours.triphone)), phone[3].as_u64(), "{name}: {ours:?}");
        }
        let likelihood = trace.score / features.len() as f64;
        let reference = right["log_likelihood_per_frame"].as_f64().context("a likelihood")?;
        assert!((likelihood - reference).abs() < 0.01, "{name}: {likelihood}, not {reference}");
    }
    Ok(())
}

#[test]
fn the_lattice_hears_what_was_skipped_and_what_was_repeated() -> Result<()> {
    let aligner = Aligner::open(Path::new(FOLDER))?;
    let lattice = golden_json("speech/gmm_align/lattice.json")?;
    for (name, case) in lattice.as_object().context("cases")? {
        let script: Vec<&str> =
            case["script"].as_array().context("words")?.iter().filter_map(|w| w.as_str()).collect();
        let samples: Vec<f32> = samples(name)?.into_iter().map(|s| s / 32_768.0).collect();
        let may = Deviations { insertion: None, ..Deviations::default() };
        for may in [may, Deviations::default()] {
            let reading = aligner.check(&aligner.sound(&samples), &script, &may);
            let heard: Vec<Option<usize>> = reading.heard.iter().map(|h| h.word).collect();
            assert_eq!(serde_json::json!(heard), case["recovered"], "{name}");
            for (heard, right) in reading.heard.iter().zip(case["frames"].as_array().context("frames")?) {
                let right = right[1].as_u64().context("a frame")? * 10;
                assert!(heard.start_ms.abs_diff(right) <= 20, "{name}: {heard:?}, not {right}");
            }
        }
    }
    Ok(())
}
