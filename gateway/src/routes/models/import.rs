//! From the import folder into the artifact store, never from anywhere else.

use std::path::{Component, Path, PathBuf};

use domain::ErrorCode;
use domain::dataset::DatasetFile;
use domain::run::FieldFault;
use rest::Problem;
use weights::{ModelInfo, WeightsError};

use crate::state::State;

/// Verifies the folder and copies its files below `prefix`.
pub(super) async fn import(state: &State, path: &str, prefix: &str) -> Result<Vec<DatasetFile>, Problem> {
    let (root, asked) = (state.import_dir.clone(), path.to_owned());
    let (folder, info) =
        tokio::task::spawn_blocking(move || checked(&root, &asked)).await.map_err(Problem::internal)??;
    let mut files = Vec::with_capacity(info.files.len());
    for found in &info.files {
        let mut copied =
            state.artifacts.put_file(&format!("{prefix}/{}", found.name), &folder.join(&found.name)).await?;
        if copied.sha256 != found.sha256 {
            return Err(refused(format!("{} changed while it was read", found.name)));
        }
        copied.path.clone_from(&found.name);
        files.push(copied);
    }
    Ok(files)
}

fn checked(root: &Path, asked: &str) -> Result<(PathBuf, ModelInfo), Problem> {
    let root = root
        .canonicalize()
        .map_err(|_| Problem::field("/path", "the server has no import folder ([artifacts].import_dir)"))?;
    let folder = confined(&root, asked)?;
    let info = weights::verify(&folder).map_err(|error| invalid(&root, &error))?;
    for file in &info.files {
        // The names come from the folder's own config.json.
        let plain = Path::new(&file.name).components().eq([Component::Normal(file.name.as_ref())]);
        let inside = folder.join(&file.name).canonicalize().is_ok_and(|f| f.starts_with(&root));
        if !plain || !inside {
            return Err(refused(format!("{:?} does not lie in the import folder", file.name)));
        }
    }
    Ok((folder, info))
}

/// The folder, with symbolic links resolved, when it lies below the import folder.
fn confined(root: &Path, asked: &str) -> Result<PathBuf, Problem> {
    let shown: String = asked.chars().take(200).collect();
    let relative = Path::new(asked);
    let clean = !asked.is_empty()
        && !asked.contains(['\0', '\\'])
        && relative.components().all(|c| matches!(c, Component::Normal(_)));
    if !clean {
        let detail = format!("must be a relative path without `..`, not {shown:?}");
        return Err(Problem::field("/path", detail));
    }
    // One answer for "not there" and "outside", so that the disk cannot be explored.
    root.join(relative)
        .canonicalize()
        .ok()
        .filter(|folder| folder.starts_with(root) && folder != root && folder.is_dir())
        .ok_or_else(|| Problem::field("/path", format!("there is no folder {shown:?} in the import folder")))
}

/// Names the fault without the server's own paths.
fn invalid(root: &Path, error: &WeightsError) -> Problem {
    let text = error.to_string().replace(&format!("{}/", root.display()), "");
    refused(text)
}

fn refused(detail: String) -> Problem {
    Problem::fields_as(ErrorCode::InvalidModel, [FieldFault { pointer: "/path".into(), detail }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_below_the_root_are_reached() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let root = dir.path().canonicalize()?.join("import");
        std::fs::create_dir_all(root.join("good/deep"))?;
        std::fs::create_dir_all(dir.path().join("outside"))?;
        std::fs::write(root.join("file"), "x")?;
        std::os::unix::fs::symlink(dir.path().join("outside"), root.join("link"))?;
        std::os::unix::fs::symlink(root.join("good"), root.join("alias"))?;
        for good in ["good", "good/deep", "alias"] {
            assert!(confined(&root, good).is_ok(), "{good}");
        }
        let bad = [
            "",
            ".",
            "..",
            "../outside",
            "good/../../outside",
            "/etc",
            "link",
            "link/x",
            "file",
            "missing",
            "a\0b",
            "good\\..\\..",
            "%2e%2e/outside",
            "....//outside",
        ];
        for bad in bad {
            assert!(confined(&root, bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
