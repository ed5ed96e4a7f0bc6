//! The API as its requests are measured against it.

use crate::contract::Contract;

/// What is served, and how large requests may be; the application carries it as `web::Data<Api>`.
#[derive(Debug, Clone)]
pub struct Api {
    /// The operations of the OpenAPI document.
    pub contract: Contract,
    /// Largest JSON body in bytes.
    pub max_json_bytes: usize,
    /// Longest request target of `/api/chat` in bytes.
    pub max_chat_uri_bytes: usize,
    /// Longest request target elsewhere in bytes.
    pub max_uri_bytes: usize,
}
