//! The files of a source, and where the paths in it lead: never outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::finding::Fault;

/// More files than this are refused before they are read.
const MAX_FILES: usize = 500_000;

/// A folder with everything below it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
    files: BTreeSet<String>,
    by_name: BTreeMap<String, Vec<String>>,
}

/// Where a path of a manifest leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Path below the root.
    pub path: String,
    /// What had to be done to find it.
    pub how: How,
}

/// How a path was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Relative to the folder of the file that names it.
    Relative,
    /// Relative to the root, as programs that run there read it.
    FromRoot,
    /// Absolute on another machine; found by its last parts.
    Rewritten,
}

impl Tree {
    /// Lists a folder. Hidden files and `__MACOSX` are ignored; a folder that holds nothing but one folder is entered.
    ///
    /// # Errors
    /// A fault when it cannot be read, holds a link, or a name that is not UTF-8.
    pub fn open(root: &Path) -> Result<Self, Fault> {
        let mut root = root.to_owned();
        loop {
            let entries = children(&root, "")?;
            match entries.as_slice() {
                [(name, true)] if name != "stereo_wav" => root.push(name),
                _ => break,
            }
        }
        let mut files = BTreeSet::new();
        let mut waiting = vec![String::new()];
        while let Some(folder) = waiting.pop() {
            for (name, is_folder) in children(&root.join(&folder), &folder)? {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                if is_folder {
                    waiting.push(path);
                } else {
                    files.insert(path);
                }
                if files.len() > MAX_FILES {
                    return Err(Fault::new(".", "too_many_files", format!("more than {MAX_FILES} files")));
                }
            }
        }
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in &files {
            by_name.entry(base_name(file).to_owned()).or_default().push(file.clone());
        }
        Ok(Self { root, files, by_name })
    }

    /// All files, sorted.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Whether the file is there.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.files.contains(path)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A fault when the disk refuses.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, Fault> {
        std::fs::read(self.root.join(path))
            .map_err(|error| Fault::new(path, "unreadable", format!("cannot be read: {error}")))
    }

    /// Finds the file that `path`, written in the file `from`, means.
    ///
    /// Relative paths start at the folder of `from`; those that only exist from the root are taken from there, and a path
    /// that exists in both readings as two files is a fault. Absolute ones are found by their last parts.
    ///
    /// # Errors
    /// Code and detail: `path_outside`, `missing_file`, `ambiguous_path`.
    pub fn resolve(&self, from: &str, path: &str) -> Result<Resolved, (&'static str, String)> {
        let shown: String = path.chars().take(200).collect();
        if path.is_empty() || path.contains('\0') {
            return Err(("path", format!("{shown:?} is no path")));
        }
        let clean = path.replace('\\', "/");
        if is_absolute(&clean) {
            return self.rewrite(&clean, &shown);
        }
        let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (beside, below) = (join(folder, &clean), join("", &clean));
        if beside.is_none() && below.is_none() {
            return Err(("path_outside", format!("{shown:?} leaves the dataset's folder")));
        }
        let there = |p: &Option<String>| p.as_ref().filter(|p| self.contains(p)).cloned();
        match (there(&beside), there(&below)) {
            (Some(a), Some(b)) if a != b => Err((
                "ambiguous_path",
                format!("{shown:?} is {a:?} beside the manifest and {b:?} from the root"),
            )),
            (Some(path), _) => Ok(Resolved { path, how: How::Relative }),
            (None, Some(path)) => Ok(Resolved { path, how: How::FromRoot }),
            (None, None) => Err(("missing_file", format!("{shown:?} does not exist{}", self.hint(&clean)))),
        }
    }

    fn rewrite(&self, clean: &str, shown: &str) -> Result<Resolved, (&'static str, String)> {
        let parts: Vec<&str> = clean.split('/').filter(|p| !matches!(*p, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(("path_outside", format!("{shown:?} is absolute and goes up with `..`")));
        }
        let found = |path: String| Ok(Resolved { path, how: How::Rewritten });
        let longest = (1..parts.len())
            .map(|from| parts[from..].join("/"))
            .find(|p| p.contains('/') && self.contains(p));
        if let Some(path) = longest {
            return found(path);
        }
        let name = parts.last().copied().unwrap_or_default();
        match self.by_name.get(name).map_or(&[][..], Vec::as_slice) {
            [one] => found(one.clone()),
            [] => Err(("missing_file", format!("{shown:?} does not exist: no file is named {name:?}"))),
            many => Err(("ambiguous_path", format!("{shown:?} may be {}", many.join(" or ")))),
        }
    }

    fn hint(&self, path: &str) -> String {
        match self.by_name.get(base_name(path)).map(Vec::as_slice) {
            Some([one, ..]) => format!("; there is {one:?}"),
            _ => String::new(),
        }
    }
}

