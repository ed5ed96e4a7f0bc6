//! Puppeteers of sessions, made from what the session's row asks for.

use std::collections::HashMap;
use std::sync::Arc;

use domain::puppeteer::{PuppeteerMode, PuppeteerSpec};
use puppeteer::{
    Adviser, HttpLookup, Keywords, Knowledge, KnowledgeBase, Lookup, Puppeteer, PuppeteerSettings,
};
use store::Store;

use crate::InferenceError;

/// Makes puppeteers.
pub struct Puppeteers {
    store: Store,
    settings: PuppeteerSettings,
    tools: HashMap<String, Arc<dyn Lookup>>,
}

impl Puppeteers {
    /// With the tools of the settings.
    ///
    /// # Errors
    /// When an HTTP client cannot be made.
    pub fn new(store: Store, settings: PuppeteerSettings) -> anyhow::Result<Self> {
        let mut tools: HashMap<String, Arc<dyn Lookup>> = HashMap::new();
        for (name, tool) in &settings.tools {
            tools.insert(name.clone(), Arc::new(HttpLookup::new(tool.clone(), settings.tool_timeout())?));
        }
        Ok(Self { store, settings, tools })
    }

    /// The puppeteer that a session asks for.
    ///
    /// # Errors
    /// When its knowledge base or tool is gone.
    pub async fn make(&self, spec: &PuppeteerSpec) -> Result<Puppeteer, InferenceError> {
        let adviser = match spec.mode {
            PuppeteerMode::Scheduled => None,
            PuppeteerMode::Keywords => Some(self.adviser(spec).await?),
            PuppeteerMode::Llm => {
                return Err(InferenceError::Puppeteer("no language model is wired to serving".into()));
            }
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
        Ok(Arc::new(Keywords::new(Knowledge::new(base, tool))))
    }
}
