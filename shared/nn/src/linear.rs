use std::cell::{Cell, RefCell};

use tch::Tensor;

thread_local! {
    static ADAPTERS_OFF: Cell<bool> = const { Cell::new(false) };
    static RANK_WEIGHTS: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// Runs `work` with a factor for every rank of the low-rank updates, another for each slot of a batch: `weights [B, rank]`
/// for inputs `[B, .., in]`, in their kind. So adapters that lie beside each other in one pair of matrices serve one slot
/// each: zero where an adapter is not a slot's. On this thread; only for serving, a product at a time.
pub fn with_rank_weights<T>(weights: &Tensor, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Tensor>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RANK_WEIGHTS.set(self.0.take());
        }
    }
    let _restore = Restore(RANK_WEIGHTS.replace(Some(weights.shallow_clone())));
    work()
}

/// `B (weights * (A x))`: `[.., in] -> [.., out]`.
fn low_rank(x: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    let low = product(x, a);
    let weighted = RANK_WEIGHTS.with_borrow(|weights| {
        weights.as_ref().map(|weights| {
            let (slots, ranks) = weights.size2().expect("slots by ranks");
            let mut shape = vec![1; low.dim()];
            (shape[0], shape[low.dim() - 1]) = (slots, ranks);
            &low * weights.view(&shape[..])
        })
    });
    product(&weighted.unwrap_or(low), b)
}

/// Runs `work` as if no linear had an adapter, on this thread.
pub fn without_adapters<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ADAPTERS_OFF.set(self.0);
        }
    }
    let _restore = Restore(ADAPTERS_OFF.replace(true));
    work()
}

/// Whether this thread is inside [`without_adapters`].
pub fn adapters_off() -> bool {
    ADAPTERS_OFF.get()
}

/// Low-rank update of a linear: `y = W x + scaling * B (A x)`. The tensors are the trainable ones themselves; whoever
/// trains them updates them in place. In training they are f32 and rounded to the input's kind here, so that gradients
/// add up in f32; for serving they are of the model's kind and nothing is rounded.
#[derive(Debug)]
pub struct LoraPair {
    /// `[rank, in]`, or `[S, rank, in]` for a per-step linear.
    pub a: Tensor,
    /// `[out, rank]`, or `[S, out, rank]` for a per-step linear.
    pub b: Tensor,
    pub scaling: f64,
}

/// The adapter in force.
fn active(lora: &Option<LoraPair>) -> Option<&LoraPair> {
    lora.as_ref().filter(|_| !adapters_off())
}

/// A linear without bias, weight `[out, in]`.
#[derive(Debug)]
pub struct Linear {
    pub weight: Tensor,
    pub lora: Option<LoraPair>,
}

impl Linear {
    pub fn new(weight: Tensor) -> Self {
        Self { weight, lora: None }
    }

    /// `[.., in] -> [.., out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let y = product(x, &self.weight);
        match active(&self.lora) {
            None => y,
            Some(p) => y + low_rank(x, &p.a, &p.b) * p.scaling,
        }
    }
}

/// `x W^T` in the kind of `x`.
fn product(x: &Tensor, weight: &Tensor) -> Tensor {
    x.linear(&weight.to_kind(x.kind()), None::<&Tensor>)
}

/// `[S, N, in] [S, out, in] -> [S, N, out]` in the kind of `x`.
fn products(x: &Tensor, weights: &Tensor) -> Tensor {
    x.bmm(&weights.to_kind(x.kind()).transpose(1, 2))
}

/// One linear per depformer step, weights `[S, out, in]`: training does all steps as one batched product, serving takes
/// one step at a time.
#[derive(Debug)]
pub struct StepLinear {
    pub weight: Tensor,
    pub lora: Option<LoraPair>,
}

impl StepLinear {
    pub fn new(weight: Tensor) -> Self {
        Self { weight, lora: None }
    }

    /// Every step on its own rows: `[S, N, in] -> [S, N, out]`. The operands are contiguous per step; a strided layout
    /// makes one product per row out of this (performance.md).
    pub fn forward_all(&self, x: &Tensor) -> Tensor {
        let y = products(x, &self.weight);
        match active(&self.lora) {
            None => y,
            Some(p) => y + products(&products(x, &p.a), &p.b) * p.scaling,
        }
    }

    /// Every step on the same rows: `[N, in] -> [S, N, out]`.
    pub fn forward_shared(&self, x: &Tensor) -> Tensor {
        let steps = self.weight.size()[0];
        let (n, width) = x.size2().expect("rows by width");
        self.forward_all(&x.unsqueeze(0).expand([steps, n, width], false))
    }

    /// One step: `[.., in] -> [.., out]`.
    pub fn forward_step(&self, step: i64, x: &Tensor) -> Tensor {
        let y = product(x, &self.weight.select(0, step));
        match active(&self.lora) {
            None => y,
            Some(p) => y + low_rank(x, &p.a.select(0, step), &p.b.select(0, step)) * p.scaling,
        }
    }
}
