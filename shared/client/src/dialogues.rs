//! Dialogues and domain packs over the API.

use reqwest::Method;
use reqwest::header::IF_MATCH;
use serde_json::{Value, json};

use domain::DialogueId;
use domain::pack::DomainPack;

use crate::error::Result;
use crate::http::Client;
use crate::views::List;

impl Client {
    /// A page of dialogues; the pairs are the parameters of `listDialogues`.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn dialogues(&self, filter: &[(&str, String)]) -> Result<List<Value>> {
        self.get("/v1/dialogues", filter).await
    }

    /// One dialogue.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn dialogue(&self, id: DialogueId) -> Result<Value> {
        self.get(&format!("/v1/dialogues/{id}"), &[]).await
    }

    /// One dialogue as a page.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn dialogue_page(&self, id: DialogueId) -> Result<Vec<u8>> {
        self.download(&format!("/v1/dialogues/{id}/page"), &[]).await
    }

    /// Approves or rejects the revision of a dialogue that was seen.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn review_dialogue(&self, id: DialogueId, revision: u64, body: &Value) -> Result<Value> {
        let path = format!("/v1/dialogues/{id}/review");
        let request =
            self.request(Method::POST, &path)?.header(IF_MATCH, format!("\"{revision}\"")).json(body);
        Self::json(&path, self.send_once(request).await?).await
    }

    /// Corrects the revision of a dialogue that was seen; the body is that of `updateDialogue`.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn update_dialogue(&self, id: DialogueId, revision: u64, body: &Value) -> Result<Value> {
        let path = format!("/v1/dialogues/{id}");
        let request =
            self.request(Method::PATCH, &path)?.header(IF_MATCH, format!("\"{revision}\"")).json(body);
        Self::json(&path, self.send_once(request).await?).await
    }

    /// All versions of all domains.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn domains(&self) -> Result<List<Value>> {
        self.get("/v1/domains", &[]).await
    }

    /// The pack of a domain, of this version or the one in use.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn domain_pack(&self, id: &str, version: Option<u32>) -> Result<Value> {
        let query: Vec<(&str, String)> = version.map(|v| ("version", v.to_string())).into_iter().collect();
        self.get(&format!("/v1/domains/{id}/pack"), &query).await
    }

    /// Adds a pack as a draft.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn add_domain(&self, pack: &DomainPack) -> Result<Value> {
        self.post("/v1/domains", &json!({ "pack": pack })).await
    }

    /// Uses a version for new datasets.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn activate_domain(&self, id: &str, version: u32) -> Result<Value> {
        self.post(&format!("/v1/domains/{id}/activate"), &json!({ "version": version })).await
    }

    /// Retires a domain.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn retire_domain(&self, id: &str) -> Result<()> {
        self.send_once(self.request(Method::DELETE, &format!("/v1/domains/{id}"))?).await.map(drop)
    }

    /// One row of a design; the body is that of `previewDomain`.
    ///
    /// # Errors
    /// See [`crate::ClientError`].
    pub async fn preview_domain(&self, body: &Value) -> Result<Value> {
        self.post("/v1/domains/preview", body).await
    }
}
