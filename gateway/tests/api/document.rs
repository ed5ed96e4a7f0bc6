//! The document is true: committed, complete, and the same as what is served.

use std::collections::HashSet;

use anyhow::{Context, Result};
use gateway::auth::Scope;
use gateway::openapi;
use rest::contract::Contract;
use serde_json::Value;

use crate::access::example_path;
use crate::support::Gateway;

/// Operation ids are a promise to generated clients: none goes away, none changes.
const OPERATIONS: &[&str] = &[
    "createDataset",
    "listDatasets",
    "getDataset",
    "getDatasetFiles",
    "uploadArchive",
    "importDataset",
    "exportDataset",
    "getDatasetReport",
    "getDatasetDesign",
    "releaseDataset",
    "listDialogues",
    "getDialogue",
    "getDialoguePage",
    "getReviewPage",
    "updateDialogue",
    "reviewDialogue",
    "listDomains",
    "createDomain",
    "getDomainSchema",
    "previewDomain",
    "getDomain",
    "getDomainPack",
    "activateDomain",
    "deleteDomain",
    "listJobs",
    "getJob",
    "cancelJob",
    "listJobEvents",
    "createModel",
    "listModels",
    "getModel",
    "createRun",
    "listRuns",
    "getRun",
    "cancelRun",
    "pauseRun",
    "resumeRun",
    "exportRunAdapter",
    "listServedModels",
    "loadModel",
    "unloadModel",
    "listRunMetrics",
    "getRunLossCurve",
    "listRunCheckpoints",
    "createVoice",
    "getVoice",
    "listVoices",
    "createSession",
    "listSessions",
    "getSession",
    "openSessionControl",
    "createSessionContext",
    "listPuppeteerDecisions",
    "createKnowledgeBase",
    "listKnowledgeBases",
    "getKnowledgeBase",
    "deleteKnowledgeBase",
    "openChat",
    "openChatWithTicket",
    "createEvaluation",
    "listEvaluations",
    "getEvaluation",
    "listEvaluationScores",
    "createComparison",
    "listComparisons",
    "getComparison",
    "getComparisonReportJson",
    "getComparisonReportHtml",
    "createApiKey",
    "listApiKeys",
    "getApiKey",
    "revokeApiKey",
    "getLiveness",
    "getReadiness",
    "getOpenApi",
];

#[test]
fn the_committed_document_is_the_current_one() -> Result<()> {
    let path = testkit::workspace_root().join("openapi/openapi.json");
    let committed = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    assert!(committed == openapi::text(), "openapi/openapi.json differs: run `gateway openapi`");
    Ok(())
}

#[test]
fn every_operation_has_a_name_a_scope_a_summary_and_its_refusals() {
    let document = openapi::document();
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no id"));
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            assert!(
                id.starts_with(|c: char| c.is_ascii_lowercase())
                    && id.bytes().all(|b| b.is_ascii_alphanumeric()),
                "{id}"
            );
            let scope = operation["x-required-scope"].as_str().unwrap_or("");
            assert!(scope == "none" || scope.parse::<Scope>().is_ok(), "{id}: {scope:?}");
            for member in ["summary", "tags", "security", "responses"] {
                assert!(!operation[member].is_null(), "{id} has no {member}");
            }
            let responses = operation["responses"].as_object().into_iter().flatten();
            for (status, response) in responses {
                let is_problem = status.starts_with('4') || status.starts_with('5');
                assert_eq!(
                    is_problem,
                    response["$ref"] == format!("#/components/responses/Problem{status}"),
                    "{id} {status}"
                );
                assert!(is_problem || response["description"].is_string(), "{id} {status}");
            }
            if let Some(body) =
                operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str()
            {
                let name = body.rsplit('/').next().unwrap_or("");
                assert!(
                    document["components"]["schemas"][name]["example"].is_object(),
                    "{name} has no example"
                );
            }
        }
    }
    assert_eq!(ids, OPERATIONS.iter().map(|id| (*id).to_owned()).collect());
}

#[test]
fn closed_lists_are_written_as_they_are_sent() {
    let schemas = &openapi::document()["components"]["schemas"];
    let codes: Vec<_> = domain::ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(schemas["ErrorCode"]["enum"], serde_json::json!(codes));
    let scopes: Vec<_> = Scope::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(schemas["Scope"]["enum"], serde_json::json!(scopes));
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    fn references<'v>(value: &'v Value, into: &mut HashSet<&'v str>) {
        match value {
            Value::Object(members) => {
                if let Some(target) = members.get("$ref").and_then(Value::as_str) {
                    into.insert(target);
                }
                members.values().for_each(|v| references(v, into));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, into)),
            _ => {}
        }
    }
    let document = openapi::document();
    let mut targets = HashSet::new();
    references(document, &mut targets);
    for target in &targets {
        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target} does not exist");
    }
    for name in document["components"]["schemas"].as_object().into_iter().flatten().map(|(name, _)| name) {
        assert!(targets.contains(format!("#/components/schemas/{name}").as_str()), "{name} is not used");
    }
}

#[tokio::test]
async fn every_documented_operation_is_served() -> Result<()> {
    let gateway = Gateway::start().await?;
    assert_eq!(gateway.get("/openapi.json").await?.text, openapi::text());
    for operation in Contract::read(openapi::document()).operations() {
        let request = gateway.request(operation.method.as_str().parse()?, &example_path(operation));
        let answer = crate::support::Answer::read(request.send().await?).await?;
        let code = answer.body["code"].as_str().unwrap_or("");
        assert!(
            !["route_not_found", "method_not_allowed", "internal"].contains(&code),
            "{}: {answer:?}",
            operation.id
        );
        let documented =
            &openapi::document()["paths"][&operation.path][operation.method.as_str().to_lowercase()];
        let status = answer.status.to_string();
        assert!(
            !documented["responses"][&status].is_null(),
            "{} answers {status}: {}",
            operation.id,
            answer.text
        );
    }
    Ok(())
}
