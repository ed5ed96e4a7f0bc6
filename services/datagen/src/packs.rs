//! The domain packs of this process: those built in, or those of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use domain::pack::{DomainPack, built_in};

use drafting::trial::try_out;

use crate::error::DatagenError;

/// Packs by id.
#[derive(Debug, Clone)]
pub struct Packs(BTreeMap<String, DomainPack>);

impl Packs {
    /// The packs of `folder`, or those built in when it is empty.
    ///
    /// # Errors
    /// When a file cannot be read or is no pack, two have one id, or a trial fails.
    pub fn open(folder: &Path) -> Result<Self, DatagenError> {
        if folder.as_os_str().is_empty() {
            return Ok(Self(built_in().into_iter().collect()));
        }
        let mut packs = BTreeMap::new();
        for path in yaml_files(folder)? {
            let bytes = read(&path, |p| std::fs::read(p))?;
            let pack = DomainPack::from_bytes(&bytes)
                .map_err(|faults| DatagenError::Pack { path: path.clone(), faults })?;
            try_out(&pack).map_err(|error| DatagenError::Trial { path: path.clone(), error })?;
            if packs.contains_key(&pack.id) {
                return Err(DatagenError::DuplicatePack { path, id: pack.id });
            }
            packs.insert(pack.id.clone(), pack);
        }
        Ok(Self(packs))
    }

    /// The pack of a domain, of the version that was asked for.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, domain: &str, version: Option<u32>) -> Result<&DomainPack, DatagenError> {
        let wanted = |pack: &&DomainPack| version.is_none_or(|version| version == pack.version);
        let name = |pack: &DomainPack| format!("{} (version {})", pack.id, pack.version);
        self.0.get(domain).filter(wanted).ok_or_else(|| DatagenError::UnknownDomain {
            domain: version.map_or_else(|| domain.to_owned(), |v| format!("{domain} (version {v})")),
            known: self.0.values().map(name).collect::<Vec<_>>().join(", "),
        })
    }
}

fn read<T>(path: &Path, with: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T, DatagenError> {
    with(path).map_err(|source| DatagenError::Read { path: path.to_owned(), source })
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, DatagenError> {
    let entries: std::io::Result<Vec<PathBuf>> =
        read(folder, |p| std::fs::read_dir(p))?.map(|entry| entry.map(|e| e.path())).collect();
    let mut files = read(folder, |_| entries)?;
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml" || e == "yml"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHARMA: &str = include_str!("../../../configs/domains/pharma_adherence.yaml");

    #[test]
    fn without_a_folder_the_packs_built_in_are_there_and_others_are_named_as_unknown() {
        let packs = Packs::open(Path::new("")).expect("opens");
        assert!(
            packs
                .get(
                    "insurance_brokerage",
                    Some(packs.get("insurance_brokerage", None).expect("is there").version)
                )
                .is_ok()
        );
        let error = packs.get("astrology", None).expect_err("is not there").to_string();
        assert!(
            error.contains("insurance_brokerage (version ") && error.contains("pharma_adherence (version "),
            "{error}"
        );
    }

    #[test]
    fn a_folder_is_read_whole_and_a_pack_that_breaks_a_rule_when_spoken_is_refused() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let file = folder.path().join("one.yaml");
        std::fs::write(&file, PHARMA.replacen("id: pharma_adherence", "id: own_domain", 1)).expect("writes");
        assert!(Packs::open(folder.path()).expect("opens").get("own_domain", None).is_ok());
        std::fs::write(&file, PHARMA.replacen("Goodbye and take care.", "I guarantee it.", 1))
            .expect("writes");
        let error = Packs::open(folder.path()).expect_err("promises too much").to_string();
        assert!(error.contains("V13"), "{error}");
    }
}
