use super::LoraConfig;
use crate::{LmConfig, TensorSpec, lm_inventory};

/// One of the two matrices of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// `[rank, in]`, applied first.
    A,
    /// `[out, rank]`, zero at the start of training.
    B,
}

impl Half {
    /// Both, in file order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Name of this half of a module's adapter.
    pub fn name(self, module: &str) -> String {
        format!("{module}.lora_{self:?}.weight")
    }
}

/// One linear (or one linear per depformer step) that can carry an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Module name as kyutai's adapters spell it; `*` stands for the step of a per-step linear.
    pub module: String,
    /// Copies: 1, or one per depformer step.
    pub steps: i64,
    pub per_step: bool,
    pub inputs: i64,
    pub outputs: i64,
    /// Tensor of the checkpoint holding the weight; `*` as in `module`. Without `*` the steps are stacked on its rows.
    pub tensor: String,
}

impl Site {
    /// Module name of one step.
    pub fn module_of(&self, step: i64) -> String {
        self.module.replace('*', &step.to_string())
    }

    /// Checkpoint tensor of one step and the row its block starts at.
    pub fn block(&self, step: i64) -> (String, i64) {
        if self.tensor.contains('*') {
            (self.tensor.replace('*', &step.to_string()), 0)
        } else {
            (self.tensor.clone(), step * self.outputs)
        }
    }

    /// Shape of one half of one step.
    pub fn shape(&self, half: Half, rank: i64) -> [i64; 2] {
        match half {
            Half::A => [rank, self.inputs],
            Half::B => [self.outputs, rank],
        }
    }
}

/// Every site of a model in a fixed order: temporal layers, text head, then unless skipped the depformer. Embeddings and
/// norms carry no adapters.
pub fn sites(c: &LmConfig, skip_depformer: bool) -> Vec<Site> {
    let mut out = Vec::new();
    let mut one = |module: String, tensor: String, outputs: i64, inputs: i64| {
        out.push(Site { module, tensor, steps: 1, per_step: false, inputs, outputs });
    };
    for l in 0..c.num_layers {
        let p = format!("transformer.layers.{l}");
        let attn = format!("{p}.self_attn");
        one(format!("{attn}.in_projs.0"), format!("{attn}.in_proj_weight"), 3 * c.dim, c.dim);
        one(format!("{attn}.out_projs.0"), format!("{attn}.out_proj.weight"), c.dim, c.dim);
        let gate = format!("{p}.gating");
        one(format!("{gate}.linear_in"), format!("{gate}.linear_in.weight"), 2 * c.hidden(), c.dim);
        one(format!("{gate}.linear_out"), format!("{gate}.linear_out.weight"), c.dim, c.hidden());
    }
    one("text_linear".into(), "text_linear.weight".into(), c.text_card, c.dim);
    if !skip_depformer {
        depformer_sites(c, &mut out);
    }
    out
}

fn depformer_sites(c: &LmConfig, out: &mut Vec<Site>) {
    let (d, hidden) = (c.depformer_dim, c.depformer_hidden());
    let mut many = |module: String, tensor: String, outputs: i64, inputs: i64| {
        out.push(Site { module, tensor, steps: c.dep_q, per_step: true, inputs, outputs });
    };
    many("depformer_in.*".into(), "depformer_in.*.weight".into(), d, c.dim);
    for l in 0..c.depformer_num_layers {
        let p = format!("depformer.layers.{l}");
        let attn = format!("{p}.self_attn");
        many(format!("{attn}.in_projs.*"), format!("{attn}.in_proj_weight"), 3 * d, d);
        many(format!("{attn}.out_projs.*"), format!("{attn}.out_proj.weight"), d, d);
        let gate = format!("{p}.gating.*");
        many(format!("{gate}.linear_in"), format!("{gate}.linear_in.weight"), 2 * hidden, d);
        many(format!("{gate}.linear_out"), format!("{gate}.linear_out.weight"), d, hidden);
    }
    many("linears.*".into(), "linears.*.weight".into(), c.card, d);
}

/// The embedding tables of a model, which [`LoraConfig::embeddings`] trains beside the adapters: everything that has `emb`
/// in its name. The checkpoint, kyutai's and PEFT's files agree on these names.
pub fn embedding_tables(c: &LmConfig) -> Vec<TensorSpec> {
    lm_inventory(c).into_iter().filter(|spec| spec.name.contains("emb")).collect()
}

