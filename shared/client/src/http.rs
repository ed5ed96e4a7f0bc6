//! One request: sent again while the failure may pass, its refusal turned into a [`ClientError`].

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::error::{ClientError, Problem, Result};
use crate::retry::{RetryPolicy, is_passing, retry_after};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A client of one API; cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    /// Value of the `Authorization` header, marked as sensitive.
    authorization: Option<HeaderValue>,
    retry: RetryPolicy,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// A body to send.
enum Body<'a> {
    Empty,
    Json(&'a [u8]),
}

impl Client {
    /// A client of the API at `base_url`; an empty key sends no credentials.
    ///
    /// # Errors
    /// `BadUrl` when the URL is not `http://host[:port]`; `Usage` when the key is not a header value.
    pub fn new(base_url: &str, key: &str) -> Result<Self> {
        let bad = || ClientError::BadUrl { url: base_url.into() };
        let mut base = Url::parse(base_url.trim()).map_err(|_| bad())?;
        if base.scheme() != "http" || base.host_str().is_none() || base.query().is_some() {
            return Err(bad());
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let authorization = (!key.trim().is_empty())
            .then(|| HeaderValue::try_from(format!("Bearer {}", key.trim())))
            .transpose()
            .map_err(|_| ClientError::Usage("the API key holds characters that no key has".into()))?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("ppx/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| ClientError::Usage(format!("cannot set up the HTTP client: {e}")))?;
        Ok(Self { http, base, authorization, retry: RetryPolicy::default() })
    }

    /// With another retry policy.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The base URL, with a slash at its end.
    #[must_use]
    pub const fn base(&self) -> &Url {
        &self.base
    }

    /// The URL of a path below the base, `/v1/x` or `v1/x`.
    ///
    /// # Errors
    /// `BadUrl` when the result is none.
    pub fn url(&self, path: &str) -> Result<Url> {
        self.base
            .join(path.trim_start_matches('/'))
            .map_err(|_| ClientError::BadUrl { url: format!("{}{path}", self.base) })
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> Result<T> {
        let response = self.send(Method::GET, path, query, Body::Empty, None).await?;
        Self::json(path, response).await
    }

    /// Creates or acts; one `Idempotency-Key` for all sends of this call, so that a repeated one changes nothing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        let bytes =
            serde_json::to_vec(body).map_err(|source| ClientError::Shape { path: path.into(), source })?;
        let key = uuid::Uuid::new_v4().to_string();
        let response = self.send(Method::POST, path, &[], Body::Json(&bytes), Some(&key)).await?;
        Self::json(path, response).await
    }

    /// The bytes behind a path.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn download(&self, path: &str, query: &[(&str, String)]) -> Result<Vec<u8>> {
        let response = self.send(Method::GET, path, query, Body::Empty, None).await?;
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        Ok(bytes.to_vec())
    }

    /// A request with credentials, without a time-out: what is sent or answered may be large.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder> {
        Ok(self.http.request(method, self.url(path)?).headers(self.headers()))
    }

    /// Sends once: the answer, or the refusal as an error.
    pub(crate) async fn send_once(&self, request: reqwest::RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        self.refuse(response).await
    }

    /// Opens a stream of events; one attempt, no overall time-out.
    pub(crate) async fn open_stream(&self, path: &str, last_event_id: Option<i64>) -> Result<Response> {
        let mut request =
            self.http.get(self.url(path)?).headers(self.headers()).header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id.to_string());
        }
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        self.refuse(response).await
    }

    fn headers(&self) -> HeaderMap {
        self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect()
    }

    pub(crate) async fn json<T: DeserializeOwned>(path: &str, response: Response) -> Result<T> {
        let shape = |source| ClientError::Shape { path: path.into(), source };
        let bytes = response
            .bytes()
            .await
            .map_err(|e| ClientError::Unreachable { url: path.into(), detail: chain(&e) })?;
        serde_json::from_slice(&bytes).map_err(shape)
    }

    async fn refuse(&self, response: Response) -> Result<Response> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap_or_default();
        Err(ClientError::Problem(Box::new(Problem::from_body(status, &body))))
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        ClientError::Unreachable { url: self.base.to_string(), detail: chain(error) }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Body<'_>,
        key: Option<&str>,
    ) -> Result<Response> {
        let url = self.url(path)?;
        let mut attempt = 1;
        loop {
            let mut request = self
                .http
                .request(method.clone(), url.clone())
                .headers(self.headers())
                .header(ACCEPT, "application/json, application/problem+json, */*;q=0.5")
                .timeout(REQUEST_TIMEOUT)
                .query(query);
            if let Some(key) = key {
                request = request.header(IDEMPOTENCY_KEY, key);
            }
            if let Body::Json(bytes) = body {
                request = request.header("content-type", "application/json").body(bytes.to_vec());
            }
            let (error, wait) = match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => self.refused(response).await,
                // Every request of ours may be repeated: reads by nature, posts by their key.
                Err(error) => (self.unreachable(&error), Some(None)),
            };
            match wait.and_then(|after| self.retry.wait(attempt, after)) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
            attempt += 1;
        }
    }

    /// The refusal, and whether (and after what wait, if the server says) to try again.
    async fn refused(&self, response: Response) -> (ClientError, Option<Option<Duration>>) {
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| retry_after(v, chrono::Utc::now()));
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap_or_default();
        let problem = Problem::from_body(status, &body);
        let again = is_passing(status) || problem.code == domain::ErrorCode::IdempotencyInFlight.as_str();
        (ClientError::Problem(Box::new(problem)), again.then_some(after))
    }
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_checked_and_paths_joined_below_them() {
        for bad in ["", "localhost:8080", "ftp://x", "https://x", "http://", "http://h/?q=1"] {
            assert!(matches!(Client::new(bad, ""), Err(ClientError::BadUrl { .. })), "{bad:?}");
        }
        let client = Client::new("http://host:1/prefix", "ppx_secret").expect("a client");
        assert_eq!(client.url("/v1/jobs").expect("joins").as_str(), "http://host:1/prefix/v1/jobs");
        assert!(!format!("{client:?}").contains("secret"));
    }
}
