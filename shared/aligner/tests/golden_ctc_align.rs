//! CTC alignment against two independent references that agree (golden `speech/ctc_align`).

use aligner::AlignerError;
use aligner::ctc::align_labels;
use anyhow::{Context, Result};
use testkit::{Golden, golden_json};

#[test]
fn labels_lie_where_two_other_implementations_put_them() -> Result<()> {
    let golden = Golden::open("speech/ctc_align/cases.safetensors")?;
    let cases = golden_json("speech/ctc_align/cases.json")?;
    let cases = cases.as_object().context("an object of cases")?;
    assert_eq!(cases.len(), 9);
    for (name, case) in cases {
        let (shape, values) = golden.f32(&format!("{name}.log_probs"))?;
        let as_index = |v: Vec<i64>| v.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
        let labels = as_index(golden.i64(&format!("{name}.targets"))?.1)?;
        let aligned = align_labels(&values, shape[1], 0, &labels)?;
        assert_eq!(aligned.frames, as_index(golden.i64(&format!("{name}.frame_alignment"))?.1)?, "{name}");
        let total = case["total_log_prob"].as_f64().context("a total")?;
        assert!((aligned.total - total).abs() < 1e-3, "{name}: {} {total}", aligned.total);
        let spans = case["spans"].as_array().context("spans")?;
        assert_eq!(spans.len(), aligned.spans.len(), "{name}");
        for (ours, right) in aligned.spans.iter().zip(spans) {
            let place = [ours.label, ours.start, ours.end].map(|n| n as f64);
            assert_eq!(place.map(Some), [0, 1, 2].map(|i| right[i].as_f64()), "{name}");
            let score = right[3].as_f64().context("a score")?;
            assert!((f64::from(ours.score) - score).abs() < 1e-5, "{name}: {ours:?} {score}");
        }
    }
    Ok(())
}

#[test]
fn too_few_frames_foreign_labels_and_broken_rows_are_errors_and_no_labels_are_all_blank() {
    let rows = vec![-1.0f32; 5 * 4];
    let error = align_labels(&rows, 4, 0, &[1, 1, 2, 2]).expect_err("needs six frames");
    assert!(matches!(error, AlignerError::TooShort { frames: 5, labels: 4, repeats: 2 }), "{error}");
    assert!(matches!(align_labels(&rows, 4, 0, &[4]), Err(AlignerError::BadLabel { label: 4, .. })));
    assert!(matches!(align_labels(&rows, 4, 0, &[0]), Err(AlignerError::BadLabel { label: 0, .. })));
    assert!(matches!(align_labels(&rows, 3, 0, &[1]), Err(AlignerError::BadShape { .. })));
    assert!(matches!(align_labels(&rows, 0, 0, &[1]), Err(AlignerError::BadShape { .. })));
    let blank = align_labels(&rows, 4, 0, &[]).expect("aligns");
    assert_eq!((blank.frames, blank.spans.len()), (vec![0; 5], 0));
    let nothing = align_labels(&[], 4, 0, &[]).expect("aligns");
    assert!(nothing.frames.is_empty() && nothing.total == 0.0);
}
