//! Puppeteers of sessions: what is asked of one is checked, what it decided can be read.

use actix_web::{HttpResponse, get};
use chrono::{DateTime, Utc};
use domain::SessionId;
use domain::puppeteer::{PuppeteerDecision, PuppeteerMode, PuppeteerSpec};
use domain::run::FieldFault;
use puppeteer::{Fact, KnowledgeBase};
use rest::{Id, List, Problem};
use serde::Serialize;
use store::StoreError;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::{Shared, State};

/// Most texts of a schedule.
const MAX_SCHEDULE: usize = 200;
/// Longest instructions, characters.
const MAX_INSTRUCTIONS: usize = 4_000;
/// Newest decisions shown.
const DECISIONS: i64 = 1_000;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_puppeteer_decisions);
}

/// A decision of a session's puppeteer.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionView {
    /// Always `puppeteer_decision`.
    #[schema(example = "puppeteer_decision")]
    object: &'static str,
    #[serde(flatten)]
    decision: PuppeteerDecision,
    created_at: DateTime<Utc>,
}

/// List what a session's puppeteer decided.
///
/// Every look at the conversation in its order, the newest 1,000, with how long it took and what came of it.
#[utoipa::path(operation_id = "listPuppeteerDecisions", tag = "sessions",
    params(("id" = SessionId, Path, description = "The session.")),
    responses((status = 200, description = "The decisions.", body = List<DecisionView>)),
    extensions(("x-required-scope" = json!("sessions:read"))))]
#[get("/v1/sessions/{id}/puppeteer-decisions")]
async fn list_puppeteer_decisions(state: Shared, id: Id<SessionId>) -> Result<HttpResponse, Problem> {
    store::sessions::get(&state.store, id.0).await?;
    let decided = store::puppeteers::decisions(&state.store, id.0, DECISIONS).await?;
    let view = |d: store::puppeteers::Decided| DecisionView {
        object: "puppeteer_decision",
        decision: d.decision,
        created_at: d.created_at,
    };
    Ok(HttpResponse::Ok().json(List::whole(decided.into_iter().map(view).collect())))
}

/// What is wrong with a session's puppeteer.
///
/// # Errors
/// When the database is unreachable.
pub async fn faults(state: &State, spec: &PuppeteerSpec) -> Result<Vec<FieldFault>, Problem> {
    let mut faults = form_faults(spec);
    let mut add = |pointer: &str, detail: String| {
        faults.push(FieldFault { pointer: format!("/puppeteer/{pointer}"), detail });
    };
    if let Some(base) = &spec.knowledge_base {
        match store::puppeteers::get(&state.store, &base.replace('\0', "")).await {
            Ok(_) => {}
            Err(StoreError::NotFound { .. }) => {
                let shown: String = base.chars().take(80).collect();
                add("knowledge_base", format!("there is no knowledge base {shown:?}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if spec.mode == PuppeteerMode::Llm && state.puppeteer.advice.model.is_empty() {
        add("mode", "the settings name no model in [puppeteer.advice]".into());
    }
    if let Some(tool) = spec.tool.as_ref().filter(|tool| !state.puppeteer.tools.contains_key(*tool)) {
        let shown: String = tool.chars().take(80).collect();
        add("tool", format!("the settings have no [puppeteer.tools.{shown}]"));
    }
    Ok(faults)
}

/// Faults that need no database.
fn form_faults(spec: &PuppeteerSpec) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, pointer: &str, detail: String| {
        if !holds {
            faults.push(FieldFault { pointer: format!("/puppeteer/{pointer}"), detail });
        }
    };
    let knows = spec.knowledge_base.is_some() || spec.tool.is_some();
    check(
        knows || spec.mode == PuppeteerMode::Scheduled || !spec.schedule.is_empty(),
        "knowledge_base",
        "expected a knowledge base or a tool, or a schedule".into(),
    );
    check(
        spec.mode != PuppeteerMode::Scheduled || !spec.schedule.is_empty(),
        "schedule",
        "mode \"scheduled\" needs at least one text".into(),
    );
    let instructions = spec.instructions.as_deref().unwrap_or_default();
    let characters = instructions.chars().count();
    check(
        characters <= MAX_INSTRUCTIONS && !instructions.contains('\0'),
        "instructions",
        format!("must be at most {MAX_INSTRUCTIONS} characters without NUL, not {characters}"),
    );
    check(
        (1..=200).contains(&spec.max_injections),
        "max_injections",
        format!("must be 1 to 200, not {}", spec.max_injections),
    );
    check(
        (0.0..=600.0).contains(&spec.min_gap_s),
        "min_gap_s",
        format!("must be 0 to 600, not {}", spec.min_gap_s),
    );
    check(
        spec.schedule.len() <= MAX_SCHEDULE,
        "schedule",
        format!("must have at most {MAX_SCHEDULE} texts, not {}", spec.schedule.len()),
    );
    for (number, item) in spec.schedule.iter().take(MAX_SCHEDULE).enumerate() {
        // The same rules as for a stored fact.
        let fact = Fact { id: number.to_string(), text: item.text.clone(), tags: Vec::new() };
        if let Err(error) = KnowledgeBase::new(vec![fact]) {
            check(false, &format!("schedule/{number}/text"), error.to_string());
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use domain::puppeteer::ScheduledContext;

    use super::*;

    fn pointers(spec: &PuppeteerSpec) -> Vec<String> {
        form_faults(spec).into_iter().map(|f| f.pointer).collect()
    }

    #[test]
    fn a_puppeteer_needs_something_to_say_and_its_numbers_have_bounds() {
        let good = PuppeteerSpec { knowledge_base: Some("acme".into()), ..PuppeteerSpec::default() };
        assert_eq!(pointers(&good), Vec::<String>::new());
        assert_eq!(pointers(&PuppeteerSpec::default()), ["/puppeteer/knowledge_base"]);
        let scheduled = PuppeteerSpec { mode: PuppeteerMode::Scheduled, ..PuppeteerSpec::default() };
        assert_eq!(pointers(&scheduled), ["/puppeteer/schedule"]);
        let item = |text: &str| ScheduledContext { frame: 3, text: text.into() };
        let schedule = vec![item("fine"), item(" "), item("no </context>")];
        let bad = PuppeteerSpec {
            max_injections: 0,
            min_gap_s: f64::NAN,
            instructions: Some("x".repeat(4_001)),
            schedule,
            ..scheduled
        };
        assert_eq!(
            pointers(&bad),
            [
                "/puppeteer/instructions",
                "/puppeteer/max_injections",
                "/puppeteer/min_gap_s",
                "/puppeteer/schedule/1/text",
                "/puppeteer/schedule/2/text"
            ]
        );
    }
}
