//! AdamW with f32 masters (finetune.md 6.2), on tensors so that its state can be saved and beta1 set at every step.

use std::collections::HashMap;
use std::path::Path;

use domain::run::OptimSpec;
use personaplex::Param;
use tch::{Kind, Tensor, no_grad};

use crate::TrainError;

/// One trainable tensor with its state, all of the same shape; state in f32.
#[derive(Debug)]
struct Slot {
    param: Param,
    /// The parameter itself when it is f32, else what it is rounded from.
    master: Tensor,
    m: Tensor,
    v: Tensor,
    /// Gradients of earlier micro-batches of the update, where those of the parameter are not f32.
    sum: Option<Tensor>,
}

/// The optimizer.
#[derive(Debug)]
pub struct AdamW {
    slots: Vec<Slot>,
    weight_decay: f64,
    beta2: f64,
    eps: f64,
    /// Share of `lora_B` taken away at every update.
    b_decay: f64,
    updates: u32,
}

/// Gradients in f32, one a parameter; zero where the loss does not depend on it.
#[derive(Debug)]
pub struct Gradients {
    /// In the order of the parameters. Those of f32 parameters share their storage.
    pub tensors: Vec<Tensor>,
}

/// What L2 on `lora_B` adds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct L2 {
    /// Weight times the sum of squares.
    pub loss: f64,
    /// Norm of its gradient.
    pub gradient_norm: f64,
}

impl AdamW {
    /// Starts with empty moments.
    #[must_use]
    pub fn new(params: Vec<Param>, spec: &OptimSpec, b_decay: f64) -> Self {
        let slots = params
            .into_iter()
            .map(|param| {
                let own = param.tensor.detach();
                let master = if own.kind() == Kind::Float { own } else { own.to_kind(Kind::Float) };
                let (m, v) = (master.zeros_like(), master.zeros_like());
                Slot { param, master, m, v, sum: None }
            })
            .collect();
        let (weight_decay, beta2, eps) = (spec.weight_decay, spec.betas.1, spec.eps);
        Self { slots, weight_decay, beta2, eps, b_decay, updates: 0 }
    }

