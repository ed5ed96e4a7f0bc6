//! Sessions against a tiny random model: at the engine and over real websockets on the in-process listener.

mod beside;
mod engine;
mod house;
mod limits;
mod models;
mod pacing;
mod phone;
mod registry;
mod soak;
mod voices;
mod windows;
mod wire;
