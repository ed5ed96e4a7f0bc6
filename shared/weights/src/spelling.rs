//! Names that checkpoints in circulation use, and how the names of the inventory are read from them
//! (personaplex.md 1.2 and 3.2).

use std::fmt;

use crate::TensorSpec;

/// How a checkpoint spells the tensors of the inventory. Shapes follow from the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spelling {
    attention: Attention,
    depformer: Depformer,
    codebooks: Codebooks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attention {
    /// `in_proj_weight` and `out_proj.weight`, steps stacked on the rows: the published names.
    Stacked,
    /// `in_proj.weight`, otherwise the same: older exports.
    Module,
    /// `in_projs.{s}.weight` and `out_projs.{s}.weight`: current Moshi.
    PerStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depformer {
    /// `depformer.layers.{l}`, with `depformer_in`, `depformer_emb` and `linears` beside it: the published names.
    Layers,
    /// `depformer.{s}`, everything of one step together: the files made for candle.
    Steps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codebooks {
    /// `_initialized`, `cluster_usage`, `embedding_sum`: the published names.
    Current,
    /// `inited`, `cluster_size`, `embed_avg`.
    Average,
    /// `inited`, `cluster_size`, `embed_sum`.
    Sum,
}

/// How the tensor of one inventory name is made of tensors in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Joined on the first dimension, in this order; one tensor stands for itself.
    Rows(Vec<TensorSpec>),
    /// Copies of one tensor that must be equal.
    Copies(Vec<TensorSpec>),
}

impl Origin {
    pub(crate) fn tensors(&self) -> &[TensorSpec] {
        match self {
            Self::Rows(specs) | Self::Copies(specs) => specs,
        }
    }
}

/// A group of marks of which a checkpoint may show one.
type Marks<'a, T> = Vec<(T, Option<&'a str>)>;

impl Spelling {
    /// The names of the published PersonaPlex and Mimi files: those of the inventories.
    pub const PUBLISHED: Self =
        Self { attention: Attention::Stacked, depformer: Depformer::Layers, codebooks: Codebooks::Current };

    /// Finds the spelling from the names; two names of different spellings are the error.
    pub(crate) fn detect<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<Self, (String, String)> {
        let first = |is: &dyn Fn(&str) -> bool| names.clone().find(|n| is(n));
        let plain_out = first(&|n| n.contains("self_attn.out_proj."));
        let per_step =
            first(&|n| n.contains("self_attn.in_projs.")).or(first(&|n| n.contains("self_attn.out_projs.")));
        let attention = one_of(vec![
            (Attention::Stacked, first(&|n| n.ends_with("self_attn.in_proj_weight"))),
            (Attention::Module, first(&|n| n.ends_with("self_attn.in_proj.weight"))),
            (Attention::PerStep, per_step),
        ])?
        .unwrap_or(Attention::Stacked);
        if let (Some(a), Some(b), Attention::PerStep) = (per_step, plain_out, attention) {
            return Err((a.into(), b.into()));
        }
        let depformer = one_of(vec![
            (Depformer::Layers, first(&is_layer_name)),
            (Depformer::Steps, first(&|n| n.strip_prefix("depformer.").is_some_and(starts_with_number))),
        ])?
        .unwrap_or(Depformer::Layers);
        let book = |ends: &'static [&'static str]| {
            first(&move |n| n.rsplit_once("_codebook.").is_some_and(|(_, last)| ends.contains(&last)))
        };
        let (new, old) =
            (book(&["_initialized", "cluster_usage", "embedding_sum"]), book(&["inited", "cluster_size"]));
        let (average, sum) = (book(&["embed_avg"]), book(&["embed_sum"]));
        let codebooks = one_of(vec![
            (Codebooks::Current, new),
            (Codebooks::Average, average.or(old.filter(|_| sum.is_none()))),
            (Codebooks::Sum, sum),
        ])?
        .unwrap_or(Codebooks::Current);
        Ok(Self { attention, depformer, codebooks })
    }

    /// Where the tensor `spec` of an inventory comes from; `steps` is the number of depformer steps of the inventory.
    pub(crate) fn origin(self, spec: &TensorSpec, steps: i64) -> Origin {
        if self.depformer == Depformer::Steps
            && let Some(origin) = by_step(spec, steps)
        {
            return origin;
        }
        let Some((prefix, last)) = spec.name.rsplit_once("self_attn.") else {
            let name = self.codebook_name(&spec.name).unwrap_or_else(|| spec.name.clone());
            return Origin::Rows(vec![TensorSpec { name, shape: spec.shape.clone() }]);
        };
        let count = if prefix.starts_with("depformer.") { steps } else { 1 };
        let kind = if last.starts_with("in") { "in" } else { "out" };
        match (self.attention, kind) {
            (Attention::PerStep, _) => {
                Origin::Rows(split(spec, count, |s| format!("{prefix}self_attn.{kind}_projs.{s}.weight")))
            }
            (Attention::Module, "in") => {
                Origin::Rows(split(spec, 1, |_| format!("{prefix}self_attn.in_proj.weight")))
            }
            _ => Origin::Rows(vec![spec.clone()]),
        }
    }

    fn codebook_name(self, name: &str) -> Option<String> {
        let (prefix, last) = name.rsplit_once("_codebook.")?;
        let old = match (self.codebooks, last) {
            (Codebooks::Current, _) => return None,
            (_, "_initialized") => "inited",
            (_, "cluster_usage") => "cluster_size",
            (Codebooks::Average, "embedding_sum") => "embed_avg",
            (Codebooks::Sum, "embedding_sum") => "embed_sum",
            _ => return None,
        };
        Some(format!("{prefix}_codebook.{old}"))
    }
}

impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::PUBLISHED {
            return f.write_str("published");
        }
        let attention = match self.attention {
            Attention::Stacked => None,
            Attention::Module => Some("in_proj.weight"),
            Attention::PerStep => Some("one projection per step"),
        };
        let depformer = (self.depformer == Depformer::Steps).then_some("candle");
        let codebooks = (self.codebooks != Codebooks::Current).then_some("old codebook names");
        let words: Vec<&str> = [depformer, attention, codebooks].into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}

/// The one mark of a group that is there; two are the error.
fn one_of<T: Copy>(marks: Marks<'_, T>) -> Result<Option<T>, (String, String)> {
    let mut found = marks.into_iter().filter_map(|(value, name)| name.map(|n| (value, n)));
    match (found.next(), found.next()) {
        (Some((_, a)), Some((_, b))) => Err((a.into(), b.into())),
        (first, _) => Ok(first.map(|(value, _)| value)),
    }
}

fn starts_with_number(rest: &str) -> bool {
    rest.split('.').next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Names of the published depformer that the layout by step does not have.
fn is_layer_name(name: &str) -> bool {
    ["depformer.layers.", "depformer_in.", "depformer_emb.", "depformer_text_emb.", "linears."]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Equal blocks of rows of one tensor under names of their own. `[n*R, C] -> n of [R, C]`.
fn split(spec: &TensorSpec, count: i64, name: impl Fn(i64) -> String) -> Vec<TensorSpec> {
    let mut shape = spec.shape.clone();
    if let Some(rows) = shape.first_mut() {
        *rows /= count;
    }
    (0..count).map(|s| TensorSpec { name: name(s), shape: shape.clone() }).collect()
}

/// The layout by step: `None` for tensors outside the depformer.
fn by_step(spec: &TensorSpec, steps: i64) -> Option<Origin> {
    let same = |name: String| Some(Origin::Rows(vec![TensorSpec { name, shape: spec.shape.clone() }]));
    let parts: Vec<&str> = spec.name.split('.').collect();
    match parts.as_slice() {
        ["depformer_in", s, "weight"] => same(format!("depformer.{s}.linear_in.weight")),
        ["linears", s, "weight"] => same(format!("depformer.{s}.linear_out.weight")),
        // Step 0 takes the text token in, step s the token of codebook s - 1.
        ["depformer_text_emb", "weight"] => same("depformer.0.emb.weight".into()),
        ["depformer_emb", k, "weight"] => {
            same(format!("depformer.{}.emb.weight", k.parse::<i64>().ok()? + 1))
        }
        ["depformer", "layers", l, "gating", s, rest @ ..] => {
            same(format!("depformer.{s}.transformer.layers.{l}.gating.{}", rest.join(".")))
        }
        ["depformer", "layers", l, "self_attn", rest @ ..] => Some(Origin::Rows(split(spec, steps, |s| {
            format!("depformer.{s}.transformer.layers.{l}.self_attn.{}", rest.join("."))
        }))),
        // Steps share their norms; this layout repeats them.
        ["depformer", "layers", l, norm, "alpha"] => Some(Origin::Copies(
            (0..steps)
                .map(|s| TensorSpec {
                    name: format!("depformer.{s}.transformer.layers.{l}.{norm}.alpha"),
                    shape: spec.shape.clone(),
                })
                .collect(),
        )),
        _ => None,
    }
}
