//! Where the running test's workspace and target folder are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The repository root.
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lives in shared/testkit").to_path_buf()
}

/// The folder that holds the built programs: `<target>/debug` for a test in `<target>/debug/deps`.
pub(crate) fn profile_dir() -> Result<PathBuf> {
    let test = std::env::current_exe().context("the path of the running test")?;
    let deps = test.parent().context("a test binary lies in a folder")?;
    let dir = if deps.ends_with("deps") { deps.parent().unwrap_or(deps) } else { deps };
    Ok(dir.to_path_buf())
}

/// The folder for what tests leave behind between runs: `<target>/testkit`.
pub(crate) fn state_dir() -> Result<PathBuf> {
    let profile = profile_dir()?;
    Ok(profile.parent().context("the profile folder lies in the target folder")?.join("testkit"))
}

/// A built program of the workspace, of the same profile as the running test.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = profile_dir()?.join(name);
    ensure!(path.is_file(), "{} is missing: run `make build` before the system tests", path.display());
    Ok(path)
}

/// A script of the repository's `.ci/lib`.
pub(crate) fn script(name: &str) -> PathBuf {
    workspace_root().join(".ci/lib").join(name)
}
