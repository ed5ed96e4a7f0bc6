//! Prompts that have been through a model, kept for the next conversation that starts with the same one.

use std::rc::Rc;

use personaplex::Prefix;

/// What a prompt is made of: the adapter it went through, the hash of its voice, its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptKey {
    pub(super) adapter: Option<domain::ModelId>,
    pub(super) voice: Option<String>,
    pub(super) tokens: Vec<i32>,
}

/// The most recently used prefixes of one model, as many as fit into a number of bytes.
pub(super) struct Prefixes {
    limit: usize,
    /// Most recently used last.
    kept: Vec<(PromptKey, Rc<Prefix>)>,
}

impl Prefixes {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, kept: Vec::new() }
    }

    /// A kept prefix, now the most recently used one.
    pub(super) fn get(&mut self, key: &PromptKey) -> Option<Rc<Prefix>> {
        let at = self.kept.iter().position(|(k, _)| k == key)?;
        let entry = self.kept.remove(at);
        let prefix = Rc::clone(&entry.1);
        self.kept.push(entry);
        Some(prefix)
    }

    /// Keeps a prefix; the least recently used ones make room. One larger than everything is not kept.
    pub(super) fn keep(&mut self, key: PromptKey, prefix: &Rc<Prefix>) {
        self.kept.push((key, Rc::clone(prefix)));
        while self.bytes() > self.limit && !self.kept.is_empty() {
            self.kept.remove(0);
        }
        metrics::gauge!("ppx_prefix_cache_bytes").set(self.bytes() as f64);
    }

    /// Forgets what went through an adapter.
    pub(super) fn forget(&mut self, adapter: domain::ModelId) {
        self.kept.retain(|(key, _)| key.adapter != Some(adapter));
    }

    /// Prompts kept.
    pub(super) const fn len(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of keys and values that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.kept.iter().map(|(_, prefix)| prefix.bytes()).sum()
    }
}
