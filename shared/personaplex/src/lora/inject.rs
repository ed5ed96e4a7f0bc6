use nn::LoraPair;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Tensor};
use weights::lora::{Half, Site, sites};

use super::{Adapter, LoraConfig, Trained};
use crate::{Lm, PersonaplexError};

/// One trainable tensor. It shares its storage with the model: update it in place, with gradients off.
#[derive(Debug)]
pub struct Param {
    /// `<module>.lora_A.weight`, `<module>.lora_B.weight` or the published name of a tensor of the model; `*` for the step
    /// where the tensors of all depformer steps are stacked in this one.
    pub name: String,
    pub tensor: Tensor,
}

impl Param {
    pub(crate) fn of(name: impl Into<String>, tensor: &Tensor) -> Self {
        Self { name: name.into(), tensor: tensor.shallow_clone() }
    }

    /// True for the B half.
    pub fn is_b(&self) -> bool {
        self.name.ends_with("lora_B.weight")
    }
}

impl Lm {
    /// Adds fresh adapters in f32: A uniform in +-1/sqrt(in) from the seed, B zero, so the model's output does not change.
    /// Embedding tables, if they are trained, start as the base's, in f32 too. All these require gradients; everything
    /// else stays frozen.
    pub fn add_lora(&mut self, config: &LoraConfig, seed: u64) -> Result<(), PersonaplexError> {
        config.validate()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let device = self.device;
        let tables = |_: &str, base: &Tensor| base.to_kind(Kind::Float);
        self.set_lora(config, true, tables, |site| {
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
        let tables = |name: &str, _: &Tensor| adapter.table(name).to_device(device).to_kind(kind);
        self.set_lora(adapter.config(), trainable, tables, |site| {
            let (a, b) = adapter.stacked(site);
            (a.to_device(device).to_kind(kind), b.to_device(device).to_kind(kind))
        })
    }

    /// `table` gives a trained table from its name and the base's, `make` `[S, rank, in]` and `[S, out, rank]`.
    fn set_lora(
        &mut self,
        config: &LoraConfig,
        trainable: bool,
        table: impl Fn(&str, &Tensor) -> Tensor,
        mut make: impl FnMut(&Site) -> (Tensor, Tensor),
    ) -> Result<(), PersonaplexError> {
        match self.trained {
            Trained::Nothing if self.shelf.is_empty() => {}
            Trained::Nothing | Trained::Adapters(_) => return Err(PersonaplexError::AdapterPresent),
            Trained::Everything => return Err(PersonaplexError::WholeModel { what: "an adapter" }),
        }
        let leaf = |t: Tensor| t.copy().set_requires_grad(trainable);
        let sites = sites(&self.config, config.skip_depformer);
        for (site, slot) in sites.iter().zip(self.slots()) {
            let (mut a, mut b) = make(site);
            if !site.per_step {
                (a, b) = (a.squeeze_dim(0), b.squeeze_dim(0));
            }
            *slot = Some(LoraPair { a: leaf(a), b: leaf(b), scaling: config.scaling });
        }
        if config.embeddings {
            let tables = self.tables().into_iter().map(|(name, t)| leaf(table(&name, t.base())));
            let tables: Vec<Tensor> = tables.collect();
            self.tables_mut().into_iter().zip(tables).for_each(|(slot, t)| slot.replace(Some(t)));
        }
        self.trained = Trained::Adapters(config.clone());
        self.revision += 1;
        Ok(())
    }

    /// Removes the adapters; embedding tables are the base's again.
    pub fn remove_lora(&mut self) {
        if matches!(self.trained, Trained::Adapters(_)) {
            self.slots().into_iter().for_each(|slot| *slot = None);
            self.tables_mut().into_iter().for_each(|table| table.replace(None));
            self.trained = Trained::Nothing;
            self.revision += 1;
        }
    }

    /// What is trained of the model, or was.
    pub fn trained(&self) -> &Trained {
        &self.trained
    }

    /// Shape of the adapters on the model.
    pub fn lora_config(&self) -> Option<&LoraConfig> {
        match &self.trained {
            Trained::Adapters(config) => Some(config),
            Trained::Nothing | Trained::Everything => None,
        }
    }

    /// The tensors that are trained in a fixed order: of adapters A then B per site, then the embedding tables if they
    /// are trained; else every tensor of the model, or none.
    pub fn trainable(&self) -> Vec<Param> {
        let config = match &self.trained {
            Trained::Nothing => return Vec::new(),
            Trained::Everything => return self.parameters(),
            Trained::Adapters(config) => config,
        };
        let mut params = Vec::new();
        for (site, pair) in sites(&self.config, config.skip_depformer).iter().zip(self.pairs()) {
            for (half, tensor) in [(Half::A, &pair.a), (Half::B, &pair.b)] {
                params.push(Param::of(half.name(&site.module), tensor));
            }
        }
        params.extend(self.trained_tables());
        params
    }

    /// The adapters as a value of their own, copied.
    pub fn adapter(&self) -> Result<Adapter, PersonaplexError> {
        let config = self.lora_config().ok_or(PersonaplexError::NoAdapter)?;
        let sites = sites(&self.config, config.skip_depformer);
        Ok(Adapter::collect(config, sites.iter().zip(self.pairs()), self.trained_tables()))
    }

    fn trained_tables(&self) -> Vec<Param> {
        let tables = self.tables().into_iter();
        tables.filter_map(|(name, table)| Some(Param::of(name, table.trained()?))).collect()
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
    pub(super) fn slots(&mut self) -> Vec<&mut Option<LoraPair>> {
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
