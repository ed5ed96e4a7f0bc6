//! Dialogues as people work on them: found, read, corrected, decided about, released.

use std::time::Duration;

use anyhow::{Context, Result};
use chassis::Completion;
use domain::dialogue::DialogueRecord;
use domain::job::{JobKind, JobSpec};
use domain::pack::DomainPack;
use drafting::grammar::generate;
use drafting::sampler::Design;
use reqwest::Method;
use serde_json::{Value, json};
use store::dialogues::NewDialogue;
use store::leases;

use crate::support::{Answer, Gateway};

/// A dataset that waits for approval, its dialogues written; the second one breaks a rule.
async fn written(gateway: &Gateway) -> Result<(String, Vec<DialogueRecord>)> {
    let body = json!({"name": "calls", "domain": "pharma_adherence", "dialogues": 6, "seed": 5, "approved_only": true});
    let made = gateway.post("/v1/datasets", &body).await?;
    anyhow::ensure!(made.status == 201, "{made:?}");
    assert_eq!(made.body["job_id"], Value::Null, "nothing is spoken before the release");
    let (_, pack) = domain::pack::built_in().pop().context("pharma")?;
    let design = Design::new(&pack, 6, 5)?;
    let mut records = Vec::new();
    while let Some(job) =
        leases::claim_next(&gateway.store, JobKind::Generate, "test", Duration::from_secs(30)).await?
    {
        let JobSpec::Generate { dataset_id, rows } = job.spec else { panic!("{:?}", job.spec) };
        let mut dialogues = Vec::new();
        for row in rows.rows() {
            let mut record = generate(&pack, &design, row, 5)?;
            if row == 1 {
                record.turns[2].text.push_str(" It costs $987.65 & <b>more</b>.");
            }
            let faults = drafting::validate::faults(&pack, &record);
            records.push(record.clone());
            dialogues.push(NewDialogue { faults, ..NewDialogue::from((row, record)) });
        }
        leases::finish(&gateway.store, job.claim, Completion::Generated { dataset: dataset_id, dialogues })
            .await?;
    }
    Ok((made.body["id"].as_str().context("id")?.to_owned(), records))
}

async fn found(gateway: &Gateway, dataset: &str, filter: &str) -> Result<Vec<Value>> {
    let answer = gateway.get(&format!("/v1/dialogues?order=asc&dataset_id={dataset}{filter}")).await?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    Ok(answer.body["data"].as_array().cloned().unwrap_or_default())
}

async fn change(
    gateway: &Gateway,
    method: Method,
    path: &str,
    tag: Option<&str>,
    body: &Value,
) -> Result<Answer> {
    let mut request = gateway.request(method, path).json(body);
    if let Some(tag) = tag {
        request = request.header("if-match", tag);
    }
    Answer::read(request.send().await?).await
}

#[tokio::test]
async fn dialogues_are_found_by_status_rule_axis_job_and_words() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (dataset, records) = written(&gateway).await?;
    assert_eq!(found(&gateway, &dataset, "").await?.len(), 6);
    let invalid = found(&gateway, &dataset, "&status=invalid").await?;
    assert_eq!(invalid.len(), 1);
    assert_eq!(invalid, found(&gateway, &dataset, "&code=V08").await?);
    assert_eq!(invalid, found(&gateway, &dataset, "&q=987.65").await?);
    assert_eq!(found(&gateway, &dataset, "&code=V01").await?.len(), 0);
    assert_eq!(found(&gateway, &dataset, "&q=recorded%20-987.65").await?.len(), 5);
    let tenor = &records[3].seed["tenor"];
    let wanted = records.iter().filter(|r| r.seed["tenor"] == *tenor).count();
    assert_eq!(found(&gateway, &dataset, &format!("&axis=tenor:{tenor}")).await?.len(), wanted);
    let both = format!("&axis=tenor:{tenor},drug:{}", records[3].seed["drug"]);
    assert_eq!(found(&gateway, &dataset, &both).await?.len(), 1);
    let jobs = gateway.get("/v1/jobs?kind=generate&order=asc").await?.body;
    let job = jobs["data"][1]["id"].as_str().context("a second shard")?;
    assert_eq!(found(&gateway, &dataset, &format!("&job_id={job}")).await?.len(), 2);
    for bad in ["status=fine", "code=V99", "axis=tenor", "axis=:x", "job_id=x", "q=%00"] {
        let answer = gateway.get(&format!("/v1/dialogues?{bad}")).await?;
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
    }
    Ok(())
}

