//! Who is asked what to inject.

use std::sync::Arc;

use async_trait::async_trait;

use crate::director::{Advice, Look};
use crate::knowledge::KnowledgeBase;
use crate::relevance::Index;

/// Facts that are put before a language model, or looked at for one to inject.
pub(crate) const CANDIDATES: usize = 8;
/// Below this score a fact only shares a frequent word with what was said.
const MIN_SCORE: f64 = 1.0;

/// What an adviser is told.
#[derive(Debug, Clone)]
pub struct Consultation {
    /// The conversation.
    pub look: Look,
    /// What was injected before.
    pub told: Vec<String>,
    /// What the owner wants watched for.
    pub instructions: Option<String>,
}

/// Says what to inject.
#[async_trait]
pub trait Adviser: Send + Sync {
    /// An advice; an empty text means nothing. The error is a line for the log, without anything that was said.
    async fn advise(&self, consultation: &Consultation) -> Result<Advice, String>;
}

/// Further facts from outside: a customer system, a search.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// Facts for what was just said.
    async fn look_up(&self, said: &str) -> Result<KnowledgeBase, String>;
}

/// What both advisers know.
pub struct Knowledge {
    base: KnowledgeBase,
    index: Index,
    lookup: Option<Arc<dyn Lookup>>,
}

impl Knowledge {
    /// A base, and a tool that is asked beside it.
    #[must_use]
    pub fn new(base: KnowledgeBase, lookup: Option<Arc<dyn Lookup>>) -> Self {
        Self { index: Index::new(&base), base, lookup }
    }

    /// The best facts for a look as id, text and score; those told before are left out.
    ///
    /// # Errors
    /// When the tool fails and the base alone knows nothing.
    pub async fn candidates(
        &self,
        consultation: &Consultation,
    ) -> Result<Vec<(String, String, f64)>, String> {
        let newest = &consultation.look.newest;
        let mut found = ranked(&self.base, &self.index, newest);
        if let Some(lookup) = &self.lookup {
            match lookup.look_up(newest).await {
                // The tool has chosen already: its facts count whether or not they share words.
                Ok(base) => {
                    let best = found.first().map_or(MIN_SCORE, |f| f.2);
                    let fact = |f: &crate::Fact| (format!("tool:{}", f.id), f.text.clone(), best);
                    found.extend(base.facts().iter().take(CANDIDATES).map(fact));
                }
                Err(reason) if found.is_empty() => return Err(reason),
                Err(_) => {}
            }
        }
        let fresh =
            |text: &str| consultation.told.iter().all(|told| crate::relevance::overlap(told, text) < 0.8);
        found.retain(|(_, text, _)| fresh(text));
        Ok(found)
    }
}

fn ranked(base: &KnowledgeBase, index: &Index, said: &str) -> Vec<(String, String, f64)> {
    let ranked = index.rank(base, said, CANDIDATES);
    ranked.into_iter().map(|r| (r.fact.id.clone(), r.fact.text.clone(), r.score)).collect()
}

/// Injects the fact that fits best, word for word.
pub struct Keywords {
    knowledge: Knowledge,
}

impl Keywords {
    /// Over what it knows.
    #[must_use]
    pub fn new(knowledge: Knowledge) -> Self {
        Self { knowledge }
    }
}

#[async_trait]
impl Adviser for Keywords {
    async fn advise(&self, consultation: &Consultation) -> Result<Advice, String> {
        let found = self.knowledge.candidates(consultation).await?;
        let best = found.into_iter().find(|(_, _, score)| *score >= MIN_SCORE);
        Ok(best.map_or_else(Advice::default, |(id, text, score)| Advice {
            text,
            facts: vec![id],
            reason: format!("score {score:.1}"),
        }))
    }
}
