//! Puppeteers of sessions, made from what the session's row asks for.

use std::collections::HashMap;
use std::sync::Arc;

use domain::puppeteer::{PuppeteerMode, PuppeteerSpec};
use llm::Client;
use puppeteer::{
    Adviser, HttpLookup, Keywords, Knowledge, KnowledgeBase, LanguageModel, Lookup, Puppeteer,
    PuppeteerSettings,
};
use store::Store;

use crate::InferenceError;

/// Makes puppeteers.
pub struct Puppeteers {
    store: Store,
    settings: PuppeteerSettings,
    tools: HashMap<String, Arc<dyn Lookup>>,
    /// One for all sessions, so that they share its limits.
    model: Option<Client>,
}

impl Puppeteers {
    /// With the tools of the settings.
    ///
    /// # Errors
    /// When an HTTP client cannot be made, or the address of the language model is wrong.
    pub fn new(store: Store, settings: PuppeteerSettings) -> anyhow::Result<Self> {
        let mut tools: HashMap<String, Arc<dyn Lookup>> = HashMap::new();
        for (name, tool) in &settings.tools {
            tools.insert(name.clone(), Arc::new(HttpLookup::new(tool.clone(), settings.tool_timeout())?));
        }
        let advice = &settings.advice;
        let model = (!advice.model.is_empty()).then(|| Client::new(&advice.provider)).transpose()?;
        Ok(Self { store, settings, tools, model })
    }

    /// The puppeteer that a session asks for.
    ///
    /// # Errors
    /// When its knowledge base or tool is gone.
    pub async fn make(&self, spec: &PuppeteerSpec) -> Result<Puppeteer, InferenceError> {
        let adviser = match spec.mode {
            PuppeteerMode::Scheduled => None,
            PuppeteerMode::Keywords | PuppeteerMode::Llm => Some(self.adviser(spec).await?),
        };
        Ok(Puppeteer::new(spec.clone(), adviser, self.settings.deadline()))
    }

    async fn adviser(&self, spec: &PuppeteerSpec) -> Result<Arc<dyn Adviser>, InferenceError> {
        let base = match &spec.knowledge_base {
            Some(name) => {
                let facts = store::puppeteers::get(&self.store, name).await?.facts()?;
                KnowledgeBase::new(facts).map_err(|e| InferenceError::Puppeteer(format!("{name}: {e}")))?
            }
            None => KnowledgeBase::default(),
        };
        let tool = match &spec.tool {
            Some(name) => Some(self.tools.get(name).cloned().ok_or_else(|| {
                InferenceError::Puppeteer(format!("the settings have no [puppeteer.tools.{name}]"))
            })?),
            None => None,
        };
        let knowledge = Knowledge::new(base, tool);
        if spec.mode == PuppeteerMode::Keywords {
            return Ok(Arc::new(Keywords::new(knowledge)));
        }
        let advice = &self.settings.advice;
        let client = self.model.clone().ok_or_else(|| {
            InferenceError::Puppeteer("the settings name no model in [puppeteer.advice]".into())
        })?;
        Ok(Arc::new(LanguageModel::new(client, advice, self.settings.deadline(), knowledge)))
    }
}
