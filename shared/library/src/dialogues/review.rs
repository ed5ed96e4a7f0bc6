//! Corrections and decisions by people.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, patch, post};
use chrono::SubsecRound;
use domain::dialogue::{DialogueRecord, Review, Speaker, Turn};
use domain::injection::Injection;
use domain::run::FieldFault;
use domain::{DialogueId, ErrorCode};
use rest::{Caller, Id, Posted, Problem};
use serde::Deserialize;
use store::dialogues::review;
use utoipa::ToSchema;

use super::{DialogueView, answer};
use crate::{Shared, State};

/// Most turns, injections and characters of a text that a correction may have; the rules of the domain are narrower.
const MAX_TURNS: usize = 200;
const MAX_INJECTIONS: usize = 40;
const MAX_CHARS: usize = 8_000;

/// A correction; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"turns": [{"speaker": "AGENT", "text": "Hello, this is Nova."}, {"speaker": "USER", "text": "Hi."}]}))]
pub struct UpdateDialogue {
    /// The brief: its labelled lines.
    #[schema(max_length = 8000)]
    text_prompt: Option<String>,
    /// All turns in order.
    #[schema(max_items = 200)]
    turns: Option<Vec<TurnText>>,
    /// All injections, sorted by turn.
    #[schema(max_items = 40)]
    context_injections: Option<Vec<InjectionText>>,
}

/// A turn without its position.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnText {
    speaker: Speaker,
    text: String,
}

/// An injection that has no place on the frame grid yet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectionText {
    /// Index of the turn it follows.
    after_turn: u32,
    text: String,
}

impl UpdateDialogue {
    fn faults(&self) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let mut most = |pointer: &str, found: usize, most: usize| {
            if found > most {
                faults.push(FieldFault {
                    pointer: pointer.into(),
                    detail: format!("has {found}; at most {most}"),
                });
            }
        };
        let turns = self.turns.as_deref().unwrap_or_default();
        let injections = self.context_injections.as_deref().unwrap_or_default();
        most("/turns", turns.len(), MAX_TURNS);
        most("/context_injections", injections.len(), MAX_INJECTIONS);
        let texts =
            turns.iter().map(|t| &t.text).chain(injections.iter().map(|i| &i.text)).chain(&self.text_prompt);
        if let Some(long) = texts.clone().map(|t| t.chars().count()).max() {
            most("", long, MAX_CHARS);
        }
        if texts.clone().any(|t| t.contains('\0')) {
            faults.push(FieldFault { pointer: String::new(), detail: "a text has a NUL".into() });
        }
        faults
    }

    fn apply(self, mut record: DialogueRecord) -> DialogueRecord {
        if let Some(text) = self.text_prompt {
            record.text_prompt = text.trim().to_owned();
        }
        if let Some(turns) = self.turns {
            let turn = |(index, t): (u32, TurnText)| Turn {
                index,
                speaker: t.speaker,
                text: t.text.trim().to_owned(),
            };
            record.turns = (0..).zip(turns).map(turn).collect();
        }
        if let Some(injections) = self.context_injections {
            let injection = |i: InjectionText| Injection {
                after_turn: i.after_turn,
                text: i.text.trim().to_owned(),
                frame_offset: None,
            };
            record.context_injections = injections.into_iter().map(injection).collect();
        }
        record
    }
}

/// A decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"decision": "reject", "reason": "the client changes her name in turn 9"}))]
pub struct ReviewDialogue {
    decision: Decision,
    /// Why; required for a rejection.
    #[schema(max_length = 2000)]
    reason: Option<String>,
}

/// What a person says about a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is rendered.
    Approve,
    /// It is left out, with the reason in `rejects.jsonl`.
    Reject,
}

/// The revision that the request is about.
fn if_match(req: &HttpRequest) -> Result<u64, Problem> {
    let Some(given) = req.headers().get(header::IF_MATCH) else {
        let detail = "If-Match must name the ETag of the dialogue that the change is about";
        return Err(Problem::new(ErrorCode::PreconditionRequired, detail));
    };
    let text = given.to_str().unwrap_or("");
    let number = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).and_then(|t| t.parse().ok());
    number.ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("If-Match: expected an ETag such as \"3\", not {shown:?}"),
        )
    })
}

/// Correct a dialogue.
///
/// The corrected record is checked against every rule again: it is `valid` or `invalid` after it, and a decision that was
/// made before no longer holds. Only dialogues of a dataset with `approved_only` change, and only before its release.
#[utoipa::path(operation_id = "updateDialogue", tag = "datasets", request_body = UpdateDialogue,
    params(("id" = DialogueId, Path, description = "The dialogue."),
        ("If-Match" = String, Header, description = "`ETag` of the dialogue that was read.", example = "\"1\"")),
    responses((status = 200, description = "The dialogue as it is now.", body = DialogueView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[patch("/v1/dialogues/{id}")]
pub(super) async fn update_dialogue(
    state: Shared,
    req: HttpRequest,
    id: Id<DialogueId>,
    posted: Posted<UpdateDialogue>,
) -> Result<HttpResponse, Problem> {
    let (revision, update) = (if_match(&req)?, posted.body);
    let faults = update.faults();
    if !faults.is_empty() {
        return Err(Problem::fields(faults));
    }
    let dialogue = store::dialogues::get(&state.store, id.0).await?;
    let spec = store::datasets::get(&state.store, dialogue.dataset_id).await?.spec;
    let pack = crate::domains::pack_of(&state, &spec).await?;
    let record = update.apply(dialogue.record);
    let faults = drafting::validate::faults(&pack, &record);
    let mut tx = state.store.begin().await?;
    let changed = review::edit(&mut tx, id.0, revision, &record, &faults).await?;
    store::commit(tx).await?;
    Ok(answer(changed))
}

/// Approve or reject a dialogue.
#[utoipa::path(operation_id = "reviewDialogue", tag = "datasets", request_body = ReviewDialogue,
    params(("id" = DialogueId, Path, description = "The dialogue."),
        ("If-Match" = String, Header, description = "`ETag` of the dialogue that was read.", example = "\"1\"")),
    responses((status = 200, description = "The dialogue as it is now.", body = DialogueView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/dialogues/{id}/review")]
pub(super) async fn review_dialogue(
    state: Shared,
    req: HttpRequest,
    id: Id<DialogueId>,
    caller: Caller,
    posted: Posted<ReviewDialogue>,
) -> Result<HttpResponse, Problem> {
    let (revision, ReviewDialogue { decision, reason }) = (if_match(&req)?, posted.body);
    let reason = reason.map(|r| r.trim().to_owned()).filter(|r| !r.is_empty());
    if reason.as_ref().is_some_and(|r| r.chars().count() > 2_000 || r.contains('\0')) {
        return Err(Problem::field("/reason", "must be a text of at most 2000 characters"));
    }
    if decision == Decision::Reject && reason.is_none() {
        return Err(Problem::field("/reason", "a rejection needs a reason"));
    }
    let review =
        Review { by: key_name(&state, &caller).await?, reason, at: chrono::Utc::now().trunc_subsecs(0) };
    let mut tx = state.store.begin().await?;
    let changed = review::decide(&mut tx, id.0, revision, decision == Decision::Approve, &review).await?;
    store::commit(tx).await?;
    Ok(answer(changed))
}

/// Name of the key that calls.
async fn key_name(state: &State, caller: &Caller) -> Result<String, Problem> {
    Ok(store::api_keys::get(&state.store, caller.key).await?.name)
}