/// Names (kyutai's) and shapes of an adapter's tensors, in name order.
pub fn adapter_inventory(c: &LmConfig, lora: &LoraConfig) -> Vec<TensorSpec> {
    let mut specs = Vec::new();
    for site in sites(c, lora.skip_depformer) {
        for step in 0..site.steps {
            let module = site.module_of(step);
            for half in Half::BOTH {
                let shape = site.shape(half, lora.rank).to_vec();
                specs.push(TensorSpec { name: half.name(&module), shape });
            }
        }
    }
    if lora.embeddings {
        specs.extend(embedding_tables(c));
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelConfig, WeightsError};

    /// Tensors and parameters of an adapter of the published model.
    fn count(rank: i64, skip_depformer: bool) -> Result<(usize, i64), WeightsError> {
        let lm = ModelConfig::preset("personaplex-7b")?.lm;
        let specs = adapter_inventory(&lm, &LoraConfig { rank, skip_depformer, ..LoraConfig::default() });
        Ok((specs.len(), specs.iter().map(|s| s.shape.iter().product::<i64>()).sum()))
    }

    #[test]
    fn the_7b_has_the_published_parameter_counts_at_every_rank() -> Result<(), WeightsError> {
        // Inputs plus outputs of every linear, by the shape table of the checkpoint.
        let layer = (4096 + 12288) + (4096 + 4096) + (4096 + 22528) + (11264 + 4096);
        let backbone = 32 * layer + (4096 + 32000);
        let step = (1024 + 3072) + (1024 + 1024) + (1024 + 5632) + (2816 + 1024);
        let depformer = 16 * ((4096 + 1024) + 6 * step + (1024 + 2048));
        for (rank, millions_all, millions_backbone) in
            [(32, 124.6, 69.3), (64, 249.2, 138.6), (128, 498.5, 277.2)]
        {
            assert_eq!(count(rank, false)?, (1090, rank * (backbone + depformer)));
            assert_eq!(count(rank, true)?, (258, rank * backbone));
            // The published figures have one digit after the point, cut off or rounded.
            let near = |n: i64, millions: f64| (n as f64 / 1e6 - millions).abs() < 0.06;
            assert!(
                near(count(rank, false)?.1, millions_all) && near(count(rank, true)?.1, millions_backbone)
            );
        }
        assert_eq!((count(128, false)?.1, count(128, true)?.1), (498_499_584, 277_250_048));
        Ok(())
    }

    #[test]
    fn the_7b_has_the_published_number_of_embedding_parameters() -> Result<(), WeightsError> {
        let lm = ModelConfig::preset("personaplex-7b")?.lm;
        let count: i64 = embedding_tables(&lm).iter().map(|s| s.shape.iter().product::<i64>()).sum();
        // 16 audio tables and one of text for the backbone, 15 and one for the depformer.
        let tables = |width: i64, audio: i64| (audio * 2049 + 32_001) * width;
        assert_eq!(count, tables(4096, 16) + tables(1024, 15));
        assert!((count as f64 / 1e6 - 330.0).abs() < 1.0, "{count}");
        let config = LoraConfig { embeddings: true, ..LoraConfig::default() };
        assert_eq!(adapter_inventory(&lm, &config).len(), 258 + 33);
        Ok(())
    }

    #[test]
    fn the_blocks_of_all_sites_tile_the_linears_of_the_checkpoint() -> Result<(), WeightsError> {
        for preset in crate::preset_names() {
            let lm = ModelConfig::preset(preset)?.lm;
            let mut rows = std::collections::BTreeMap::new();
            for site in sites(&lm, false) {
                for step in 0..site.steps {
                    let (tensor, first) = site.block(step);
                    let seen = rows.entry(tensor).or_insert((0, site.inputs));
                    assert_eq!((first, site.inputs), *seen, "{}", site.module_of(step));
                    seen.0 += site.outputs;
                }
            }
            for spec in crate::lm_inventory(&lm) {
                if spec.shape.len() == 2 && !spec.name.contains("emb") {
                    assert_eq!(
                        rows.remove(&spec.name),
                        Some((spec.shape[0], spec.shape[1])),
                        "{}",
                        spec.name
                    );
                }
            }
            assert!(rows.is_empty(), "{rows:?} are not in the checkpoint");
        }
        Ok(())
    }
}
