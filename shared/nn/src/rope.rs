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

    /// The table for positions `[B, T]` i64.
    #[must_use]
    pub fn at(&self, positions: &Tensor) -> RopeTable {
        let angles = positions.to_kind(Kind::Float).unsqueeze(-1) * &self.frequencies; // [B, T, D/2]
        RopeTable { cos: angles.cos().unsqueeze(1), sin: angles.sin().unsqueeze(1) }
    }

    /// Angles of position 1, `[D/2]` f32.
    pub(crate) const fn frequencies(&self) -> &Tensor {
        &self.frequencies
    }

    /// The table for rows 0..t of a whole sequence.
    #[must_use]
    pub fn whole(&self, t: i64) -> RopeTable {
        self.at(&Tensor::arange(t, (Kind::Int64, self.frequencies.device())).unsqueeze(0))
    }
}

impl RopeTable {
    /// Rotates `[.., B, H, T, D]`; computed in f32, returned in the input's kind.
    pub fn rotate(&self, x: &Tensor) -> Tensor {
        let size = x.size();
        let (width, outer) = size.split_last().expect("not a scalar");
        let pairs = x.to_kind(Kind::Float).reshape([outer, &[width / 2, 2]].concat());
        let (re, im) = (pairs.select(-1, 0), pairs.select(-1, 1));
        let out_re = &re * &self.cos - &im * &self.sin;
        let out_im = re * &self.sin + im * &self.cos;
        Tensor::stack(&[out_re, out_im], -1).view(&size[..]).to_kind(x.kind())
    }
}