/// Names in a folder, sorted, with whether each is a folder.
fn children(folder: &Path, shown: &str) -> Result<Vec<(String, bool)>, Fault> {
    let place = if shown.is_empty() { "." } else { shown };
    let io = |error: std::io::Error| Fault::new(place, "unreadable", format!("cannot be read: {error}"));
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|n| Fault::new(place, "file_name", format!("the name {n:?} is not UTF-8")))?;
        if name.starts_with('.') || name == "__MACOSX" {
            continue;
        }
        let kind = entry.file_type().map_err(io)?;
        if !kind.is_dir() && !kind.is_file() {
            let path = if shown.is_empty() { name } else { format!("{shown}/{name}") };
            return Err(Fault::new(&path, "link", "is a link or a special file; only files are imported"));
        }
        out.push((name, kind.is_dir()));
    }
    out.sort();
    Ok(out)
}

fn is_absolute(path: &str) -> bool {
    let drive = path.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && path[1..].starts_with(":/");
    path.starts_with('/') || drive
}

/// `folder/path` with `.` and `..` resolved; none when it leaves the root.
#[must_use]
pub fn join(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The last part of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The path without its last extension: `a/x.mp3.wav` is `a/x.mp3`.
#[must_use]
pub fn without_extension(path: &str) -> &str {
    match path.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') && !stem.is_empty() && !stem.ends_with('/') => {
            stem
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().expect("has one")).expect("makes");
            std::fs::write(path, file).expect("writes");
        }
        let tree = Tree::open(dir.path()).expect("opens");
        (dir, tree)
    }

    #[test]
    fn paths_are_found_beside_the_manifest_then_from_the_root_and_absolute_ones_by_their_end() {
        let (_dir, t) = tree(&[
            "dataset/train.jsonl",
            "stereo_wav/a.wav",
            "stereo_wav/b.wav",
            "old/b.wav",
            "dataset/c.wav",
            "c.wav",
        ]);
        let from = "dataset/train.jsonl";
        let get = |path: &str| t.resolve(from, path).map(|r| (r.path, r.how));
        let wav = |name: &str, how| Ok((format!("stereo_wav/{name}.wav"), how));
        assert_eq!(get("../stereo_wav/a.wav"), wav("a", How::Relative));
        assert_eq!(get("stereo_wav/a.wav"), wav("a", How::FromRoot));
        assert_eq!(get("..\\stereo_wav\\a.wav"), wav("a", How::Relative));
        assert_eq!(get("/home/x/ds/stereo_wav/b.wav"), wav("b", How::Rewritten));
        assert_eq!(get("/elsewhere/a.wav"), wav("a", How::Rewritten));
        assert_eq!(get("C:\\data\\a.wav"), wav("a", How::Rewritten));
        let code = |path: &str| get(path).expect_err("refused").0;
        assert_eq!(code("/elsewhere/b.wav"), "ambiguous_path");
        assert_eq!(code("c.wav"), "ambiguous_path");
        assert_eq!(code("../../etc/passwd"), "path_outside");
        assert_eq!(code("/etc/passwd"), "missing_file");
        assert_eq!(code("/etc/../stereo_wav/a.wav"), "path_outside");
        assert_eq!(code("a.wav"), "missing_file");
        assert!(get("a.wav").expect_err("refused").1.contains("there is \"stereo_wav/a.wav\""));
    }

    #[test]
    fn links_are_refused_and_a_wrapping_folder_is_entered() {
        let (dir, t) = tree(&["wrap/stereo_wav/a.wav", "wrap/readme", "__MACOSX/x", ".git/y"]);
        assert_eq!(t.files().collect::<Vec<_>>(), ["readme", "stereo_wav/a.wav"]);
        let (_dir, same_name) = tree(&["dataset/dataset/train.jsonl", "dataset/stereo_wav/a.wav"]);
        assert_eq!(same_name.files().collect::<Vec<_>>(), ["dataset/train.jsonl", "stereo_wav/a.wav"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("wrap/link.wav")).expect("links");
        assert_eq!(Tree::open(dir.path()).expect_err("a link").code, "link");
    }

    #[test]
    fn only_the_last_extension_goes() {
        assert_eq!(without_extension("a/call.mp3.wav"), "a/call.mp3");
        assert_eq!(without_extension("a.b/call"), "a.b/call");
        assert_eq!(without_extension("a/.wav"), "a/.wav");
    }
}
