//! The OpenAPI 3.1 document: collected from the handlers, then completed with what is true of every operation.

use std::sync::LazyLock;

use rest::contract::SCOPE_EXTENSION;
use rest::problem::{FieldError, PROBLEM_JSON, ProblemBody};
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_actix_web::AppExt;

use crate::auth::Scope;
use crate::routes;

static DOCUMENT: LazyLock<Value> = LazyLock::new(build);
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let text = serde_json::to_string_pretty(document()).expect("a document is plain JSON");
    format!("{text}\n")
});

/// The document.
#[must_use]
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// The document as it is served and committed.
#[must_use]
pub fn text() -> &'static str {
    &TEXT
}

/// What does not come from handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Plexforge",
        description = "Synthetic calls, fine-tuning and serving of full-duplex speech models. Errors are problems \
                       (RFC 9457); lists are cursor pages; every POST accepts an Idempotency-Key.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/", description = "This gateway.")),
    components(schemas(ProblemBody, FieldError, Scope)),
    tags(
        (name = "datasets", description = "Domains, datasets and their dialogues."),
        (name = "jobs", description = "The durable work behind everything."),
        (name = "models", description = "Base and merged models, and voices."),
        (name = "runs", description = "Trainings."),
        (name = "sessions", description = "Live conversations."),
        (name = "evaluations", description = "Evaluations and comparisons."),
        (name = "api-keys", description = "Keys of this API."),
        (name = "health", description = "The gateway itself.")
    )
)]
struct Base;

fn build() -> Value {
    let collected =
        actix_web::App::new().into_utoipa_app().openapi(Base::openapi()).configure(routes::register);
    let (_, openapi) = collected.split_for_parts();
    let mut document = serde_json::to_value(openapi).expect("a document is plain JSON");
    document["components"]["securitySchemes"] = json!({ "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "ppx_<environment>_<key id>_<secret>",
        "description": "An API key; the operation's x-required-scope says which scope it needs."
    }});
    document["components"]["responses"] = responses();
    document["components"]["parameters"] = json!({ "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Chosen by the client. The same request with the same key has its effect once; later answers are \
                        those of the first, with `Idempotent-Replayed: true`. Kept for 24 hours.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        "example": "6f1c2a9e-create-insurance-small"
    }});
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete(path, method, operation);
        }
    }
    refer_to_items(&mut document);
    document
}

/// Adds security, the idempotency header and the problems that the operation can answer with.
fn complete(path: &str, method: &str, operation: &mut Value) {
    let is_open = operation[SCOPE_EXTENSION] == "none";
    let is_chat = path.ends_with("/api/chat");
    operation["security"] = match (is_open, is_chat) {
        (true, true) => json!([{}, { "apiKey": [] }]),
        (true, false) => json!([]),
        (false, _) => json!([{ "apiKey": [] }]),
    };
    let has_body = operation.get("requestBody").is_some();
    // What is answered with 202 carries an id of its own in its body.
    if has_body && method == "post" && operation["responses"].get("202").is_none() {
        let reference = json!({ "$ref": "#/components/parameters/IdempotencyKey" });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(reference),
            None => operation["parameters"] = json!([reference]),
        }
        let success = if operation["responses"].get("201").is_some() { "201" } else { "200" };
        operation["responses"][success]["headers"] = json!({
            "Location": { "description": "Path of what was made.", "schema": { "type": "string" } },
            "Idempotent-Replayed": {
                "description": "`true` when this is the answer of an earlier request.",
                "schema": { "type": "string", "enum": ["true"] }
            }
        });
    }
    let mut problems = vec!["400", "414", "500"];
    if !is_open || is_chat {
        problems.extend(["401", "403", "429"]);
    }
    if path.contains('{') || is_chat || path == "/v1/sessions" && has_body {
        problems.push("404");
    }
    if has_body
        || is_chat
        || ["/files", "/export", "/report"].iter().any(|end| path.ends_with(end))
        || path.contains("/report.")
    {
        problems.push("409");
    }
    if path.ends_with("/release")
        || path.ends_with("/control")
        || path.ends_with("/design")
        || method == "delete" && path.contains("/domains/")
    {
        problems.push("409");
    }
    if method == "patch" || path.ends_with("/review") && has_body {
        problems.extend(["412", "428"]);
    }
    if has_body {
        problems.extend(["413", "415", "422"]);
    }
    if !["/health/live", "/openapi.json", "/review", "/v1/domain-schema"].contains(&path) {
        problems.push("503");
    }
    problems.sort_unstable();
    for status in problems {
        operation["responses"][status] = json!({ "$ref": format!("#/components/responses/Problem{status}") });
    }
    debug_assert!(method == method.to_lowercase(), "OpenAPI methods are lower-case");
}

/// One response per status, shared by all operations.
fn responses() -> Value {
    let told = [
        ("400", "The request is not well-formed: JSON, query parameter, cursor or identifier.", None),
        ("401", "A valid API key or ticket is required.", Some(("WWW-Authenticate", "How to authenticate."))),
        ("403", "The API key does not have the scope, or the origin is not allowed.", None),
        ("404", "There is no such resource.", None),
        ("409", "The name is in use, or the state of a resource does not allow this.", None),
        ("412", "The resource was changed since `If-Match` was read.", None),
        ("413", "The body is larger than 1 MiB (128 MiB for an uploaded voice, 2 GiB for an archive).", None),
        ("414", "The request target is longer than 8 KiB (64 KiB on `/api/chat`).", None),
        (
            "415",
            "The body is not `application/json` (`multipart/form-data` for an uploaded voice, `application/x-tar` or `application/gzip` for an archive).",
            None,
        ),
        ("422", "The content is invalid: `errors[]` names each field.", None),
        ("428", "`If-Match` is missing.", None),
        ("429", "Too many wrong keys from this address.", Some(("Retry-After", "Seconds to wait."))),
        ("500", "A failure of the server; `instance` names it in the logs.", None),
        (
            "503",
            "A dependency is away, or every session slot is taken.",
            Some(("Retry-After", "Seconds to wait.")),
        ),
    ];
    let mut responses = serde_json::Map::new();
    for (status, description, header) in told {
        let mut response = json!({
            "description": description,
            "content": { PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } }
        });
        if let Some((name, description)) = header {
            response["headers"] =
                json!({ name: { "description": description, "schema": { "type": "string" } } });
        }
        responses.insert(format!("Problem{status}"), response);
    }
    Value::Object(responses)
}

/// Lists refer to the schema of their items instead of repeating it. The order in which handlers are compiled does not
/// change the file.
fn refer_to_items(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    schemas.sort_keys();
    let names: Vec<String> = schemas.keys().cloned().collect();
    for (name, schema) in schemas.iter_mut() {
        if let Some(item) = name.strip_prefix("List_").filter(|item| names.iter().any(|n| n == item)) {
            schema["properties"]["data"]["items"] = json!({ "$ref": format!("#/components/schemas/{item}") });
        }
    }
}
