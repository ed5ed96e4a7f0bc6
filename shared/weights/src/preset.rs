use std::path::Path;

use crate::{ModelConfig, WeightsError};

struct Preset {
    name: &'static str,
    config: &'static str,
    tokenizer: Option<&'static [u8]>,
}

/// Presets travel inside the binaries; the files are those of `configs/model/`.
const PRESETS: [Preset; 3] = [
    Preset {
        name: "tiny",
        config: include_str!("../../../configs/model/tiny.json"),
        tokenizer: Some(include_bytes!("../../../configs/model/tiny.tokenizer.model")),
    },
    Preset {
        name: "personaplex-7b",
        config: include_str!("../../../configs/model/personaplex-7b.json"),
        tokenizer: None,
    },
    Preset {
        name: "moshi-7b",
        config: include_str!("../../../configs/model/moshi-7b.json"),
        tokenizer: None,
    },
];

/// Names accepted by [`ModelConfig::preset`].
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|p| p.name).collect()
}

fn find(name: &str) -> Result<&'static Preset, WeightsError> {
    PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| WeightsError::UnknownPreset { name: name.into(), known: preset_names() })
}

impl ModelConfig {
    /// The named preset.
    pub fn preset(name: &str) -> Result<Self, WeightsError> {
        Self::parse(find(name)?.config, Path::new(name))
    }
}

/// Tokenizer bytes carried with a preset. The 7B presets carry none: their tokenizer is part of the published model.
pub fn preset_tokenizer(name: &str) -> Result<&'static [u8], WeightsError> {
    find(name)?.tokenizer.ok_or_else(|| WeightsError::NoTokenizer { name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_and_is_valid() -> Result<(), WeightsError> {
        for name in preset_names() {
            let config = ModelConfig::preset(name)?;
            assert_eq!(config.name, name);
            assert_eq!(config.mimi.frame_size(), 1920);
        }
        Ok(())
    }

    #[test]
    fn the_published_sizes_follow_from_the_preset() -> Result<(), WeightsError> {
        let lm = ModelConfig::preset("personaplex-7b")?.lm;
        assert_eq!((lm.hidden(), lm.depformer_hidden()), (11264, 2816));
        Ok(())
    }

    #[test]
    fn unknown_presets_and_keys_are_refused() {
        assert!(matches!(ModelConfig::preset("huge"), Err(WeightsError::UnknownPreset { .. })));
        let text = PRESETS[0].config.replacen("\"name\"", "\"nmae\": 1, \"name\"", 1);
        assert!(matches!(ModelConfig::parse(&text, Path::new("x")), Err(WeightsError::Config { .. })));
    }

    #[test]
    fn a_configuration_of_another_graph_is_refused() -> Result<(), WeightsError> {
        let mut config = ModelConfig::preset("tiny")?;
        config.lm.gating = "gelu".into();
        assert!(matches!(config.validate(), Err(WeightsError::InvalidConfig { .. })));
        Ok(())
    }
}
