//! The rules of docs/ARCHITECTURE.md, checked on cargo's metadata and on the text of the sources: nothing is compiled
//! and no libtorch is needed. A failure names the place, the rule and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// The only crates that may reach libtorch.
const TORCH: [&str; 5] = ["nn", "ranks", "personaplex", "trainer", "inference"];

/// Libraries without services above them: what every service and the gateway may use.
const FOUNDATION: [&str; 10] =
    ["domain", "streams", "audio", "spoken", "aligner", "artifacts", "weights", "store", "bus", "chassis"];

/// Crates whose code may hold `unsafe` (mapped files, foreign functions), each with a SAFETY comment.
const UNSAFE: [&str; 4] = ["shared/weights", "shared/nn", "shared/ranks", "services/tts"];

const MAX_FILE_LINES: usize = 500;
const MAX_CRATE_LINES: usize = 6000;

/// Which crates of the workspace each crate may depend on (dev-dependencies are free, but for torch).
fn may_use(name: &str) -> Vec<&'static str> {
    let foundation_and = |more: &[&'static str]| [&FOUNDATION[..], more].concat();
    match name {
        "domain" | "aligner" | "testkit" | "llm" => vec![],
        "streams" | "audio" | "spoken" | "artifacts" | "weights" | "store" | "bus" => vec!["domain"],
        "drafting" => vec!["domain", "spoken"],
        "preflight" => vec!["domain", "audio", "streams", "weights"],
        "runlog" => vec!["domain"],
        "puppeteer" => vec!["domain", "llm"],
        "chassis" => vec!["domain", "artifacts", "store", "bus"],
        "rest" => vec!["domain", "artifacts", "store", "chassis"],
        "library" => vec!["domain", "drafting", "puppeteer", "rest", "store"],
        "client" => vec!["domain", "audio", "weights", "drafting", "llm"],
        "nn" => vec!["weights"],
        "personaplex" => vec!["domain", "streams", "weights", "nn"],
        "trainer" => foundation_and(&["nn", "ranks", "personaplex", "preflight", "runlog"]),
        "inference" => foundation_and(&["nn", "personaplex", "puppeteer", "llm"]),
        // It is a client of inference, as any other.
        "evaluation" => foundation_and(&["client"]),
        "gateway" => foundation_and(&["rest", "library", "preflight", "runlog", "drafting"]),
        "datagen" => foundation_and(&["drafting", "llm"]),
        "tts" | "align" | "dataset" => foundation_and(&[]),
        _ => vec![],
    }
}

static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).other_options(["--locked".to_owned()]);
    command.exec().expect("cargo metadata --locked works in this checkout")
});

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

fn members() -> Vec<&'static Package> {
    METADATA.workspace_packages()
}

/// Names of everything that the package reaches: its own dependencies of every kind, theirs without dev.
fn reaches(id: &PackageId) -> BTreeSet<String> {
    let resolve = METADATA.resolve.as_ref().expect("metadata with dependencies");
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![id];
    while let Some(next) = waiting.pop() {
        for dependency in &nodes[next].deps {
            let only_dev = dependency.dep_kinds.iter().all(|kind| kind.kind == DependencyKind::Development);
            if (!only_dev || next == id) && seen.insert(&dependency.pkg) {
                waiting.push(&dependency.pkg);
            }
        }
    }
    seen.iter().map(|id| METADATA[*id].name.to_string()).collect()
}

struct Source {
    /// Relative to the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.starts_with("shared/testkit/")
    }

    /// Whether a line belongs to the file's own tests, which stand at its end.
    fn in_own_tests(&self, number: usize) -> bool {
        let lines: Vec<&str> = self.text.lines().take(number).collect();
        lines.windows(2).any(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "))
    }

    /// Numbered lines that are not wholly comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut found = Vec::new();
    for folder in ["shared", "services", "gateway", "tests"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 50, "only {} sources found: the walk is broken", found.len());
    found
});

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a readable folder")
        .map(|entry| entry.expect("readable").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative =
                path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
            found.push(Source {
                path: relative,
                text: std::fs::read_to_string(&path).expect("readable text"),
            });
        }
    }
}

