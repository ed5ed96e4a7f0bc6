//! Datasets that come and go as files: uploads, imports, exports and reports.

use std::path::Path;

use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use domain::{DatasetId, UploadId};

use crate::error::{ClientError, Result};
use crate::http::Client;
use crate::views::DatasetView;

impl Client {
    /// Sends an archive; a send that failed may be repeated with the same id.
    ///
    /// # Errors
    /// `File` when it cannot be read; see [`ClientError`].
    pub async fn upload_archive(&self, id: UploadId, archive: &Path) -> Result<Value> {
        let path = format!("/v1/datasets/uploads/{id}");
        let unreadable = |source| ClientError::File { path: archive.display().to_string(), source };
        let file = tokio::fs::File::open(archive).await.map_err(unreadable)?;
        let bytes = file.metadata().await.map_err(unreadable)?.len();
        let request = self.request(reqwest::Method::PUT, &path)?;
        let request = request.header(CONTENT_TYPE, "application/x-tar").header(CONTENT_LENGTH, bytes);
        let response = self.send_once(request.body(file)).await?;
        let read = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        serde_json::from_slice(&read).map_err(|source| ClientError::Shape { path, source })
    }

    /// Asks for an import; the body is that of `importDataset`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn import_dataset(&self, body: &Value) -> Result<DatasetView> {
        self.post("/v1/datasets/imports", body).await
    }

    /// Report of a dataset as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dataset_report(&self, id: DatasetId) -> Result<Value> {
        self.get(&format!("/v1/datasets/{id}/report"), &[]).await
    }

    /// Report of a dataset as a page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dataset_report_page(&self, id: DatasetId) -> Result<Vec<u8>> {
        let request = self.request(reqwest::Method::GET, &format!("/v1/datasets/{id}/report"))?;
        let response = self.send_once(request.header(ACCEPT, "text/html, application/problem+json")).await?;
        Ok(response.bytes().await.map_err(|e| self.unreachable(&e))?.to_vec())
    }

    /// Writes an answer into a file that must not exist; `progress` gets the bytes so far and in all.
    ///
    /// # Errors
    /// `File` when it cannot be written; see [`ClientError`]. What was written of an answer that broke off is removed.
    pub async fn download_into(
        &self,
        path: &str,
        query: &[(&str, &str)],
        into: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<u64> {
        let unwritable = |source| ClientError::File { path: into.display().to_string(), source };
        let request = self.request(reqwest::Method::GET, path)?.query(query);
        let mut response = self.send_once(request).await?;
        let total = response.content_length().unwrap_or(0);
        let mut file = tokio::fs::File::create_new(into).await.map_err(unwritable)?;
        let copied = async {
            let mut done = 0;
            while let Some(chunk) = response.chunk().await.map_err(|e| self.unreachable(&e))? {
                file.write_all(&chunk).await.map_err(unwritable)?;
                done += chunk.len() as u64;
                progress(done, total);
            }
            file.sync_all().await.map_err(unwritable)?;
            Ok(done)
        };
        let outcome: Result<u64> = copied.await;
        if outcome.is_err() {
            let _ = tokio::fs::remove_file(into).await;
        }
        outcome
    }
}
