//! `ppx model` as people run it: what it prints, where, and the exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

fn ppx(arguments: &[&str]) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_ppx")).args(arguments).output().context("ppx must start")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Runs a command that must work, and gives its stdout.
fn good(arguments: &[&str]) -> Result<String> {
    let out = ppx(arguments)?;
    ensure!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

/// Runs a command that must fail with `code`, and gives its stderr.
fn bad(arguments: &[&str], code: i32) -> Result<String> {
    let out = ppx(arguments)?;
    let stderr = String::from_utf8(out.stderr)?;
    ensure!(out.status.code() == Some(code), "{arguments:?} ended with {}: {stderr}", out.status);
    ensure!(out.stdout.is_empty(), "{arguments:?} printed a result");
    Ok(stderr)
}

struct World {
    root: TempDir,
    dir: PathBuf,
}

/// A tiny model directory.
fn world(more: &[&str]) -> Result<World> {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("tiny");
    good(&[&["model", "init", "--preset", "tiny"], more, &[text(&dir)]].concat())?;
    Ok(World { root, dir })
}

impl World {
    fn lm(&self) -> PathBuf {
        self.dir.join("model.safetensors")
    }
}

#[test]
fn inspect_shows_what_a_directory_and_what_a_file_holds() -> Result<()> {
    let world = world(&["--seed", "4"])?;
    let shown = good(&["model", "inspect", text(&world.dir)])?;
    for words in ["published", "BF16", "F32", "model.safetensors", "tokenizer.model", "depformer steps"] {
        assert!(shown.contains(words), "{shown}");
    }
    let all: Value = serde_json::from_str(&good(&["--json", "model", "inspect", text(&world.dir)])?)?;
    let one: Value = serde_json::from_str(&good(&["--json", "model", "inspect", text(&world.lm())])?)?;
    assert_eq!(all["lm"], one);
    assert_eq!(all["lm"]["parameters"], all["lm_parameters"]);
    assert_eq!(all["lm"]["metadata"]["seed"], "4");
    assert_eq!(all["config"]["name"], "tiny");
    assert_eq!(one["files"][0]["sha256"], one["sha256"]);
    let shown = good(&["model", "inspect", text(&world.lm())])?;
    assert!(shown.contains(one["sha256"].as_str().context("a hash")?), "{shown}");
    Ok(())
}

/// Changes the header of a file in place; the lengths must agree.
fn with_header(whole: &[u8], from: &str, to: &str) -> Result<Vec<u8>> {
    let end = 8 + usize::try_from(u64::from_le_bytes(whole[..8].try_into()?))?;
    let header = std::str::from_utf8(&whole[8..end])?;
    ensure!(header.contains(from), "the header holds no {from}");
    let header = header.replacen(from, to, 1);
    Ok([&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &whole[end..]].concat())
}

/// Bytes that are no good, and words of the message.
fn damages(whole: &[u8]) -> Result<Vec<(&'static str, Vec<u8>, &'static str)>> {
    let first = "\"shape\":[";
    Ok(vec![
        (
            "pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(),
            "git-lfs pointer",
        ),
        ("cut pointer", b"versi".to_vec(), "git-lfs pointer"),
        ("pickle", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), "a PyTorch file (a pickle)"),
        ("zip", b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl".to_vec(), "save_file"),
        ("half", whole[..whole.len() / 2].to_vec(), "is truncated"),
        ("cut header", whole[..100].to_vec(), "is truncated"),
        ("more", [whole, b"0123456789"].concat(), "has 10 bytes after the last tensor"),
        ("page", b"<!DOCTYPE html><title>404</title>".to_vec(), "an HTML or XML page"),
        ("json", br#"{"error":"restricted"}"#.to_vec(), "a JSON document"),
        ("empty", Vec::new(), "is empty (0 bytes)"),
        ("noise", vec![0xa5; 4096], "is not a safetensors file"),
        ("unknown type", with_header(whole, "\"BF16\"", "\"Q4_K\"")?, "unknown type \"Q4_K\""),
        ("shape", with_header(whole, first, &format!("{first}7,"))?, "has offsets"),
        ("overlap", with_header(whole, "\"data_offsets\":[0,", "\"data_offsets\":[1,")?, "has offsets"),
        (
            "misaligned",
            [&(u64::from_le_bytes(whole[..8].try_into()?) - 9).to_le_bytes()[..], &whole[8..]].concat(),
            "misaligned header",
        ),
    ])
}

#[test]
fn inspect_of_a_damaged_file_of_each_kind_prints_the_reason_and_ends_with_1() -> Result<()> {
    let world = world(&[])?;
    let path = world.lm();
    let whole = std::fs::read(&path)?;
    for (what, bytes, words) in damages(&whole)? {
        std::fs::write(&path, bytes)?;
        for target in [text(&path), text(&world.dir)] {
            for command in ["inspect", "verify"] {
                let stderr = bad(&["model", command, target], 1)?;
                assert!(stderr.contains(words), "{what}, {command} {target}: {stderr}");
                assert!(stderr.contains("model.safetensors"), "{what}: {stderr}");
            }
        }
        let json = bad(&["--json", "model", "inspect", text(&path)], 1)?;
        let json: Value = serde_json::from_str(&json)?;
        assert_eq!(json["error"]["exit_code"], 1, "{what}");
        assert!(json["error"]["detail"].as_str().is_some_and(|d| d.contains(words)), "{what}: {json}");
    }
    std::fs::write(&path, &whole)?;
    good(&["model", "verify", text(&world.dir)])?;
    // The other files of a model count too.
    for (name, words) in [
        ("mimi.safetensors", "git-lfs"),
        ("tokenizer.model", "git-lfs"),
        ("config.json", "not a model configuration"),
    ] {
        let kept = std::fs::read(world.dir.join(name))?;
        std::fs::write(world.dir.join(name), "version https://git-lfs.github.com/spec/v1\n")?;
        let stderr = bad(&["model", "inspect", text(&world.dir)], 1)?;
        assert!(stderr.contains(words) && stderr.contains(name), "{stderr}");
        std::fs::write(world.dir.join(name), kept)?;
    }
    std::fs::remove_file(world.dir.join("tokenizer.model"))?;
    assert!(bad(&["model", "inspect", text(&world.dir)], 1)?.contains("tokenizer.model"));
    Ok(())
}

#[test]
fn verify_names_the_tensors_that_inspect_does_not_compare() -> Result<()> {
    let world = world(&[])?;
    let whole = std::fs::read(world.lm())?;
    std::fs::write(world.lm(), with_header(&whole, "out_norm.alpha", "out_norm.omega")?)?;
    good(&["model", "inspect", text(&world.dir)])?;
    for target in [text(&world.dir), text(&world.lm())] {
        let stderr = bad(&["model", "verify", target], 1)?;
        assert!(stderr.contains("1 missing: out_norm.alpha; 1 unexpected: out_norm.omega"), "{stderr}");
    }
    let stderr = bad(&["model", "verify", "--preset", "personaplex-7b", text(&world.lm())], 1)?;
    assert!(stderr.contains("wrong shape") && stderr.contains("… and"), "{stderr}");
    Ok(())
}

#[test]
fn wrong_arguments_end_with_2() -> Result<()> {
    let world = world(&[])?;
    let dir = text(&world.dir);
    let none = world.root.path().join("none");
    for arguments in [
        vec!["model", "inspect", text(&none)],
        vec!["model", "verify", text(&none)],
        vec!["model", "convert", text(&none), "x"],
        vec!["model", "merge", dir, text(&none), "x"],
        vec!["model", "init", dir],
        vec!["model", "convert", dir, dir],
        vec!["model", "init", "--preset", "huge", text(&none)],
        vec!["model", "init", "--preset", "personaplex-7b", text(&none)],
        vec!["model", "init", "--shard-size", "lots", text(&none)],
        vec!["model", "init", "--shard-size", "10", text(&none)],
    ] {
        bad(&arguments, 2)?;
        assert!(!none.exists(), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn a_tokenizer_for_a_preset_without_one_must_be_one() -> Result<()> {
    let world = world(&[])?;
    let out = world.root.path().join("out");
    let not = world.root.path().join("not.model");
    std::fs::write(&not, "hello, this is no tokenizer")?;
    let stderr = bad(&["model", "init", "--preset", "moshi-7b", "--tokenizer", text(&not), text(&out)], 1)?;
    assert!(stderr.contains("not a SentencePiece model"), "{stderr}");
    assert!(!out.exists());
    let own = world.dir.join("tokenizer.model");
    good(&["model", "init", "--tokenizer", text(&own), text(&out)])?;
    assert_eq!(std::fs::read(out.join("tokenizer.model"))?, std::fs::read(own)?);
    Ok(())
}

#[test]
fn shards_and_types_are_converted_there_and_back() -> Result<()> {
    let world = world(&["--shard-size", "400KB"])?;
    assert!(!world.lm().exists());
    good(&["model", "verify", text(&world.dir)])?;
    let (wide, back) = (world.root.path().join("wide"), world.root.path().join("back"));
    good(&["model", "convert", "--dtype", "f32", text(&world.dir), text(&wide)])?;
    let shown = good(&["model", "convert", "--dtype", "bf16", text(&wide), text(&back)])?;
    assert!(shown.contains("published"), "{shown}");
    let plain = world.root.path().join("plain");
    good(&["model", "init", text(&plain)])?;
    let file = |dir: &Path| std::fs::read(dir.join("model.safetensors"));
    assert!(file(&back)? == file(&plain)?, "the same seed, the same bytes");
    // The name of the file stands for its shards.
    good(&["model", "inspect", text(&world.lm())])?;
    let shard = std::fs::read_dir(&world.dir)?
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| text(p).contains("-00002-of-"))
        .context("a second shard")?;
    std::fs::remove_file(&shard)?;
    let stderr = bad(&["model", "inspect", text(&world.dir)], 1)?;
    assert!(stderr.contains("-00002-of-") && stderr.contains("not there"), "{stderr}");
    Ok(())
}

#[test]
fn a_moshi_model_is_refused_until_asked_for() -> Result<()> {
    let world = world(&[])?;
    let moshi = world.root.path().join("moshi");
    let config = std::fs::read_to_string(world.dir.join("config.json"))?;
    let mut config: Value = serde_json::from_str(&config)?;
    config["lm"]["dep_q"] = 8.into();
    let shape: weights::ModelConfig = serde_json::from_value(config)?;
    weights::init_model_with(&moshi, &shape, weights::preset_tokenizer("tiny")?, 1)?;
    let file = moshi.join("model.safetensors");
    let stderr = bad(&["model", "verify", "--preset", "tiny", text(&file)], 1)?;
    assert!(stderr.contains("--init-from-moshi"), "{stderr}");
    let out = world.root.path().join("out");
    let shown = good(&["model", "convert", "--init-from-moshi", text(&moshi), text(&out)])?;
    assert!(shown.contains("depformer_emb.7.weight"), "{shown}");
    good(&["model", "verify", text(&out)])?;
    let shown = good(&["model", "inspect", text(&out.join("model.safetensors"))])?;
    assert!(shown.contains("init_from_moshi"), "{shown}");
    Ok(())
}

#[test]
fn an_adapter_is_merged_without_a_server() -> Result<()> {
    use std::borrow::Cow;
    use weights::lora::{AdapterMeta, Layout, LoraConfig, LoraError, save_adapter};
    let world = world(&[])?;
    let info = weights::inspect(&world.dir)?;
    let (adapter, out) = (world.root.path().join("adapter"), world.root.path().join("out"));
    let save = |base_sha256: &str| -> Result<(), LoraError> {
        let config = LoraConfig { rank: 2, ..LoraConfig::default() };
        let meta = AdapterMeta { base_sha256: base_sha256.into(), ..AdapterMeta::default() };
        // 0.25 in every place of A and B.
        let bytes = |count: i64| 0.25f32.to_le_bytes().repeat(usize::try_from(count).unwrap_or(0));
        let settings = (&config, &meta, weights::Dtype::F32);
        save_adapter(&adapter, Layout::Kyutai, &info.config.lm, settings, |spec| {
            Ok::<_, LoraError>(Cow::Owned(bytes(spec.shape.iter().product())))
        })
    };
    let [base, from, to] = [text(&world.dir), text(&adapter), text(&out)];
    save(&"0".repeat(64))?;
    let stderr = bad(&["model", "merge", base, from, to], 1)?;
    assert!(stderr.contains(&info.lm.sha256) && !out.exists(), "{stderr}");
    save(&info.lm.sha256)?;
    let shown: Value = serde_json::from_str(&good(&["--json", "model", "merge", base, from, to])?)?;
    assert!(shown["merged"].as_u64().is_some_and(|n| n > 0), "{shown}");
    good(&["model", "verify", to])?;
    assert_eq!(shown["merged_sha256"], weights::inspect(&out)?.lm.sha256);
    assert_ne!(shown["merged_sha256"], info.lm.sha256);
    bad(&["model", "merge", base, from, to], 2)?;
    Ok(())
}
