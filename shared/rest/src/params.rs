//! Path identifiers and query strings.

use std::future::{Ready, ready};
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{Error, FromRequest, HttpRequest};
use domain::ErrorCode;
use serde::de::DeserializeOwned;

use crate::Problem;

/// The `{id}` of the path, parsed.
#[derive(Debug, Clone, Copy)]
pub struct Id<T>(pub T);

impl<T> FromRequest for Id<T>
where
    T: FromStr + 'static,
    T::Err: std::fmt::Display,
{
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = req.match_info().get("id").unwrap_or("");
        ready(
            text.parse()
                .map(Self)
                .map_err(|e: T::Err| Problem::new(ErrorCode::InvalidId, e.to_string()).into()),
        )
    }
}

/// The query string as a struct. Names were checked against the document before; values are checked here.
#[derive(Debug, Clone)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Asked<T> {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(parse(req.query_string()).map(Self).map_err(Into::into))
    }
}

/// Reads a query string.
///
/// # Errors
/// 400 that names the parameter.
pub fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs)).map_err(|error| {
        let name = error.path().to_string();
        let detail = error.into_inner().to_string();
        Problem::new(ErrorCode::InvalidRequest, format!("query parameter {name:?}: {detail}"))
    })
}

/// Parses the text of a query parameter that has a closed set of values.
///
/// # Errors
/// 400 that names the parameter.
pub fn choice<T: FromStr>(name: &str, text: Option<&str>, known: &[&str]) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("query parameter {name:?}: {shown:?} is not one of {}", known.join(", ")),
        )
    })
}
