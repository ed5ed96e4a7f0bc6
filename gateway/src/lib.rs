//! The public REST API, OpenAPI documents, events and the websocket front door.
//!
//! The gateway parses at the door, writes rows and jobs in one transaction, and reads. It does no work of its own: no
//! audio, no model. Which paths exist, who may call them and which query parameters they take is read from the OpenAPI
//! document ([`openapi::document`]), so that the document cannot differ from what is served.

#![forbid(unsafe_code)]

pub mod app;
pub mod auth;
pub mod chat;
pub mod cli;
pub mod events;
pub mod openapi;
pub mod routes;
pub mod settings;
pub mod state;

pub use app::{App, build};