#[tokio::test]
async fn a_correction_is_checked_again_and_names_the_revision_it_saw() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (dataset, _) = written(&gateway).await?;
    let broken = found(&gateway, &dataset, "&status=invalid").await?.pop().context("one is invalid")?;
    let path = format!("/v1/dialogues/{}", broken["id"].as_str().context("id")?);
    assert_eq!(gateway.get(&path).await?.header("etag"), "\"1\"");
    let turns: Vec<Value> = broken["record"]["turns"]
        .as_array()
        .context("turns")?
        .iter()
        .map(|t| {
            let text = t["text"].as_str().unwrap_or("").replace(" It costs $987.65 & <b>more</b>.", "");
            json!({"speaker": t["speaker"], "text": text})
        })
        .collect();
    let body = json!({ "turns": turns });
    change(&gateway, Method::PATCH, &path, None, &body).await?.assert_problem(428, "precondition_required");
    change(&gateway, Method::PATCH, &path, Some("\"7\""), &body)
        .await?
        .assert_problem(412, "precondition_failed");
    change(&gateway, Method::PATCH, &path, Some("W/x"), &body).await?.assert_problem(400, "invalid_request");
    let long = json!({"text_prompt": "x".repeat(9_000)});
    change(&gateway, Method::PATCH, &path, Some("\"1\""), &long)
        .await?
        .assert_problem(422, "validation_failed");
    let approve = json!({"decision": "approve"});
    let review = format!("{path}/review");
    change(&gateway, Method::POST, &review, Some("\"1\""), &approve).await?.assert_problem(409, "conflict");
    let fixed = change(&gateway, Method::PATCH, &path, Some("\"1\""), &body).await?;
    assert_eq!((fixed.status, fixed.header("etag")), (200, "\"2\""), "{}", fixed.text);
    assert_eq!((&fixed.body["status"], &fixed.body["faults"]), (&json!("valid"), &json!([])));
    change(&gateway, Method::PATCH, &path, Some("\"1\""), &body)
        .await?
        .assert_problem(412, "precondition_failed");
    let approved = change(&gateway, Method::POST, &review, Some("\"2\""), &approve).await?;
    assert_eq!(approved.body["status"], "approved", "{}", approved.text);
    assert_eq!(approved.body["review"]["by"], "bootstrap");
    let undone = change(&gateway, Method::PATCH, &path, Some("\"3\""), &json!({"turns": []})).await?;
    assert_eq!((&undone.body["status"], &undone.body["review"]), (&json!("invalid"), &Value::Null));
    Ok(())
}

#[tokio::test]
async fn two_people_who_change_a_dialogue_at_once_do_not_overwrite_each_other() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (dataset, _) = written(&gateway).await?;
    let one = found(&gateway, &dataset, "&status=valid").await?.pop().context("one is valid")?;
    let path = format!("/v1/dialogues/{}/review", one["id"].as_str().context("id")?);
    let body = json!({"decision": "reject", "reason": "dull"});
    let calls = (0..8).map(|_| change(&gateway, Method::POST, &path, Some("\"1\""), &body));
    let statuses: Vec<u16> =
        futures::future::join_all(calls).await.into_iter().map(|a| a.map_or(0, |a| a.status)).collect();
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 412).count(), 7, "{statuses:?}");
    Ok(())
}

