//! The gateway from outside: real HTTP on a free port, real Postgres, RabbitMQ and Redis, one database per test.
#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod chat;
mod corpus;
mod datasets;
mod document;
mod events;
mod idempotency;
mod knowledge;
mod lists;
mod models;
mod outage;
mod problems;
mod resources;
mod review;
mod runs;
mod support;
mod voices;
