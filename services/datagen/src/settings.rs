//! Section `[datagen]`.

use std::path::PathBuf;

use serde::Deserialize;

/// `[datagen]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagenSettings {
    /// Folder of domain packs; empty = those built in.
    pub domains_dir: PathBuf,
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
    }
}
