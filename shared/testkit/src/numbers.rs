//! Comparing arrays against references, with failures that say where and by how much.

/// Panics unless every |got − want| ≤ `tolerance` (absolute); a NaN never passes.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    let outside = |(g, w): (f32, f32)| g != w && ((g - w).abs() > tolerance || (g - w).is_nan());
    let pairs = || got.iter().copied().zip(want.iter().copied());
    let count = pairs().filter(|pair| outside(*pair)).count();
    if count == 0 {
        return;
    }
    let first = pairs().position(outside).expect("at least one pair is outside");
    let size = |(g, w): (f32, f32)| if (g - w).is_nan() { f32::INFINITY } else { (g - w).abs() };
    let (worst, pair) =
        pairs().enumerate().max_by(|a, b| size(a.1).total_cmp(&size(b.1))).expect("not empty");
    panic!(
        "{what}: {count} of {} values differ by more than {tolerance:e}; first at {first} (got {}, want {}), worst at \
         {worst} (got {}, want {}, difference {:e})",
        got.len(),
        got[first],
        want[first],
        pair.0,
        pair.1,
        (pair.0 - pair.1).abs()
    );
}

/// Panics at the first index where the integers differ.
#[track_caller]
pub fn assert_same(what: &str, got: &[i64], want: &[i64]) {
    if let Some(at) = got.iter().zip(want).position(|(g, w)| g != w) {
        panic!("{what}: differs first at {at} of {}: got {}, want {}", want.len(), got[at], want[at]);
    }
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_infinities_and_small_differences_pass() {
        assert_close("x", &[1.0, f32::INFINITY], &[1.0 + 1e-6, f32::INFINITY], 1e-5);
    }

    #[test]
    #[should_panic(expected = "1 of 3 values differ")]
    fn a_nan_fails() {
        assert_close("x", &[0.0, f32::NAN, 2.0], &[0.0, 1.0, 2.0], 10.0);
    }

    #[test]
    #[should_panic(expected = "differs first at 1 of 2: got 3, want 2")]
    fn integers_must_be_equal() {
        assert_same("codes", &[1, 3], &[1, 2]);
    }
}