#[tokio::test]
async fn only_approved_dialogues_go_on_and_after_the_release_none_changes() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (dataset, _) = written(&gateway).await?;
    let release = format!("/v1/datasets/{dataset}/release");
    gateway.post(&release, &json!({})).await?.assert_problem(409, "conflict");
    let all = found(&gateway, &dataset, "&status=valid").await?;
    let path = |d: &Value| format!("/v1/dialogues/{}/review", d["id"].as_str().unwrap_or(""));
    let no_reason = json!({"decision": "reject"});
    change(&gateway, Method::POST, &path(&all[0]), Some("\"1\""), &no_reason)
        .await?
        .assert_problem(422, "validation_failed");
    for dialogue in &all[1..3] {
        let done =
            change(&gateway, Method::POST, &path(dialogue), Some("\"1\""), &json!({"decision": "approve"}))
                .await?;
        assert_eq!(done.status, 200, "{}", done.text);
    }
    let released = gateway.post(&release, &json!({})).await?;
    assert_eq!(released.status, 200, "{}", released.text);
    assert!(released.body["job_id"].is_string() && released.body["released_at"].is_string());
    assert_eq!(released.body["progress"]["total"], 2 + 2 * 2 + 1);
    gateway.post(&release, &json!({})).await?.assert_problem(409, "conflict");
    change(&gateway, Method::POST, &path(&all[0]), Some("\"1\""), &json!({"decision": "approve"}))
        .await?
        .assert_problem(409, "conflict");
    let design = gateway.get(&format!("/v1/datasets/{dataset}/design")).await?;
    assert_eq!(design.body["design"]["rows"], 6, "{}", design.text);
    let sums: u64 = design.body["outcomes"]["tenor"]
        .as_object()
        .context("tenor")?
        .values()
        .filter_map(|v| v["approved"].as_u64())
        .sum();
    assert_eq!(sums, 2);
    Ok(())
}

#[tokio::test]
async fn a_dialogue_is_a_page_in_which_nothing_of_a_text_runs() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (dataset, records) = written(&gateway).await?;
    let broken = found(&gateway, &dataset, "&status=invalid").await?.pop().context("one is invalid")?;
    let page = gateway.get(broken["page"].as_str().context("page")?).await?;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    assert!(page.text.contains("$987.65 &amp; &lt;b&gt;more&lt;&#x2f;b&gt;"), "{}", page.text);
    assert!(page.text.contains("V08") && page.text.contains(&records[1].id));
    for injection in &records[1].context_injections {
        assert!(page.text.contains("injection 0"), "{}", injection.text);
    }
    let list = Answer::read(gateway.bare(Method::GET, "/review").send().await?).await?;
    assert_eq!(list.status, 200);
    let csp = list.header("content-security-policy");
    assert!(csp.contains("script-src 'sha256-") && !csp.contains("unsafe-eval"), "{csp}");
    for elsewhere in ["http://", "https://", "//cdn"] {
        assert!(!list.text.contains(elsewhere) && !page.text.contains(elsewhere));
    }
    Ok(())
}

fn own_pack(version: u32) -> Value {
    let (_, pack) = domain::pack::built_in().pop().expect("pharma ships");
    let own = DomainPack { id: "own_domain".into(), short: "own".into(), version, ..pack };
    serde_json::to_value(own).expect("is JSON")
}

#[tokio::test]
async fn a_domain_is_added_as_a_draft_used_once_activated_and_retired() -> Result<()> {
    let gateway = Gateway::start().await?;
    let made = gateway.post("/v1/domains", &json!({ "pack": own_pack(1) })).await?;
    assert_eq!((made.status, &made.body["state"]), (201, &json!("draft")), "{}", made.text);
    let dataset = |name: &str| json!({"name": name, "domain": "own_domain", "dialogues": 4});
    let early = gateway.post("/v1/datasets", &dataset("early")).await?;
    early.assert_problem(422, "validation_failed");
    gateway.post("/v1/domains", &json!({ "pack": own_pack(1) })).await?.assert_problem(409, "name_taken");
    let active = gateway.post("/v1/domains/own_domain/activate", &json!({"version": 1})).await?;
    assert_eq!(active.body["state"], "active", "{}", active.text);
    let used = gateway.post("/v1/datasets", &dataset("one")).await?;
    assert_eq!((used.status, &used.body["spec"]["domain_version"]), (201, &json!(1)), "{}", used.text);
    assert_eq!(gateway.post("/v1/domains", &json!({ "pack": own_pack(2) })).await?.status, 201);
    gateway
        .post("/v1/domains/own_domain/activate", &json!({"version": 3}))
        .await?
        .assert_problem(404, "not_found");
    gateway.post("/v1/domains/own_domain/activate", &json!({"version": 2})).await?;
    let pack = gateway.get("/v1/domains/own_domain/pack?version=1").await?;
    assert_eq!(pack.body["version"], 1);
    let deleted =
        Answer::read(gateway.request(Method::DELETE, "/v1/domains/own_domain").send().await?).await?;
    assert_eq!(deleted.status, 204);
    gateway.get("/v1/domains/own_domain").await?.assert_problem(404, "not_found");
    let ships =
        Answer::read(gateway.request(Method::DELETE, "/v1/domains/pharma_adherence").send().await?).await?;
    ships.assert_problem(409, "conflict");
    Ok(())
}

