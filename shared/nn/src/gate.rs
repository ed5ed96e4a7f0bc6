use tch::Tensor;

/// `silu(first half) * second half` of the last dimension: `[.., 2 H] -> [.., H]`. In bf16 both steps round.
pub fn silu_gate(x: &Tensor) -> Tensor {
    let half = x.size().last().expect("not a scalar") / 2;
    x.narrow(-1, 0, half).silu() * x.narrow(-1, half, half)
}
