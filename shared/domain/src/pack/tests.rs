#![expect(clippy::expect_used, reason = "tests")]

use super::*;

const PHARMA: &str = include_str!("../../../../configs/domains/pharma_adherence.yaml");

fn pointers(text: &str) -> Vec<String> {
    DomainPack::from_yaml(text).expect_err("has faults").0.into_iter().map(|f| f.pointer).collect()
}

#[test]
fn the_packs_that_are_built_in_pass_every_check() {
    let ids: Vec<String> = [
        include_str!("../../../../configs/domains/insurance_brokerage.yaml"),
        include_str!("../../../../configs/domains/pharma_adherence.yaml"),
    ]
    .iter()
    .map(|text| match DomainPack::from_yaml(text) {
        Ok(pack) => pack.id,
        Err(faults) => panic!("{faults}"),
    })
    .collect();
    assert_eq!(ids, built_in().into_iter().map(|(id, _)| id).collect::<Vec<_>>());
    assert_eq!(ids, ["insurance_brokerage", "pharma_adherence"]);
}

#[test]
fn a_pack_survives_being_written_and_read() {
    for (_, pack) in built_in() {
        let text = serde_yaml_ng::to_string(&serde_json::to_value(&pack).expect("is JSON")).expect("is YAML");
        assert_eq!(DomainPack::from_yaml(&text).expect("reads"), pack);
    }
}

#[test]
fn every_key_with_a_fault_of_shape_is_named_at_once() {
    let text = PHARMA
        .replacen("version: 2", "version: one", 1)
        .replacen("min_turns: 16", "min_turns: -3", 1)
        .replacen("short: phar", "shrt: phar", 1);
    assert_eq!(pointers(&text), ["/version", "/short", "/call/min_turns", "/shrt"]);
}

#[test]
fn every_contradiction_is_named_at_once() {
    let text = PHARMA
        .replacen("id: resolved, w: 0.3", "id: resolved, w: 0.9", 1)
        .replacen("{scenario: [routine_check]}", "{scenario: [routine_chek]}", 1)
        .replacen("\"You would pay {copay}.\"", "\"You would pay {copey}, or {long_price}.\"", 1)
        .replacen("joint: [[outcome, injection_count]]", "joint: [[outcome, injections]]", 1);
    assert_eq!(
        pointers(&text),
        [
            "/axes/6/values",
            "/joint/0/1",
            "/grammar/facts/0/reply/2",
            "/grammar/facts/0/reply/2",
            "/grammar/exchanges/0/when/scenario",
        ]
    );
}

#[test]
fn an_agent_line_with_a_fact_outside_the_brief_is_refused() {
    let text = PHARMA.replacen("At what time do you take it?", "You pay {copay}, all right?", 1);
    let faults = DomainPack::from_yaml(&text).expect_err("the agent cannot know the copay").0;
    assert_eq!(faults.len(), 1);
    assert!(faults.iter().all(|f| f.detail.contains("\"copay\"")), "{faults:?}");
}

#[test]
fn figures_in_an_agent_line_and_a_hedge_that_is_none_are_refused() {
    let text = PHARMA.replacen("Do you use a pill box", "For $99, do you use a pill box", 1).replacen(
        "I will check the record.",
        "Of course.",
        1,
    );
    assert_eq!(pointers(&text), ["/grammar/exchanges/37/agent/0", "/grammar/hedges/4"]);
}

#[test]
fn a_key_that_comes_twice_is_refused() {
    assert!(DomainPack::from_yaml(&format!("{PHARMA}\nid: again\n")).is_err());
}

#[test]
fn other_encodings_are_named_with_the_offset_of_the_first_wrong_byte() {
    let detail = |bytes: &[u8]| DomainPack::from_bytes(bytes).expect_err("wrong encoding").to_string();
    let utf16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(PHARMA.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert!(detail(&utf16).contains("byte 0 is not UTF-8; the text looks like UTF-16LE"));
    assert!(detail(&utf16[2..]).contains("looks like UTF-16LE"));
    assert!(detail(b"title: caf\xe9\n").contains("byte 10 is not UTF-8; the text looks like Latin-1"));
    assert!(detail(b"title: a\0b\n").contains("byte 8 is NUL"));
    let marked: Vec<u8> = b"\xef\xbb\xbf".iter().chain(PHARMA.as_bytes()).copied().collect();
    assert!(DomainPack::from_bytes(&marked).is_ok());
}

#[test]
fn lone_surrogates_are_refused() {
    let text = PHARMA.replacen("\"Pharmacy adherence calls\"", r#""\ud800""#, 1);
    assert!(DomainPack::from_yaml(&text).is_err());
}

#[test]
fn the_schema_names_every_key_refers_to_what_it_holds_and_allows_numbers_as_ids_of_levels() {
    let schema = DomainPack::json_schema();
    let (_, pack) = built_in().swap_remove(0);
    let keys = serde_json::to_value(&pack).expect("is JSON");
    for key in keys.as_object().expect("is a mapping").keys() {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    let text = schema.to_string();
    for reference in text.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(schema["$defs"][reference].is_object(), "{reference}");
    }
    assert!(!text.contains("#/components/"));
    assert_eq!(
        schema["$defs"]["AxisValue"]["properties"]["id"]["type"],
        serde_json::json!(["string", "integer"])
    );
}
