use tch::{Device, Kind, Tensor};

/// Rotary positions on interleaved pairs (2i, 2i+1), angles in f32.
#[derive(Debug)]
pub struct Rope {
    /// `[D/2]` f32.
    frequencies: Tensor,
}

/// Cosines and sines of one chunk of positions, shared by queries, keys and layers: `[B, 1, T, D/2]`.
#[derive(Debug)]
pub struct RopeTable {
    cos: Tensor,
    sin: Tensor,
}

impl Rope {
    /// `width` is the head width, even.
    pub fn new(width: i64, max_period: f64, device: Device) -> Self {
        let index = Tensor::arange(width / 2, (Kind::Float, device));
        Self { frequencies: (index * (-max_period.ln() * 2.0 / width as f64)).exp() }
    }

    /// The table for `t` positions from `start[b]` on.
    pub fn table(&self, start: &[i64], t: i64) -> RopeTable {
        let device = self.frequencies.device();
        let start = Tensor::from_slice(start).to_device(device).view([-1, 1]);
        let positions = (start + Tensor::arange(t, (Kind::Int64, device))).to_kind(Kind::Float);
        let angles = positions.unsqueeze(-1) * &self.frequencies; // [B, T, D/2]
        RopeTable { cos: angles.cos().unsqueeze(1), sin: angles.sin().unsqueeze(1) }
    }
}

impl RopeTable {
    /// Rotates `[B, H, T, D]`; computed in f32, returned in the input's kind.
    pub fn rotate(&self, x: &Tensor) -> Tensor {
        let size = x.size();
        let pairs = x.to_kind(Kind::Float).view([size[0], size[1], size[2], size[3] / 2, 2]);
        let (re, im) = (pairs.select(-1, 0), pairs.select(-1, 1));
        let out_re = &re * &self.cos - &im * &self.sin;
        let out_im = re * &self.sin + im * &self.cos;
        Tensor::stack(&[out_re, out_im], -1).view(&size[..]).to_kind(x.kind())
    }
}
