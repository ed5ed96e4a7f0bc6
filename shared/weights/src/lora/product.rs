use half::{bf16, f16};

use crate::Dtype;

/// A row-major matrix of f32.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub values: &'a [f32],
    pub columns: usize,
}

impl Matrix<'_> {
    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }
}

/// `out += scale * a b`, all row-major: `[m, k] [k, n] -> [m, n]`.
#[expect(unsafe_code, reason = "the product takes pointers")]
pub(super) fn add_product(out: &mut [f32], scale: f32, a: Matrix, b: Matrix) {
    let (m, k, n) = (a.rows(), a.columns, b.columns);
    assert_eq!((b.values.len(), out.len()), (k * n, m * n), "shapes of a product");
    assert_eq!(a.values.len(), m * k, "whole rows");
    // SAFETY: the three slices have exactly the m*k, k*n and m*n elements that the row-major strides address (asserted
    // above), and `out` is borrowed exclusively, so it overlaps neither operand.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            scale,
            a.values.as_ptr(),
            k as isize,
            1,
            b.values.as_ptr(),
            n as isize,
            1,
            1.0,
            out.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

/// Little-endian bytes of f32, bf16 or f16 as f32.
pub(super) fn widen(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let two = |f: fn([u8; 2]) -> f32| bytes.chunks_exact(2).map(|b| f([b[0], b[1]])).collect();
    match dtype {
        Dtype::BF16 => two(|b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F16 => two(|b| f16::from_le_bytes(b).to_f32()),
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// The other way: each value once, to the nearest, ties to even.
pub(super) fn narrow(dtype: Dtype, values: &[f32], out: &mut [u8]) {
    let two = |out: &mut [u8], f: fn(f32) -> [u8; 2]| {
        out.chunks_exact_mut(2).zip(values).for_each(|(o, v)| o.copy_from_slice(&f(*v)));
    };
    match dtype {
        Dtype::BF16 => two(out, |v| bf16::from_f32(v).to_le_bytes()),
        Dtype::F16 => two(out, |v| f16::from_f32(v).to_le_bytes()),
        _ => out.chunks_exact_mut(4).zip(values).for_each(|(o, v)| o.copy_from_slice(&v.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_the_nearest_and_ties_to_even() {
        let mut out = [0u8; 10];
        // One unit in the last place of bf16 at 1.0 is 2^-7.
        let ulp = 1.0f32 / 128.0;
        narrow(Dtype::BF16, &[1.0 + 0.5 * ulp, 1.0 + 1.5 * ulp, 1.0 + 0.51 * ulp, -0.0, f32::NAN], &mut out);
        let back = widen(Dtype::BF16, &out);
        assert_eq!(back[..3], [1.0, 1.0 + 2.0 * ulp, 1.0 + ulp]);
        assert!(back[3].to_bits() == (-0.0f32).to_bits() && back[4].is_nan());
    }

    #[test]
    fn a_product_is_added_and_scaled_once() {
        let mut out = [1.0, 1.0];
        let (a, b) = (
            Matrix { values: &[1.0, 2.0, 3.0, 4.0], columns: 2 },
            Matrix { values: &[5.0, 6.0], columns: 1 },
        );
        add_product(&mut out, 2.0, a, b);
        assert_eq!(out, [1.0 + 2.0 * 17.0, 1.0 + 2.0 * 39.0]);
    }
}
