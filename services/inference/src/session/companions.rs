//! Who stands beside a session and hears it: the puppeteer. It runs in a task of its own and is only ever offered what
//! it may hear, so that it delays no frame.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::puppeteer::PuppeteerDecision;
use domain::session::ContextOptions;
use puppeteer::{Heard, Puppeteer, Speaker, Stage};
use store::Store;
use tokio::sync::mpsc;

use super::hub::{Hub, Verdict};
use crate::ws::Shared;

/// Frames that wait for a puppeteer that is busy; it misses further ones.
const WAITING: usize = 256;
/// Time between two writes of decisions.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The companions of one session.
pub(super) struct Companions {
    waiting: Option<(Puppeteer, Scene)>,
    puppeteer: Option<mpsc::Sender<Heard>>,
}

impl Companions {
    pub(super) fn new(shared: &Shared, hub: &Arc<Hub>, puppeteer: Option<Puppeteer>) -> Self {
        let scene = Scene { hub: Arc::clone(hub), decisions: Arc::default() };
        let waiting = puppeteer.map(|puppeteer| (puppeteer, scene));
        if let Some((_, scene)) = &waiting {
            tokio::spawn(write_decisions(shared.store.clone(), scene.clone()));
        }
        Self { waiting, puppeteer: None }
    }

    /// The conversation begins.
    pub(super) fn begin(&mut self) {
        if let Some((puppeteer, scene)) = self.waiting.take() {
            let (sender, heard) = mpsc::channel(WAITING);
            tokio::spawn(puppeteer.attend(heard, scene));
            self.puppeteer = Some(sender);
        }
    }

    /// One frame of the agent: what of it may be heard.
    pub(super) fn hear(&self, frame: u64, text: &str) {
        if let Some(puppeteer) = &self.puppeteer {
            let _ = puppeteer.try_send(Heard { frame, speaker: Speaker::Agent, text: text.to_owned() });
        }
    }
}

/// The session as its puppeteer reaches it. The writer of its decisions ends when the puppeteer has let go of it.
#[derive(Clone)]
struct Scene {
    hub: Arc<Hub>,
    decisions: Arc<Mutex<Vec<PuppeteerDecision>>>,
}

impl Stage for Scene {
    async fn inject(&self, id: &str, text: &str) -> Result<(), String> {
        let how = ContextOptions { id: Some(id.to_owned()), ..ContextOptions::default() };
        match self.hub.inject(text, how).await {
            Verdict::Answered => Ok(()),
            Verdict::Refused(refusal) => Err(refusal.code.to_owned()),
            Verdict::Flood => Err("rate_limited".into()),
        }
    }

    fn note(&self, decision: PuppeteerDecision) {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).push(decision);
    }
}

/// Writes what was noted, until the puppeteer is gone and all of it is written or refused.
async fn write_decisions(store: Store, scene: Scene) {
    loop {
        let alone = Arc::strong_count(&scene.decisions) == 1;
        let noted = std::mem::take(&mut *scene.decisions.lock().unwrap_or_else(PoisonError::into_inner));
        if !noted.is_empty()
            && let Err(error) = store::puppeteers::add_decisions(&store, scene.hub.id, &noted).await
        {
            tracing::warn!(session = %scene.hub.id, %error, "decisions of a puppeteer are not stored");
        }
        if alone {
            return;
        }
        tokio::time::sleep(WRITE_EVERY).await;
    }
}
