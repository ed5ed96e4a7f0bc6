//! Section `[datagen]`.

use std::path::PathBuf;

use serde::Deserialize;

/// `[datagen]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagenSettings {
    /// Folder of domain packs; empty = those built in.
    pub domains_dir: PathBuf,
    /// The writing model.
    pub writer: WriterSettings,
}

/// `[datagen.writer]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterSettings {
    /// Model id as the provider names it; empty = the offline generator writes.
    pub model: String,
    /// Whether the model costs nothing; otherwise it needs a price.
    pub free: bool,
    /// The most that the calls of one dataset may cost, in millionths of a dollar.
    pub max_cost_microusd: u64,
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// Tokens of an ordinary answer, for the estimate before a shard begins.
    pub typical_tokens: u32,
    /// How the model is reached.
    pub provider: llm::ProviderSettings,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_default_section_reads_and_names_no_folder() {
        let settings = chassis::Settings::from_layers(None, HashMap::new()).expect("defaults load");
        let section: DatagenSettings = settings.section("datagen").expect("reads");
        assert_eq!(section.domains_dir, PathBuf::new());
        assert_eq!(section.writer.model, "");
    }
}
