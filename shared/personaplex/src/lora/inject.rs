use nn::LoraPair;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Tensor};
use weights::lora::{Half, Site, sites};

use super::{Adapter, LoraConfig};
use crate::{Lm, PersonaplexError};

/// One trainable tensor. It shares its storage with the model: update it in place, with gradients off.
#[derive(Debug)]
pub struct Param {
    /// `<module>.lora_A.weight` or `<module>.lora_B.weight`; `*` in per-step modules.
    pub name: String,
    pub tensor: Tensor,
}

impl Param {
    /// True for the B half.
    pub fn is_b(&self) -> bool {
        self.name.ends_with("lora_B.weight")
    }
}

impl Lm {
    /// Adds fresh adapters in f32: A uniform in +-1/sqrt(in) from the seed, B zero, so the model's output does not change.
    /// Both require gradients; everything else stays frozen.
    pub fn add_lora(&mut self, config: &LoraConfig, seed: u64) -> Result<(), PersonaplexError> {
        config.validate()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let device = self.device;
        self.set_lora(config, true, |site| {
            let bound = 1.0 / (site.inputs as f32).sqrt();
            let count = site.steps * config.rank * site.inputs;
            let values: Vec<f32> = (0..count).map(|_| rng.random_range(-bound..bound)).collect();
            let a = Tensor::from_slice(&values).view([site.steps, config.rank, site.inputs]);
            let b = Tensor::zeros([site.steps, site.outputs, config.rank], (Kind::Float, device));
            (a.to_device(device), b)
        })
    }

    /// Puts a stored adapter on the model, trainable, in f32.
    pub fn set_adapter(&mut self, adapter: &Adapter) -> Result<(), PersonaplexError> {
        self.put_adapter(adapter, Kind::Float, true)
    }

    /// Puts a stored adapter on the model for serving, frozen, in the model's kind.
    pub fn apply_adapter(&mut self, adapter: &Adapter) -> Result<(), PersonaplexError> {
        self.put_adapter(adapter, self.kind, false)
    }

    fn put_adapter(
        &mut self,
        adapter: &Adapter,
        kind: Kind,
        trainable: bool,
    ) -> Result<(), PersonaplexError> {
        adapter.check(&self.config)?;
        let device = self.device;
        self.set_lora(adapter.config(), trainable, |site| {
            let (a, b) = adapter.stacked(site);
            (a.to_device(device).to_kind(kind), b.to_device(device).to_kind(kind))
        })
    }

    /// `make` gives `[S, rank, in]` and `[S, out, rank]`.
    fn set_lora(
        &mut self,
        config: &LoraConfig,
        trainable: bool,
        mut make: impl FnMut(&Site) -> (Tensor, Tensor),
    ) -> Result<(), PersonaplexError> {
        if self.adapter.is_some() {
            return Err(PersonaplexError::AdapterPresent);
        }
        let sites = sites(&self.config, config.skip_depformer);
        for (site, slot) in sites.iter().zip(self.slots()) {
            let (mut a, mut b) = make(site);
            if !site.per_step {
                (a, b) = (a.squeeze_dim(0), b.squeeze_dim(0));
            }
            let leaf = |t: Tensor| t.copy().set_requires_grad(trainable);
            *slot = Some(LoraPair { a: leaf(a), b: leaf(b), scaling: config.scaling });
        }
        self.adapter = Some(config.clone());
        self.revision += 1;
        Ok(())
    }

    /// Removes the adapters.
    pub fn remove_lora(&mut self) {
        self.slots().into_iter().for_each(|slot| *slot = None);
        self.adapter = None;
        self.revision += 1;
    }

    /// Shape of the adapters on the model.
    pub fn lora_config(&self) -> Option<&LoraConfig> {
        self.adapter.as_ref()
    }

    /// The adapter tensors in a fixed order (A then B per site); empty without adapters.
    pub fn trainable(&self) -> Vec<Param> {
        let Some(config) = &self.adapter else { return Vec::new() };
        let mut params = Vec::new();
        for (site, pair) in sites(&self.config, config.skip_depformer).iter().zip(self.pairs()) {
            for (half, tensor) in [(Half::A, &pair.a), (Half::B, &pair.b)] {
                params.push(Param { name: half.name(&site.module), tensor: tensor.shallow_clone() });
            }
        }
        params
    }

    /// The adapters as a value of their own, copied.
    pub fn adapter(&self) -> Result<Adapter, PersonaplexError> {
        let config = self.adapter.as_ref().ok_or(PersonaplexError::NoAdapter)?;
        let sites = sites(&self.config, config.skip_depformer);
        Ok(Adapter::collect(config, sites.iter().zip(self.pairs())))
    }

    fn pairs(&self) -> Vec<&LoraPair> {
        let mut slots = Vec::new();
        for l in &self.temporal.layers {
            slots.extend([&l.in_proj.lora, &l.out_proj.lora, &l.linear_in.lora, &l.linear_out.lora]);
        }
        slots.push(&self.text_linear.lora);
        slots.push(&self.depformer.input.lora);
        for l in &self.depformer.layers {
            slots.extend([&l.in_proj.lora, &l.out_proj.lora, &l.linear_in.lora, &l.linear_out.lora]);
        }
        slots.push(&self.depformer.output.lora);
        slots.into_iter().flatten().collect()
    }

    /// Where adapters sit, in the order of [`sites`]; the depformer's come last.
    fn slots(&mut self) -> Vec<&mut Option<LoraPair>> {
        let mut slots = Vec::new();
        for l in &mut self.temporal.layers {
            slots.extend([
                &mut l.in_proj.lora,
                &mut l.out_proj.lora,
                &mut l.linear_in.lora,
                &mut l.linear_out.lora,
            ]);
        }
        slots.push(&mut self.text_linear.lora);
        slots.push(&mut self.depformer.input.lora);
        for l in &mut self.depformer.layers {
            slots.extend([
                &mut l.in_proj.lora,
                &mut l.out_proj.lora,
                &mut l.linear_in.lora,
                &mut l.linear_out.lora,
            ]);
        }
        slots.push(&mut self.depformer.output.lora);
        slots
    }
}
