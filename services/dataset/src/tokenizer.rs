//! The tokenizer that a dataset is measured with: that of the newest base model, since trainings start there.

use std::sync::Arc;

use artifacts::Artifacts;
use chassis::JobError;
use domain::ErrorCode;
use store::models::Model;
use store::{PageRequest, Store};
use streams::Tokenizer;

/// A tokenizer with the model it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct NamedTokenizer {
    /// Name of the model.
    pub model: String,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
}

/// The tokenizer of the newest base model; none when no base model is registered.
pub(crate) async fn newest(store: &Store, artifacts: &Artifacts) -> Result<Option<NamedTokenizer>, JobError> {
    let mut page = PageRequest { limit: 100, after: None, descending: true };
    loop {
        let models = store::models::list(store, page).await?;
        page.after = models.items.last().map(|m| m.id.uuid());
        if let Some(model) = models.items.into_iter().find(|m| m.kind == "base") {
            return read(artifacts, &model).await.map(Some);
        }
        if !models.has_more {
            return Ok(None);
        }
    }
}

async fn read(artifacts: &Artifacts, model: &Model) -> Result<NamedTokenizer, JobError> {
    let config: serde_json::Value = artifacts.get_json(&format!("{}/config.json", model.prefix)).await?;
    let named = config["tokenizer"].as_str().unwrap_or("tokenizer.model");
    let file = model.files.iter().find(|f| f.path == named).ok_or_else(|| {
        JobError::permanent(
            ErrorCode::ArtifactDamaged,
            format!("model {} has no tokenizer file {named:?}", model.name),
        )
    })?;
    let bytes = artifacts.get_verified(&format!("{}/{}", model.prefix, file.path), &file.sha256).await?;
    let tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| {
        JobError::permanent(ErrorCode::ArtifactDamaged, format!("model {}: {error}", model.name))
    })?;
    Ok(NamedTokenizer { model: model.name.clone(), tokenizer: Arc::new(tokenizer) })
}
