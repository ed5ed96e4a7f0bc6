//! What people read, write and review over the REST API and what needs nothing but the database: dialogues, domains,
//! knowledge bases, and the decisions of puppeteers. The gateway registers these routes beside its own.

#![forbid(unsafe_code)]

pub mod dialogues;
pub mod domains;
pub mod knowledge_bases;
pub mod puppeteers;

use actix_web::web;
use puppeteer::PuppeteerSettings;
use store::Store;
use utoipa_actix_web::service_config::ServiceConfig;

/// The state as handlers take it.
pub type Shared = web::Data<State>;

/// What the routes may use.
#[derive(Debug)]
pub struct State {
    /// The database.
    pub store: Store,
    /// `[puppeteer]`
    pub puppeteer: PuppeteerSettings,
}

/// Every documented operation.
pub fn register(config: &mut ServiceConfig) {
    dialogues::register(config);
    domains::register(config);
    knowledge_bases::register(config);
    puppeteers::register(config);
}