#[track_caller]
fn none(rule: &str, fix: &str, violations: Vec<String>) {
    assert!(violations.is_empty(), "\nrule: {rule}\nfix:  {fix}\n  {}\n", violations.join("\n  "));
}

/// Lines of code that hold one of the needles, where `allowed` is false for the file and line.
fn occurrences(needles: &[&str], allowed: impl Fn(&Source, usize) -> bool) -> Vec<String> {
    let this_file = "tests/architecture.rs";
    let mut hits = Vec::new();
    for source in SOURCES.iter().filter(|source| source.path != this_file) {
        for (number, line) in source.code() {
            if needles.iter().any(|needle| line.contains(needle)) && !allowed(source, number) {
                hits.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    hits
}

#[test]
fn only_the_torch_crates_reach_libtorch() {
    let mut bad = Vec::new();
    for package in members().iter().filter(|package| !TORCH.contains(&package.name.as_str())) {
        let reached = reaches(&package.id);
        if let Some(torch) = ["tch", "torch-sys"].iter().find(|name| reached.contains(**name)) {
            bad.push(format!("{} reaches {torch}", package.manifest_path));
        }
    }
    none(
        "libtorch is reached only by nn, personaplex, trainer and inference",
        "move the code, or drop the dependency",
        bad,
    );
}

#[test]
fn the_default_members_are_the_crates_without_libtorch() {
    let names = |packages: Vec<&Package>| -> BTreeSet<String> {
        packages
            .iter()
            .map(|package| package.name.to_string())
            .filter(|name| !TORCH.contains(&name.as_str()))
            .collect()
    };
    let defaults = METADATA.workspace_default_packages();
    let torch: Vec<String> = defaults.iter().map(|package| package.name.to_string()).collect();
    let torch = torch.into_iter().filter(|name| TORCH.contains(&name.as_str())).collect();
    none("default-members hold no torch crate", "remove it from default-members in Cargo.toml", torch);
    let missing = names(members()).difference(&names(defaults)).cloned().collect();
    none("default-members hold every torch-free crate", "add it to default-members in Cargo.toml", missing);
}

#[test]
fn crates_depend_only_downwards() {
    let ours: BTreeSet<&str> = members().iter().map(|package| package.name.as_str()).collect();
    let mut bad = Vec::new();
    for package in members() {
        let allowed = may_use(&package.name);
        for dependency in package.dependencies.iter().filter(|dep| dep.kind != DependencyKind::Development) {
            if ours.contains(dependency.name.as_str()) && !allowed.contains(&dependency.name.as_str()) {
                bad.push(format!("{} depends on {}", package.manifest_path, dependency.name));
            }
        }
    }
    none(
        "crates depend downwards in the layers of docs/ARCHITECTURE.md; no service on a service or the gateway; testkit and \
         system-tests only from tests",
        "pass the data through domain, the store or a message instead",
        bad,
    );
}

#[test]
fn each_outside_system_has_one_crate() {
    // (dependency, crates that may have it, crates whose tests may)
    let owners: [(&str, &[&str], &[&str]); 3] = [
        ("sqlx", &["store", "testkit"], &["store", "system-tests"]),
        ("lapin", &["bus"], &["bus", "system-tests"]),
        ("object_store", &["artifacts"], &[]),
    ];
    let mut bad = Vec::new();
    for package in members() {
        for (name, normal, dev) in owners {
            for dependency in package.dependencies.iter().filter(|dep| dep.name == name) {
                let allowed = if dependency.kind == DependencyKind::Development { dev } else { normal };
                if !allowed.contains(&package.name.as_str()) {
                    bad.push(format!("{} depends on {name}", package.manifest_path));
                }
            }
        }
    }
    none(
        "SQL is in store, RabbitMQ in bus, object stores in artifacts",
        "add a function to that crate and call it",
        bad,
    );

    let sql = occurrences(&["sqlx::query"], |source, line| {
        source.is_test() || source.in_own_tests(line) || source.path.starts_with("shared/store/")
    });
    none("SQL is written in shared/store only", "move the query there", sql);
}

#[test]
fn the_environment_is_read_by_the_chassis_only() {
    let hits = occurrences(&["env::var(", "env::var_os(", "env::vars", "option_env!("], |source, line| {
        source.is_test()
            || source.in_own_tests(line)
            || source.path.starts_with("shared/chassis/")
            || source.path.ends_with("/build.rs")
    });
    none(
        "settings come through shared/chassis (the ppx command line: through clap), typed and layered",
        "add a key to the service's settings",
        hits,
    );
}

#[test]
fn the_core_is_free_of_io_and_async() {
    let io = ["tokio", "async-std", "smol", "mio", "hyper", "actix-rt", "reqwest", "rusqlite"];
    let mut bad = Vec::new();
    for package in
        members().iter().filter(|package| ["domain", "streams", "spoken"].contains(&package.name.as_str()))
    {
        let resolve = METADATA.resolve.as_ref().expect("metadata with dependencies");
        let node = resolve.nodes.iter().find(|node| node.id == package.id).expect("a member is resolved");
        let normal = node
            .deps
            .iter()
            .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        for dependency in normal {
            let mut reached = reaches(&dependency.pkg);
            reached.insert(METADATA[&dependency.pkg].name.to_string());
            if let Some(name) = io.iter().find(|name| reached.contains(**name)) {
                bad.push(format!(
                    "{} reaches {name} through {}",
                    package.name, METADATA[&dependency.pkg].name
                ));
            }
        }
    }
    none("domain, streams and spoken do no I/O and know no async runtime", "do the I/O in the caller", bad);
}

#[test]
fn unsafe_code_is_rare_and_explained() {
    let forms = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "#[unsafe("];
    let listed = |source: &Source| UNSAFE.iter().any(|folder| source.path.starts_with(&format!("{folder}/")));
    let hits = occurrences(&forms, |source, _| listed(source));
    none(
        "unsafe only where files are mapped or foreign functions called",
        "use a safe crate, or discuss the list",
        hits,
    );

    let unexplained = SOURCES.iter().filter(|source| {
        listed(source) && source.code().any(|(_, line)| forms.iter().any(|form| line.contains(form)))
    });
    let unexplained =
        unexplained.filter(|source| !source.text.contains("SAFETY")).map(|source| source.path.clone());
    none("unsafe code says why it is sound", "add a SAFETY comment", unexplained.collect());
}

#[test]
fn files_and_crates_stay_small() {
    let mut bad = Vec::new();
    let mut crates: BTreeMap<String, usize> = BTreeMap::new();
    for source in SOURCES.iter() {
        let lines = source.text.lines().count();
        let limit = match source.path.as_str() {
            "gateway/src/main.rs" | "shared/client/src/main.rs" => 60,
            path if path.ends_with("/src/main.rs") => 30,
            _ => MAX_FILE_LINES,
        };
        if lines > limit {
            bad.push(format!("{}: {lines} lines, at most {limit}", source.path));
        }
        if let Some((folder, _)) = source.path.split_once("/src/") {
            *crates.entry(folder.to_owned()).or_default() += lines;
        }
    }
    let large = crates.into_iter().filter(|(_, lines)| *lines > MAX_CRATE_LINES);
    bad.extend(large.map(|(folder, lines)| format!("{folder}: {lines} lines, at most {MAX_CRATE_LINES}")));
    none("files and crates are small enough to read", "split by noun", bad);
}

#[test]
fn every_crate_keeps_the_house_rules() {
    let mut bad = Vec::new();
    for package in members() {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a manifest");
        if !manifest.contains("[lints]\nworkspace = true") {
            bad.push(format!("{}: add [lints] workspace = true", package.manifest_path));
        }
    }
    for source in SOURCES.iter().filter(|source| source.path.ends_with("/src/lib.rs")) {
        if !source.text.starts_with("//!") {
            bad.push(format!("{}: begin with what the crate is for (//!)", source.path));
        }
    }
    let vague = ["utils.rs", "util.rs", "helpers.rs", "common.rs", "misc.rs"];
    for source in SOURCES.iter().filter(|source| source.path.contains("/src/")) {
        if vague.iter().any(|name| source.path.ends_with(&format!("/{name}"))) {
            bad.push(format!("{}: name the file after what it holds", source.path));
        }
    }
    none("lints, crate comments and file names are as in CONTRIBUTING.md", "see each line", bad);

    let ignored = occurrences(&["#[ignore"], |_, _| false);
    none("no test is switched off in silence", "make the need a nextest filter or a feature", ignored);
}
