//! The OpenAPI document as the list of what is served: a request that is not in it never reaches a handler.

use actix_web::http::Method;
use domain::ErrorCode;
use serde_json::Value;

use crate::{Problem, Scope};

/// Extension of an operation: the scope that a key needs, or `none`.
pub const SCOPE_EXTENSION: &str = "x-required-scope";

/// Files of the documentation page; they are not operations.
pub const DOCS: &str = "/docs";

/// Whether a path belongs to the documentation page.
#[must_use]
pub fn is_docs(path: &str) -> bool {
    path == DOCS || path.starts_with("/docs/")
}

/// One operation of the document.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `operationId`.
    pub id: String,
    /// Method.
    pub method: Method,
    /// Path with `{name}` for parameters.
    pub path: String,
    /// What a key needs; `None` = callable without a key.
    pub scope: Option<Scope>,
    /// Query parameters.
    pub query: Vec<String>,
}

/// All operations.
#[derive(Debug, Clone)]
pub struct Contract {
    operations: Vec<Operation>,
}

impl Contract {
    /// Reads the document.
    ///
    /// # Panics
    /// When an operation has no id or names no known scope: a mistake in this program that every test finds.
    #[must_use]
    pub fn read(document: &Value) -> Self {
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
                operations.push(Operation::read(path, method, operation));
            }
        }
        Self { operations }
    }

    /// All operations.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The documented path that matches, with its parameters named.
    #[must_use]
    pub fn pattern(&self, path: &str) -> Option<String> {
        if is_docs(path) {
            return Some(DOCS.to_owned());
        }
        self.operations.iter().find(|o| o.matches(path)).map(|o| o.path.clone())
    }

    /// The operation that a request asks for.
    ///
    /// # Errors
    /// 404 when nothing is at the path, 405 with the methods that are.
    pub fn find(&self, method: &Method, path: &str) -> Result<&Operation, Problem> {
        let on_path: Vec<&Operation> = self.operations.iter().filter(|o| o.matches(path)).collect();
        if let Some(operation) = on_path.iter().find(|o| o.method == *method) {
            return Ok(operation);
        }
        if on_path.is_empty() {
            let detail = format!("there is nothing at {}; see /openapi.json", short(path));
            return Err(Problem::new(ErrorCode::RouteNotFound, detail));
        }
        let allow = on_path.iter().map(|o| o.method.as_str()).collect::<Vec<_>>().join(", ");
        let detail = format!("this path answers {allow}, not {}", short(method.as_str()));
        Err(Problem::new(ErrorCode::MethodNotAllowed, detail).with("allow", allow))
    }
}

impl Operation {
    fn read(path: &str, method: Method, operation: &Value) -> Self {
        let id = operation["operationId"].as_str().expect("every operation has an id").to_owned();
        let scope = match operation[SCOPE_EXTENSION].as_str() {
            Some("none") => None,
            Some(name) => Some(name.parse().expect("every operation names a known scope")),
            None => panic!("operation {id} names no scope"),
        };
        let query = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|p| p["in"] == "query")
            .filter_map(|p| p["name"].as_str().map(str::to_owned))
            .collect();
        Self { id, method, path: path.to_owned(), scope, query }
    }

    fn matches(&self, path: &str) -> bool {
        let (mut wanted, mut found) = (self.path.split('/'), path.split('/'));
        loop {
            match (wanted.next(), found.next()) {
                (None, None) => return true,
                (Some(w), Some(f)) if w == f || (w.starts_with('{') && !f.is_empty()) => {}
                _ => return false,
            }
        }
    }

    /// Players of the websocket send parameters of their own, so only REST operations refuse unknown ones.
    fn takes_any_query(&self) -> bool {
        self.path.ends_with("/api/chat")
    }

    /// Refuses query parameters that the operation does not take, and repeated ones.
    ///
    /// # Errors
    /// 400 that names the parameter.
    pub fn check_query(&self, query: &str) -> Result<(), Problem> {
        if self.takes_any_query() {
            return Ok(());
        }
        let mut seen = Vec::new();
        for (name, _) in url::form_urlencoded::parse(query.as_bytes()) {
            let shown: String = name.chars().take(80).collect();
            if !self.query.iter().any(|q| *q == name) {
                let known = if self.query.is_empty() { "none".to_owned() } else { self.query.join(", ") };
                return Err(Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("unknown query parameter {shown:?}; known here: {known}"),
                ));
            }
            if seen.contains(&name) {
                return Err(Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("query parameter {shown:?} is given twice"),
                ));
            }
            seen.push(name);
        }
        Ok(())
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