#[tokio::test]
async fn every_fault_of_a_pack_is_told_by_field_and_one_that_cannot_be_spoken_is_refused() -> Result<()> {
    let gateway = Gateway::start().await?;
    let mut pack = own_pack(1);
    pack["call"]["min_turns"] = json!(-3);
    pack["shrt"] = json!("x");
    let refused = gateway.post("/v1/domains", &json!({ "pack": pack })).await?;
    refused.assert_problem(422, "validation_failed");
    let pointers: Vec<&str> = refused.body["errors"]
        .as_array()
        .context("errors")?
        .iter()
        .filter_map(|e| e["pointer"].as_str())
        .collect();
    assert_eq!(pointers, ["/pack/call/min_turns", "/pack/shrt"]);
    let mut pack = own_pack(1);
    pack["grammar"]["closing"]["agent"] = json!(["I guarantee it."]);
    let refused = gateway.post("/v1/domains", &json!({ "pack": pack })).await?;
    assert!(refused.text.contains("V13"), "{}", refused.text);
    Ok(())
}

#[tokio::test]
async fn a_preview_shows_prompts_dialogue_and_design_of_a_row() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"domain": "insurance_brokerage", "dialogues": 60, "seed": 3, "row": 7});
    let preview = gateway.post("/v1/domains/preview", &body).await?;
    assert_eq!(preview.status, 200, "{}", preview.text);
    assert_eq!(preview.body["faults"], json!([]));
    assert_eq!(preview.body["dialogue"]["design"]["row"], 7);
    assert_eq!(preview.body["design"]["axes"].as_array().map(Vec::len), Some(8));
    assert!(
        preview.body["system_prompt"].as_str().is_some_and(|t| t.contains("commercial insurance broker"))
    );
    assert!(preview.body["message"].as_str().is_some_and(|t| t.contains("injections")));
    let again = gateway.post("/v1/domains/preview", &body).await?;
    assert_eq!(again.body, preview.body);
    for bad in [json!({}), json!({"domain": "astrology"}), json!({"domain": "pharma_adherence", "row": 100})]
    {
        gateway.post("/v1/domains/preview", &bad).await?.assert_problem(422, "validation_failed");
    }
    Ok(())
}

#[tokio::test]
async fn a_dataset_that_extends_another_continues_its_design() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "calls", "domain": "pharma_adherence", "dialogues": 20, "seed": 9});
    let base = gateway.post("/v1/datasets", &body).await?;
    let id = base.body["id"].as_str().context("id")?;
    let with = |dialogues: u32, seed: u64| json!({"name": "calls", "domain": "pharma_adherence", "dialogues": dialogues, "seed": seed, "extends": id});
    let more = gateway.post("/v1/datasets", &with(50, 9)).await?;
    assert_eq!(more.status, 201, "{}", more.text);
    assert_eq!((&more.body["spec"]["blocks"], &more.body["version"]), (&json!([20, 30]), &json!(2)));
    for wrong in [with(20, 9), with(50, 8)] {
        gateway.post("/v1/datasets", &wrong).await?.assert_problem(422, "validation_failed");
    }
    let path = format!("/v1/datasets/{}/design", more.body["id"].as_str().context("id")?);
    let design = gateway.get(&path).await?.body;
    assert_eq!(design["design"]["blocks"], json!([20, 30]));
    Ok(())
}
