//! A provider with everything around it that every caller needs.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Breaker;
use crate::budget::Budget;
use crate::error::{ErrorKind, LlmError};
use crate::limiter::Limiter;
use crate::price::Price;
use crate::retry::{RetryPolicy, with_retries};
use crate::settings::ProviderSettings;
use crate::types::{Answer, ChatRequest, Delta, StopReason};
use crate::{Provider, batch::Batches};

/// Failures in a row that open the breaker.
const BREAKER_FAILURES: u32 = 5;
/// How long it rests.
const BREAKER_REST: Duration = Duration::from_secs(30);

/// Calls a provider with retries, a limit of calls at once and a circuit breaker; cheap to clone, clones share them.
#[derive(Debug, Clone)]
pub struct Client {
    provider: Arc<dyn Provider>,
    limiter: Limiter,
    breaker: Arc<Breaker>,
    retries: RetryPolicy,
    budget: Option<(Budget, Price)>,
}

impl Client {
    /// The client of these settings.
    ///
    /// # Errors
    /// When the address is wrong.
    pub fn new(settings: &ProviderSettings) -> Result<Self, LlmError> {
        let limiter = Limiter::new(settings.concurrency, settings.max_concurrency);
        Ok(Self::around(settings.connect()?, limiter, settings.retries()))
    }

    /// A client around a provider.
    #[must_use]
    pub fn around(provider: Arc<dyn Provider>, limiter: Limiter, retries: RetryPolicy) -> Self {
        let breaker = Arc::new(Breaker::new(BREAKER_FAILURES, BREAKER_REST));
        Self { provider, limiter, breaker, retries, budget: None }
    }

    /// The same with a breaker of other numbers.
    #[must_use]
    pub fn with_breaker(mut self, failures: u32, rest: Duration) -> Self {
        self.breaker = Arc::new(Breaker::new(failures, rest));
        self
    }

    /// The same, spending at most what a budget allows: every call reserves its worst case first.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget, price: Price) -> Self {
        self.budget = Some((budget, price));
        self
    }

    /// The API of batches, when the provider has one.
    #[must_use]
    pub fn batches(&self) -> Option<&dyn Batches> {
        self.provider.batches()
    }

    /// How calls at once are limited.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// For short calls: the answer within `deadline`, tries and waits included.
    ///
    /// # Errors
    /// `Timeout` at the deadline; `Truncated` and `Refused` for answers that are not whole; otherwise as [`Provider::chat`].
    pub async fn complete(&self, request: &ChatRequest, deadline: Duration) -> Result<Answer, LlmError> {
        let call = with_retries(self.retries, || async { self.once(request, &mut |_| {}).await });
        let answer = tokio::time::timeout(deadline, call).await.map_err(|_| {
            LlmError::new(ErrorKind::Timeout, format!("no answer in {deadline:?}")).uncertain()
        })??;
        match &answer.stop {
            StopReason::MaxTokens => {
                Err(LlmError::new(ErrorKind::Truncated, format!("longer than {} tokens", request.max_tokens)))
            }
            StopReason::Refusal => Err(LlmError::new(ErrorKind::Refused, "the model refused")),
            _ => Ok(answer),
        }
    }

    /// One call as soon as breaker, limit and budget allow it; `deltas` sees its parts. Callers that keep books of every
    /// call retry by themselves, with [`with_retries`].
    ///
    /// # Errors
    /// As [`Provider::chat`], `BreakerOpen` and `BudgetExceeded`.
    pub async fn once(
        &self,
        request: &ChatRequest,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, LlmError> {
        let _permit = self.limiter.acquire().await;
        self.breaker.admit().map_err(|wait| {
            let mut error =
                LlmError::new(ErrorKind::BreakerOpen, "the provider failed several times in a row");
            error.retry_after = Some(wait);
            error
        })?;
        let reserved = match &self.budget {
            None => None,
            Some((budget, price)) => {
                let worst = price.worst(request.input_tokens_at_most(), request.max_tokens, false);
                Some((budget.reserve(worst)?, price))
            }
        };
        let ended = self.provider.chat(request, deltas).await;
        self.observe(&ended);
        if let Some((reservation, price)) = reserved {
            match &ended {
                Ok(answer) => reservation.settle(price.of(&answer.usage, false)),
                Err(error) if error.uncertain => drop(reservation),
                Err(_) => reservation.settle(0),
            }
        }
        ended
    }

    fn observe(&self, ended: &Result<Answer, LlmError>) {
        match ended {
            Ok(answer) => {
                self.breaker.succeeded();
                self.limiter.succeeded(&answer.limits);
            }
            Err(error) => {
                tracing::debug!(provider = self.provider.name(), kind = ?error.kind, status = error.status, request = error.request_id, "a call failed");
                match error.kind {
                    ErrorKind::RateLimited => self.limiter.throttled(error.retry_after, &error.limits),
                    ErrorKind::Overloaded => {
                        self.limiter.throttled(error.retry_after, &error.limits);
                        self.breaker.failed();
                    }
                    ErrorKind::Server | ErrorKind::Network | ErrorKind::Timeout | ErrorKind::StreamCut => {
                        self.breaker.failed();
                    }
                    _ => {}
                }
            }
        }
    }

    /// How this client retries.
    #[must_use]
    pub const fn retries(&self) -> RetryPolicy {
        self.retries
    }
}