    /// Trainable numbers.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.slots.iter().map(|s| s.master.numel() as u64).sum()
    }

    /// Updates so far; skipped steps are none.
    #[must_use]
    pub const fn updates(&self) -> u32 {
        self.updates
    }

    /// Forgets the gradients.
    pub fn zero_grad(&mut self) {
        for slot in &mut self.slots {
            slot.param.tensor.zero_grad();
            slot.sum = None;
        }
    }

    /// Adds the gradients so far up in f32, for parameters whose own are not: bf16 would lose what many micro-batches add.
    pub fn take_off(&mut self) {
        no_grad(|| {
            for slot in self.slots.iter_mut().filter(|s| s.param.tensor.kind() != Kind::Float) {
                let grad = slot.param.tensor.grad();
                if !grad.defined() {
                    continue;
                }
                match &mut slot.sum {
                    Some(sum) => drop(sum.g_add_(&grad.to_kind(Kind::Float))),
                    None => slot.sum = Some(grad.to_kind(Kind::Float)),
                }
                slot.param.tensor.zero_grad();
            }
        });
    }

    /// Rounds what has been added up so far to bf16, as a trainer with bf16 gradients has it.
    pub fn round_gradients(&self) {
        no_grad(|| {
            for slot in &self.slots {
                let mut grad = slot.param.tensor.grad();
                if grad.defined() {
                    let rounded = grad.to_kind(Kind::BFloat16);
                    grad.copy_(&rounded);
                }
            }
        });
    }

    /// The gradients of the last backward passes.
    #[must_use]
    pub fn gradients(&self) -> Gradients {
        let of = |slot: &Slot| {
            let grad = slot.param.tensor.grad();
            let own = grad.defined().then(|| grad.detach().to_kind(Kind::Float));
            match (own, &slot.sum) {
                (Some(own), Some(sum)) => own + sum,
                (Some(own), None) => own,
                (None, Some(sum)) => sum.shallow_clone(),
                (None, None) => slot.master.zeros_like(),
            }
        };
        Gradients { tensors: no_grad(|| self.slots.iter().map(of).collect()) }
    }

    /// Norm of every `lora_B`, with its name.
    #[must_use]
    pub fn b_norms(&self) -> Vec<(&str, f64)> {
        let b: Vec<&Slot> = self.slots.iter().filter(|s| s.param.is_b()).collect();
        let norms = norms(b.iter().map(|s| &s.master));
        b.iter().map(|s| s.param.name.as_str()).zip(norms).collect()
    }

    /// Names of the parameters whose gradient is zero, given the norms of all.
    #[must_use]
    pub fn without_gradient(&self, norms: &[f64]) -> Vec<String> {
        let dead = self.slots.iter().zip(norms).filter(|(_, norm)| **norm == 0.0);
        dead.map(|(slot, _)| slot.param.name.clone()).collect()
    }

    /// Adds the gradient `2 weight B` of `weight * sum of squares of lora_B`. `b_norms` are those of [`Self::b_norms`].
    pub fn add_l2(&self, gradients: &mut Gradients, weight: f64, b_norms: &[(&str, f64)]) -> L2 {
        if weight <= 0.0 {
            return L2::default();
        }
        no_grad(|| {
            for (slot, gradient) in self.slots.iter().zip(&mut gradients.tensors) {
                if slot.param.is_b() {
                    let _ = gradient.g_add_(&(&slot.master * (2.0 * weight)));
                }
            }
        });
        let squares: f64 = b_norms.iter().map(|(_, n)| n * n).sum();
        L2 { loss: weight * squares, gradient_norm: 2.0 * weight * squares.sqrt() }
    }

    /// One update with gradients scaled by `clip`.
    pub fn step(&mut self, gradients: &Gradients, lr: f64, beta1: f64, clip: f64) {
        self.updates += 1;
        let t = i32::try_from(self.updates).unwrap_or(i32::MAX);
        let (c1, c2) = (1.0 - beta1.powi(t), (1.0 - self.beta2.powi(t)).sqrt());
        let (decay, beta2, eps, b_decay) = (1.0 - lr * self.weight_decay, self.beta2, self.eps, self.b_decay);
        no_grad(|| {
            for (slot, grad) in self.slots.iter_mut().zip(&gradients.tensors) {
                let grad = grad * clip;
                let _ = slot.m.g_mul_scalar_(beta1).g_add_(&(&grad * (1.0 - beta1)));
                let _ = slot.v.g_mul_scalar_(beta2).g_add_(&(grad.square() * (1.0 - beta2)));
                let direction = &slot.m / (slot.v.sqrt() / c2 + eps);
                let _ = slot.master.g_mul_scalar_(decay).g_sub_(&(direction * (lr / c1)));
                if b_decay > 0.0 && slot.param.is_b() {
                    let _ = slot.master.g_mul_scalar_(1.0 - b_decay);
                }
                if slot.param.tensor.kind() != Kind::Float {
                    slot.param.tensor.copy_(&slot.master);
                }
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

    /// Takes up a saved state after `updates` updates.
    ///
    /// # Errors
    /// When a tensor is missing, is too many or has another shape.
    pub fn restore(
        &mut self,
        saved: Vec<(String, Tensor)>,
        updates: u32,
        path: &Path,
    ) -> Result<(), TrainError> {
        let mut saved: HashMap<_, _> = saved.into_iter().collect();
        let bad = |detail: String| TrainError::Checkpoint { path: path.into(), detail };
        no_grad(|| {
            for slot in &mut self.slots {
                let name = &slot.param.name;
                for (kind, target) in [("master", &mut slot.master), ("m", &mut slot.m), ("v", &mut slot.v)] {
                    let key = format!("{kind}.{name}");
                    let tensor = saved.remove(&key).ok_or_else(|| bad(format!("tensor {key} is missing")))?;
                    if tensor.size() != target.size() {
                        let (found, wanted) = (tensor.size(), target.size());
                        return Err(bad(format!("{key} is {found:?}, expected {wanted:?}")));
                    }
                    target.copy_(&tensor);
                }
                if slot.param.tensor.kind() != Kind::Float {
                    slot.param.tensor.copy_(&slot.master);
                }
            }
            Ok(())
        })?;
        if let Some(extra) = saved.keys().next() {
            return Err(bad(format!("unexpected tensor {extra}")));
        }
        self.updates = updates;
        Ok(())
    }
}

impl Gradients {
    /// Norm of each tensor.
    #[must_use]
    pub fn norms(&self) -> Vec<f64> {
        norms(self.tensors.iter())
    }

    /// Global norm.
    #[must_use]
    pub fn norm(&self) -> f64 {
        root_of_squares(&self.norms())
    }
}

/// Norm of what has parts of these norms.
#[must_use]
pub fn root_of_squares(norms: &[f64]) -> f64 {
    norms.iter().map(|n| n * n).sum::<f64>().sqrt()
}

/// Norms of all tensors with one transfer from the device.
fn norms<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<f64> {
    let norms: Vec<Tensor> = no_grad(|| tensors.map(|t| t.norm().to_kind(Kind::Double)).collect());
    if norms.is_empty() {
        return Vec::new();
    }
    Vec::try_from(Tensor::stack(&norms, 0)).expect("a flat tensor of doubles")
}
