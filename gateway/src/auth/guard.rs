//! The middleware that lets requests in.

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};
use rest::{Api, Problem, contract};

use crate::state::Shared;

/// Middleware: 404 and 405 from the document, then the key, then the query.
///
/// # Errors
/// None of its own.
pub async fn guard(req: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse<BoxBody>, Error> {
    match admit(&req).await {
        Ok(()) => next.call(req).await,
        Err(problem) => Ok(req.error_response(problem)),
    }
}

async fn admit(req: &ServiceRequest) -> Result<(), Problem> {
    let api = req.app_data::<web::Data<Api>>().cloned().expect("the app says what it serves");
    let path = req.path();
    if *req.method() == Method::GET && contract::is_docs(path) {
        return Ok(());
    }
    let operation = api.contract.find(req.method(), path)?;
    if let Some(scope) = operation.scope {
        let state = req.app_data::<Shared>().cloned().expect("the app carries its state");
        let caller = state.keyring.authenticate(req.request()).await?;
        caller.require(scope)?;
        req.extensions_mut().insert(caller);
    }
    operation.check_query(req.query_string())
}
