//! Models and adapters on their way in: each is read once, however many wait for it, and kept even when nobody does any
//! more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::ModelId;
use tch::{Device, Kind};
use tokio::sync::watch;

use super::memory::{Sizes, adapter_bytes, model_bytes};
use super::models::{Loaded, LoadedAdapter, LoadedModel};
use super::{AdapterSource, EngineCommand, Mailbox, ModelSource, ask};
use crate::InferenceError;

/// What is to be loaded.
#[derive(Debug, Clone)]
pub enum Source {
    /// A model of its own.
    Model(ModelSource),
    /// An adapter beside its base, which comes first.
    Adapter(ModelSource, AdapterSource),
}

impl Source {
    /// Id under which it is served.
    #[must_use]
    pub const fn id(&self) -> ModelId {
        match self {
            Self::Model(model) => model.id,
            Self::Adapter(_, adapter) => adapter.id,
        }
    }
}

type Outcome = Option<Result<(), InferenceError>>;

/// Loads one thing at a time, so that two sessions do not read the same 16 GB twice.
#[derive(Clone)]
pub(super) struct Loader {
    under_way: Arc<Mutex<HashMap<ModelId, watch::Receiver<Outcome>>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
    pub(super) place: Place,
}

/// Where and how models are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) kind: Kind,
    pub(super) threads: usize,
    pub(super) strict_constants: bool,
    pub(super) sizes: Sizes,
}

impl Loader {
    pub(super) fn new(place: Place) -> Self {
        Self { under_way: Arc::default(), turn: Arc::default(), place }
    }

    /// Ids that are being loaded.
    pub(super) fn under_way(&self) -> Vec<ModelId> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Waits until it is loaded. The work goes on when the wait is given up.
    pub(super) async fn load(&self, mailbox: &Mailbox, source: Source) -> Result<(), InferenceError> {
        let mut outcome = self.begin(mailbox, source);
        let told = outcome.wait_for(Option::is_some).await.map_err(|_| InferenceError::EngineGone)?;
        match &*told {
            Some(Err(error)) => Err(error.again()),
            _ => Ok(()),
        }
    }

    fn begin(&self, mailbox: &Mailbox, source: Source) -> watch::Receiver<Outcome> {
        let id = source.id();
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = under_way.get(&id) {
            return outcome.clone();
        }
        let (tell, outcome) = watch::channel(None);
        under_way.insert(id, outcome.clone());
        let (this, mailbox) = (self.clone(), mailbox.clone());
        tokio::spawn(async move {
            let done = this.run(&mailbox, source).await;
            this.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            let _ = tell.send(Some(done));
        });
        outcome
    }

    async fn run(&self, mailbox: &Mailbox, source: Source) -> Result<(), InferenceError> {
        let _one_at_a_time = self.turn.lock().await;
        let (Source::Model(base) | Source::Adapter(base, _)) = &source;
        self.model(mailbox, base).await?;
        match source {
            Source::Model(_) => Ok(()),
            Source::Adapter(base, adapter) => self.adapter(mailbox, base, adapter).await,
        }
    }

    async fn model(&self, mailbox: &Mailbox, source: &ModelSource) -> Result<(), InferenceError> {
        let (id, place) = (source.id, self.place);
        let sized = source.clone();
        let bytes = off_thread(move || model_bytes(&sized, place.kind, &place.sizes)).await?;
        if ask(mailbox, |reply| EngineCommand::MakeRoom { model: id, bytes, reply }).await? {
            return Ok(());
        }
        let source = source.clone();
        let loaded = off_thread(move || {
            nn::device::set_threads(place.threads);
            LoadedModel::load(&source, place.device, place.kind, place.strict_constants)
        })
        .await?;
        let loaded = Box::new(Loaded::Model(Box::new(loaded), bytes));
        ask(mailbox, |reply| EngineCommand::Keep { loaded, reply }).await
    }

    async fn adapter(
        &self,
        mailbox: &Mailbox,
        base: ModelSource,
        source: AdapterSource,
    ) -> Result<(), InferenceError> {
        let (base_id, id, place) = (base.id, source.id, self.place);
        let sized = source.clone();
        let bytes = off_thread(move || adapter_bytes(&sized)).await?;
        if ask(mailbox, |reply| EngineCommand::MakeAdapterRoom { base: base_id, adapter: id, bytes, reply })
            .await?
        {
            return Ok(());
        }
        let loaded = off_thread(move || {
            nn::device::set_threads(place.threads);
            LoadedAdapter::load(&base, &source, place.device, place.kind)
        })
        .await?;
        let loaded = Box::new(Loaded::Adapter(base_id, loaded));
        ask(mailbox, |reply| EngineCommand::Keep { loaded, reply }).await
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InferenceError> + Send + 'static,
) -> Result<T, InferenceError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| InferenceError::Engine(e.to_string()))?
}
