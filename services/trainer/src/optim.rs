//! AdamW with f32 masters (finetune.md 6.2), on tensors so that its state can be saved and beta1 set at every step.

use personaplex::Param;
use tch::{Kind, Tensor, no_grad};

use crate::TrainError;

const BETA2: f64 = 0.95;
const EPS: f64 = 1e-8;

/// One trainable tensor with its state, all `[…]` of the same shape; state in f32.
#[derive(Debug)]
struct Slot {
    param: Param,
    master: Tensor,
    m: Tensor,
    v: Tensor,
}

/// The optimizer.
#[derive(Debug)]
pub struct AdamW {
    slots: Vec<Slot>,
    weight_decay: f64,
    updates: i32,
}

impl AdamW {
    /// Starts with empty moments.
    #[must_use]
    pub fn new(params: Vec<Param>, weight_decay: f64) -> Self {
        let slots = params
            .into_iter()
            .map(|param| {
                let master = no_grad(|| param.tensor.detach().to_kind(Kind::Float).copy());
                let (m, v) = (master.zeros_like(), master.zeros_like());
                Slot { param, master, m, v }
            })
            .collect();
        Self { slots, weight_decay, updates: 0 }
    }

    /// Trainable numbers.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.slots.iter().map(|s| s.master.numel() as u64).sum()
    }

    /// Forgets the gradients.
    pub fn zero_grad(&mut self) {
        for slot in &mut self.slots {
            slot.param.tensor.zero_grad();
        }
    }

    /// Sum of the squares of all `lora_B`, with gradient.
    #[must_use]
    pub fn squared_b(&self) -> Option<Tensor> {
        self.slots
            .iter()
            .filter(|s| s.param.is_b())
            .map(|s| s.param.tensor.to_kind(Kind::Float).square().sum(Kind::Float))
            .reduce(|a, b| a + b)
    }

    /// Global norm of the gradients, in f32; parameters without a gradient count as zero.
    #[must_use]
    pub fn grad_norm(&self) -> f64 {
        no_grad(|| {
            self.slots
                .iter()
                .filter_map(Slot::grad)
                .map(|g| g.square().sum(Kind::Double).double_value(&[]))
                .sum::<f64>()
                .sqrt()
        })
    }

    /// One update with gradients scaled by `clip`.
    pub fn step(&mut self, lr: f64, beta1: f64, clip: f64) {
        self.updates += 1;
        let (c1, c2) = (1.0 - beta1.powi(self.updates), (1.0 - BETA2.powi(self.updates)).sqrt());
        let decay = 1.0 - lr * self.weight_decay;
        no_grad(|| {
            for slot in &mut self.slots {
                let Some(grad) = slot.grad() else { continue };
                let grad = grad * clip;
                slot.m = &slot.m * beta1 + &grad * (1.0 - beta1);
                slot.v = &slot.v * BETA2 + grad.square() * (1.0 - BETA2);
                let direction = &slot.m / (slot.v.sqrt() / c2 + EPS);
                slot.master = &slot.master * decay - direction * (lr / c1);
                slot.param.tensor.copy_(&slot.master);
            }
        });
    }

    /// State as named tensors: `master.*`, `m.*`, `v.*`.
    #[must_use]
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.slots
            .iter()
            .flat_map(|s| {
                [("master", &s.master), ("m", &s.m), ("v", &s.v)]
                    .map(|(kind, tensor)| (format!("{kind}.{}", s.param.name), tensor.shallow_clone()))
            })
            .collect()
    }

    /// Takes up a saved state after `updates` steps.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape.
    pub fn restore(
        &mut self,
        saved: Vec<(String, Tensor)>,
        updates: u32,
        path: &std::path::Path,
    ) -> Result<(), TrainError> {
        let mut saved: std::collections::HashMap<_, _> = saved.into_iter().collect();
        let bad = |detail: String| TrainError::Checkpoint { path: path.into(), detail };
        no_grad(|| {
            for slot in &mut self.slots {
                let name = &slot.param.name;
                let device = slot.master.device();
                for (kind, target) in [("master", &mut slot.master), ("m", &mut slot.m), ("v", &mut slot.v)] {
                    let key = format!("{kind}.{name}");
                    let tensor = saved.remove(&key).ok_or_else(|| bad(format!("tensor {key} is missing")))?;
                    if tensor.size() != target.size() {
                        return Err(bad(format!(
                            "{key} is {:?}, expected {:?}",
                            tensor.size(),
                            target.size()
                        )));
                    }
                    *target = tensor.to_device(device).to_kind(Kind::Float);
                }
                slot.param.tensor.copy_(&slot.master);
            }
            Ok(())
        })?;
        if let Some(extra) = saved.keys().next() {
            return Err(bad(format!("unexpected tensor {extra}")));
        }
        self.updates = i32::try_from(updates).unwrap_or(i32::MAX);
        Ok(())
    }
}

impl Slot {
    fn grad(&self) -> Option<Tensor> {
        let grad = self.param.tensor.grad();
        grad.defined().then(|| grad.to_kind(Kind::Float))
    }
}
