//! Pages to read: one dialogue, and the list with which dialogues are reviewed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::http::header;
use actix_web::{HttpResponse, get};
use domain::DialogueId;
use domain::dialogue::{Speaker, Turn};
use drafting::brief;
use drafting::validate::placement_of;
use minijinja::{AutoEscape, Environment};
use rest::{Id, Problem, REPORT_CSP};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use store::dialogues::Dialogue;

use crate::Shared;

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates.add_template("dialogue", include_str!("page.html")).expect("a test renders it");
    templates
});

const REVIEW: &str = include_str!("review.html");

/// What the review page may do: run its own script, talk to this server, show the page of a dialogue in a frame.
static REVIEW_CSP: LazyLock<String> = LazyLock::new(|| {
    use base64::Engine as _;
    let script = REVIEW.split_once("<script>").and_then(|(_, rest)| rest.split_once("</script>"));
    let digest = Sha256::digest(script.map_or("", |(script, _)| script));
    let hash = base64::engine::general_purpose::STANDARD.encode(digest);
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// A turn with what follows it.
#[derive(Serialize)]
struct Line<'a> {
    index: u32,
    side: &'static str,
    text: &'a str,
    faults: Vec<&'a str>,
    injections: Vec<Note<'a>>,
}

#[derive(Serialize)]
struct Note<'a> {
    number: usize,
    placement: &'static str,
    text: &'a str,
}

fn lines<'a>(dialogue: &'a Dialogue) -> Vec<Line<'a>> {
    let record = &dialogue.record;
    let notes = |index: u32| {
        let here = record.context_injections.iter().enumerate().filter(move |(_, i)| i.after_turn == index);
        here.map(|(number, i)| Note {
            number,
            placement: match placement_of(record, i.after_turn) {
                Some(domain::injection::Placement::Proactive) => "proactive",
                Some(domain::injection::Placement::Reactive) => "reactive",
                None => "nowhere",
            },
            text: &i.text,
        })
    };
    let line = |turn: &'a Turn| {
        let about = format!("turn {} ", turn.index);
        let faults = dialogue.faults.iter().filter(|f| f.detail.starts_with(&about));
        let mut codes: Vec<&str> = faults.map(|f| f.code.as_str()).collect();
        codes.dedup();
        Line {
            index: turn.index,
            side: if turn.speaker == Speaker::Agent { "agent" } else { "user" },
            text: &turn.text,
            faults: codes,
            injections: notes(turn.index).collect(),
        }
    };
    record.turns.iter().map(line).collect()
}

/// Get a dialogue as a page.
///
/// Turns with the injections in their places, the brief, and every rule that the dialogue breaks. The page needs nothing
/// from elsewhere and runs no script.
#[utoipa::path(operation_id = "getDialoguePage", tag = "datasets", params(("id" = DialogueId, Path, description = "The dialogue.")),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/dialogues/{id}/page")]
pub(super) async fn get_dialogue_page(state: Shared, id: Id<DialogueId>) -> Result<HttpResponse, Problem> {
    let dialogue = store::dialogues::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, REPORT_CSP))
        .body(render(&dialogue).map_err(Problem::internal)?))
}

fn render(dialogue: &Dialogue) -> Result<String, minijinja::Error> {
    let record = &dialogue.record;
    let sections: Vec<(&str, Vec<&str>)> = brief::parse(&record.text_prompt)
        .unwrap_or_else(|| vec![("BRIEF", &record.text_prompt)])
        .into_iter()
        .map(|(label, body)| (label, body.split(brief::FACT_SEPARATOR).collect()))
        .collect();
    let titles: BTreeMap<&str, &str> =
        dialogue.faults.iter().map(|f| (f.code.as_str(), f.code.title())).collect();
    TEMPLATES.get_template("dialogue")?.render(minijinja::value::Serde(json!({
        "id": dialogue.id.to_string(),
        "record_id": record.id,
        "domain": record.domain,
        "model": record.model,
        "row": dialogue.row,
        "status": dialogue.status.as_str(),
        "attempts": dialogue.attempts,
        "revision": dialogue.revision,
        "review": dialogue.review,
        "faults": dialogue.faults.iter().map(|f| (f.code.as_str(), &f.detail)).collect::<Vec<_>>(),
        "titles": titles,
        "sections": sections,
        "values": record.seed,
        "lines": lines(dialogue),
        "injections": record.context_injections.len(),
    })))
}

/// Get the page for reviews.
///
/// Asks for an API key, then lists, shows, corrects, approves and rejects dialogues through this API.
#[utoipa::path(operation_id = "getReviewPage", tag = "datasets",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/review")]
pub(super) async fn get_review_page() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, REVIEW_CSP.as_str()))
        .body(REVIEW)
}
