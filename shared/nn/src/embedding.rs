use tch::Tensor;

/// Id that stands for nothing: a zero vector.
const ZERO: i64 = -1;

/// Rows of a table `[V, width]`; id -1 gives a zero vector. `[..] -> [.., width]`.
pub fn lookup(table: &Tensor, ids: &Tensor) -> Tensor {
    let x = Tensor::embedding(table, &ids.clamp_min(0), -1, false, false);
    x * ids.ne(ZERO).unsqueeze(-1)
}
