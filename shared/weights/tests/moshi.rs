//! A plain Moshi model becomes a PersonaPlex model by the published rule, on request only.

mod common;

use std::collections::BTreeMap;

use common::{Outcome, by_step, config, filled, golden, module, per_step, read, write};
use serde::Deserialize;
use weights::{
    CanonicalReader, ConvertOptions, Dtype, InitOptions, ModelConfig, WeightsError, convert, init_model,
    init_model_as, lm_inventory, preset_tokenizer, verify,
};

#[derive(Deserialize)]
struct Row {
    rule: String,
    source: Option<String>,
}

fn table() -> Result<BTreeMap<String, Row>, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(golden("personaplex/checkpoint/dep8_to_dep16.json"))?)?)
}

/// Depformer layers that the table speaks of.
fn layers(table: &BTreeMap<String, Row>) -> i64 {
    let numbers = table.keys().filter_map(|n| n.strip_prefix("depformer.layers.")?.split('.').next());
    numbers.filter_map(|n| n.parse::<i64>().ok()).max().map_or(0, |l| l + 1)
}

#[test]
fn the_moshi_preset_has_the_names_that_the_golden_table_leaves() -> Outcome {
    let of = |name: &str| -> Result<BTreeMap<String, Vec<i64>>, WeightsError> {
        let specs = lm_inventory(&ModelConfig::preset(name)?.lm);
        Ok(specs.into_iter().map(|s| (s.name, s.shape)).collect())
    };
    let (moshi, personaplex, table) = (of("moshi-7b")?, of("personaplex-7b")?, table()?);
    assert_eq!((moshi.len(), personaplex.len()), (355, 475));
    let same = personaplex.iter().filter(|(n, s)| moshi.get(*n) == Some(s)).count();
    assert_eq!(same + table.len(), personaplex.len());
    for (name, row) in &table {
        let found = moshi.get(name);
        assert_eq!(found.is_some(), row.rule == "concat_twice_dim0", "{name}");
        assert!(row.source.as_ref().is_none_or(|s| moshi.contains_key(s)), "{name}");
    }
    Ok(())
}

#[test]
fn every_row_of_the_golden_table_is_followed_in_every_spelling() -> Outcome {
    let table = table()?;
    let root = tempfile::tempdir()?;
    let eight = config(8, layers(&table))?;
    let before = filled(&lm_inventory(&eight.lm));
    let spellings = [before.clone(), per_step(&before, 8), module(&before), by_step(&before, &eight.lm)?];
    for (i, spelled) in spellings.iter().enumerate() {
        let (input, output) =
            (root.path().join(format!("{i}")), root.path().join(format!("{i}.safetensors")));
        write(&input, spelled)?;
        let options =
            ConvertOptions { config: Some(eight.clone()), init_from_moshi: true, ..Default::default() };
        let report = convert(&input, &output, &options)?;
        let after = read(&output)?;
        let mut seen = 0;
        for (name, (dtype, _, bytes)) in &after {
            assert_eq!(*dtype, Dtype::BF16);
            let Some(row) = table.get(name) else {
                assert!(before.get(name).is_some_and(|t| t.2 == *bytes), "{name} is taken over as it is");
                continue;
            };
            seen += 1;
            let source =
                row.source.as_ref().map(|s| before.get(s).ok_or("the source must be there")).transpose()?;
            match (row.rule.as_str(), source) {
                ("copy", Some(source)) => assert!(source.2 == *bytes, "{name}"),
                ("concat_twice_dim0", Some(source)) => {
                    assert!([&source.2[..], &source.2[..]].concat() == *bytes, "{name}");
                }
                ("absent_upstream_fails", None) => assert!(bytes.iter().all(|b| *b == 0), "{name}"),
                (rule, _) => panic!("{name}: no rule {rule}"),
            }
        }
        assert_eq!(seen, table.len());
        let done = report.adaptation.ok_or("must be reported")?;
        let count = |rule: &str| table.values().filter(|r| r.rule == rule).count();
        assert_eq!(done.copied, count("copy"));
        assert_eq!(done.duplicated, count("concat_twice_dim0"));
        assert_eq!(done.zeroed, ["depformer_emb.7.weight"]);
        assert_eq!(done.kept + table.len(), after.len());
        // Who has only the file can see how it was made.
        assert_eq!(report.written.metadata["init_from_moshi"], done.to_string());
        CanonicalReader::open(&output, &lm_inventory(&config(16, layers(&table))?.lm))?;
    }
    Ok(())
}

#[test]
fn a_plain_moshi_file_is_never_taken_for_personaplex_and_the_message_names_the_way() -> Outcome {
    let root = tempfile::tempdir()?;
    let path = root.path().join("m.safetensors");
    let (eight, sixteen) = (config(8, 2)?, config(16, 2)?);
    let tensors = filled(&lm_inventory(&eight.lm));
    for spelled in [tensors.clone(), per_step(&tensors, 8), by_step(&tensors, &eight.lm)?] {
        write(&path, &spelled)?;
        let error =
            CanonicalReader::open(&path, &lm_inventory(&sixteen.lm)).err().ok_or("must be refused")?;
        assert!(matches!(error, WeightsError::PlainMoshi { .. }), "{error}");
        assert!(error.to_string().contains("--init-from-moshi"), "{error}");
    }
    let options = ConvertOptions { config: Some(sixteen.clone()), ..Default::default() };
    let error = convert(&path, &root.path().join("o"), &options).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::PlainMoshi { .. }), "{error}");

    // Asked for, but the file is something else: complete already, or damaged.
    let asked = ConvertOptions { init_from_moshi: true, ..options };
    write(&path, &filled(&lm_inventory(&sixteen.lm)))?;
    let error = convert(&path, &root.path().join("o"), &asked).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::NotMoshi { .. }), "{error}");
    let mut damaged = tensors.clone();
    damaged.remove("linears.3.weight").ok_or("there")?;
    write(&path, &damaged)?;
    let error = convert(&path, &root.path().join("o"), &asked).err().ok_or("must be refused")?;
    assert!(
        matches!(&error, WeightsError::NotMoshi { report, .. } if report.missing == ["linears.3.weight"])
    );
    assert!(!root.path().join("o").exists());
    Ok(())
}

#[test]
fn a_moshi_directory_becomes_a_personaplex_directory() -> Outcome {
    let root = tempfile::tempdir()?;
    let (from, to) = (root.path().join("moshi"), root.path().join("personaplex"));
    init_model_as(&from, &config(8, 2)?, preset_tokenizer("tiny")?, InitOptions::default())?;
    verify(&from)?;
    convert(&from, &to, &ConvertOptions { init_from_moshi: true, ..Default::default() })?;
    assert_eq!(verify(&to)?.config.lm.dep_q, 16);
    let again = ConvertOptions { init_from_moshi: true, ..Default::default() };
    assert!(matches!(convert(&from, &to, &again), Err(WeightsError::Exists { .. })));
    // A complete model is refused, not doubled.
    let complete = root.path().join("complete");
    init_model(&complete, "tiny", 0)?;
    assert!(matches!(convert(&complete, &root.path().join("x"), &again), Err(WeightsError::NotMoshi { .. })));
    Ok(())
}
