use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use nn::{LoraPair, NnError, dtype_of, kind_of, tensor_bytes};
use tch::Tensor;
use weights::lora::{
    AdapterFile, AdapterMeta, Half, Layout, LoraConfig, Site, adapter_inventory, save_adapter,
};
use weights::{Dtype, LmConfig};

use super::Param;
use crate::PersonaplexError;

/// Adapter tensors apart from a model, by kyutai's names, one pair per linear and depformer step, and the embedding tables
/// if they were trained.
#[derive(Debug)]
pub struct Adapter {
    config: LoraConfig,
    meta: AdapterMeta,
    pub(super) tensors: BTreeMap<String, Tensor>,
}

impl Adapter {
    /// Copies pairs and trained tables off a model.
    pub(super) fn collect<'a>(
        config: &LoraConfig,
        pairs: impl Iterator<Item = (&'a Site, &'a LoraPair)>,
        tables: Vec<Param>,
    ) -> Self {
        let mut tensors: BTreeMap<String, Tensor> =
            tables.into_iter().map(|t| (t.name, t.tensor.detach().copy())).collect();
        for (site, pair) in pairs {
            for step in 0..site.steps {
                let module = site.module_of(step);
                for (half, t) in [(Half::A, &pair.a), (Half::B, &pair.b)] {
                    let one = if site.per_step { t.select(0, step) } else { t.shallow_clone() };
                    tensors.insert(half.name(&module), one.detach().copy());
                }
            }
        }
        Self { config: config.clone(), meta: AdapterMeta::default(), tensors }
    }

    /// Reads an adapter directory, kyutai's or PEFT's, for the model `lm`; see [`AdapterFile::open`].
    pub fn load(dir: &Path, lm: &LmConfig) -> Result<Self, PersonaplexError> {
        Self::read(&AdapterFile::open(dir, lm)?, lm)
    }

    /// Copies the tensors of an opened file into memory, in its type.
    pub fn read(file: &AdapterFile, lm: &LmConfig) -> Result<Self, PersonaplexError> {
        let kind = kind_of(file.dtype()).expect("adapters are f32, bf16 or f16");
        let mut tensors = BTreeMap::new();
        for spec in adapter_inventory(lm, file.config()) {
            let tensor = Tensor::f_from_data_size(file.tensor(&spec.name)?, &spec.shape, kind)?;
            tensors.insert(spec.name, tensor);
        }
        Ok(Self { config: file.config().clone(), meta: file.meta().clone(), tensors })
    }

    /// Writes an adapter directory that the reference server loads (`--lora-weight`, `--config-path`).
    pub fn save(&self, dir: &Path, lm: &LmConfig, meta: &AdapterMeta) -> Result<(), PersonaplexError> {
        self.save_as(Layout::Kyutai, dir, lm, meta)
    }

    /// Writes an adapter directory in the given layout; see [`save_adapter`].
    pub fn save_as(
        &self,
        layout: Layout,
        dir: &Path,
        lm: &LmConfig,
        meta: &AdapterMeta,
    ) -> Result<(), PersonaplexError> {
        self.check(lm)?;
        let dtype = self.tensors.values().next().map_or(Ok(Dtype::F32), dtype_of)?;
        save_adapter(dir, layout, lm, (&self.config, meta, dtype), |spec| {
            Ok::<_, PersonaplexError>(Cow::Owned(tensor_bytes(&self.tensors[&spec.name])?))
        })
    }

    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    pub fn meta(&self) -> &AdapterMeta {
        &self.meta
    }

    /// See [`AdapterMeta::check_base`]; `base_sha256` is [`weights::checkpoint_sha256`] of the model it goes on.
    ///
    /// # Errors
    /// When the adapter names another base.
    pub fn check_base(&self, base_sha256: &str) -> Result<bool, PersonaplexError> {
        Ok(self.meta.check_base(base_sha256)?)
    }

    /// Fails unless the adapter has exactly the tensors that `lm` needs.
    pub(super) fn check(&self, lm: &LmConfig) -> Result<(), PersonaplexError> {
        let wanted = adapter_inventory(lm, &self.config);
        for spec in &wanted {
            let found = self.tensors.get(&spec.name).map(Tensor::size).unwrap_or_default();
            if found != spec.shape {
                let (name, wanted) = (spec.name.clone(), spec.shape.clone());
                return Err(NnError::Shape { name, wanted, found }.into());
            }
        }
        match self.tensors.keys().find(|name| !wanted.iter().any(|s| s.name == **name)) {
            None => Ok(()),
            Some(name) => Err(NnError::Shape {
                name: name.clone(),
                wanted: Vec::new(),
                found: self.tensors[name].size(),
            }
            .into()),
        }
    }

    /// A trained embedding table by name; [`Adapter::check`] was passed.
    pub(super) fn table(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }

    /// A `[S, rank, in]` and B `[S, out, rank]` of a site.
    pub(super) fn stacked(&self, site: &Site) -> (Tensor, Tensor) {
        let all = |half: Half| {
            let steps = (0..site.steps).map(|s| &self.tensors[&half.name(&site.module_of(s))]);
            Tensor::stack(&steps.collect::<Vec<_>>(), 0)
        };
        (all(Half::A), all(Half::B))
    }
}
