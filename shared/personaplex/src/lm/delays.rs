use tch::{Kind, Tensor};

/// Frame-aligned codes to model rows: stream k shifted right by its delay, its initial id in the hole and in a column
/// in front. `[B, K, T] -> [B, K, T + 1]`.
pub(crate) fn to_rows(codes: &Tensor, delays: &[i64], initial: &[i64]) -> Tensor {
    let (b, _, t) = codes.size3().expect("batch, streams, frames");
    let streams: Vec<Tensor> = delays
        .iter()
        .zip(initial)
        .enumerate()
        .map(|(k, (&delay, &id))| {
            let hole = (1 + delay).min(t + 1);
            let head = Tensor::full([b, hole], id, (Kind::Int64, codes.device()));
            Tensor::cat(&[head, codes.select(1, k as i64).narrow(1, 0, t + 1 - hole)], 1)
        })
        .collect();
    Tensor::stack(&streams, 1)
}

/// Row-aligned values back to frames: codebook k shifted left by its delay; the last frames, which no row predicts,
/// become zero. `[B, K, T, V] -> [B, K, T, V]`.
pub(crate) fn to_frames(x: &Tensor, delays: &[i64]) -> Tensor {
    let t = x.size()[2];
    let streams: Vec<Tensor> = delays
        .iter()
        .enumerate()
        .map(|(k, &delay)| {
            let delay = delay.min(t);
            let one = x.select(1, k as i64); // [B, T, V]
            if delay == 0 { one } else { one.narrow(1, delay, t - delay).constant_pad_nd([0, 0, 0, delay]) }
        })
        .collect();
    Tensor::stack(&streams, 1)
}

/// True where a row predicts the frame: all but the last `delay` frames of a codebook. `[K, T]`.
pub(crate) fn predicted(t: i64, delays: &[i64], device: tch::Device) -> Tensor {
    let frames = Tensor::arange(t, (Kind::Int64, device));
    let ends = Tensor::from_slice(&delays.iter().map(|d| t - d).collect::<Vec<_>>()).to_device(device);
    frames.unsqueeze(0).lt_tensor(&ends.unsqueeze(1))
}
