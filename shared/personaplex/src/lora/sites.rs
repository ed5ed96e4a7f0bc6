use weights::LmConfig;

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
}

/// Every site of a model in a fixed order: temporal layers, text head, then unless skipped the depformer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use weights::{ModelConfig, WeightsError};

    #[test]
    fn the_7b_has_the_published_parameter_counts() -> Result<(), WeightsError> {
        let lm = ModelConfig::preset("personaplex-7b")?.lm;
        let count = |skip| {
            sites(&lm, skip).iter().map(|s| s.steps * 128 * (s.inputs + s.outputs)).sum::<i64>() as f64 / 1e6
        };
        assert!((count(true) - 277.2).abs() < 0.1);
        assert!((count(false) - 498.5).abs() < 0.1);
        assert_eq!(sites(&lm, false).iter().map(|s| 2 * s.steps).sum::<i64>(), 1090);
        Ok(())
    }
}
