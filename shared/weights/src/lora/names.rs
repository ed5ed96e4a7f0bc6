use std::collections::BTreeMap;

use super::sites::{Half, Site};

/// PEFT's prefix of every module.
pub(super) const PEFT_PREFIX: &str = "base_model.model.";

/// Which modules a name of a file speaks of.
pub(super) enum Target<'a> {
    /// One step of a site, under its own name.
    Step(&'a Site, i64),
    /// Every step of an attention projection, stacked on the rows.
    Stacked(&'a Site),
}

/// Modules by every name they go by.
pub(super) struct Modules<'a>(BTreeMap<String, Target<'a>>);

impl<'a> Modules<'a> {
    /// The names kyutai's adapters use, and the older ones that have one projection for all steps: `in_proj` and
    /// `out_proj` (before the split), and the parameter name `in_proj_weight` of the published checkpoint.
    pub(super) fn of(sites: &'a [Site]) -> Self {
        let mut names = BTreeMap::new();
        for site in sites {
            for step in 0..site.steps {
                names.insert(site.module_of(step), Target::Step(site, step));
            }
            let stem = site.module.rsplit_once('.').map(|(stem, _)| stem).unwrap_or_default();
            if let Some(stacked) = stem.strip_suffix("_projs") {
                names.insert(format!("{stacked}_proj"), Target::Stacked(site));
                names.insert(format!("{stacked}_proj_weight"), Target::Stacked(site));
            }
        }
        Self(names)
    }

    /// Takes a tensor's name apart; `None` when it is no adapter of these modules.
    pub(super) fn find(&self, name: &str) -> Option<(&Target<'a>, Half)> {
        let name = name.strip_prefix(PEFT_PREFIX).unwrap_or(name);
        Half::BOTH.into_iter().find_map(|half| {
            [".weight", ".default.weight", ""].into_iter().find_map(|end| {
                let module = name.strip_suffix(&format!(".lora_{half:?}{end}"))?;
                Some((self.0.get(module)?, half))
            })
        })
    }
}

/// Name of a tensor without PEFT's prefix: that of an embedding table is then the checkpoint's.
pub(super) fn plain(name: &str) -> &str {
    name.strip_prefix(PEFT_PREFIX).unwrap_or(name)
}

/// Whether an adapter reaches into the depformer or its heads, seen from the names of its tensors. Trained tables of the
/// depformer do not count.
pub(super) fn reaches_depformer<'n>(mut names: impl Iterator<Item = &'n str>) -> bool {
    names.any(|name| {
        let at = plain(name);
        name.contains(".lora_") && (at.starts_with("depformer") || at.starts_with("linears."))
    })
}
