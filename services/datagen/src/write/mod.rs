//! Dialogues by a writing model: ask, check, ask to repair, and keep books of every call.
//!
//! What happens next with a row follows from the answers that were paid for alone. They are in the database the moment
//! they come, so that a worker that dies loses none: the next one reads them and goes on where it was.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use backon::Retryable;
use chassis::{JobContext, JobError};
use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DialogueRecord};
use domain::job::RowRange;
use domain::pack::DomainPack;
use domain::{DatasetId, ErrorCode};
use drafting::validate::{self, repair};
use drafting::{prompts, sampler::Design};
use futures::{StreamExt, TryStreamExt};
use llm::price::Price;
use llm::retry::with_retries;
use llm::{Action, Answer, ChatRequest, Client, ErrorKind, LlmError, Message, Role, StopReason, Tool};
use store::calls::{self, CallEnd, PaidCall};

use crate::settings::WriterSettings;

mod answer;

/// Repairs of an answer before the row is written anew.
const REPAIRS: usize = 2;
/// Paid answers of a row in all: the first, its repairs, and a fresh one.
const MOST_ANSWERS: usize = REPAIRS + 2;

/// Writes with a model.
#[derive(Debug, Clone)]
pub struct Writer {
    client: Client,
    price: Price,
    settings: WriterSettings,
}

/// A shard that is being written.
struct Shard<'a> {
    ctx: &'a JobContext,
    pack: &'a DomainPack,
    design: &'a Design,
    dataset: DatasetId,
}

/// What the paid answers of a row come to.
enum Standing {
    /// It is over: the record and the number of answers.
    Over(DialogueRecord, u32),
    /// This is to be asked next.
    Ask(Vec<Message>),
}

fn unfit(detail: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::ValidationFailed, detail)
}

impl Writer {
    /// A writer of these settings; `today` (`2026-01-31`) finds the price.
    ///
    /// # Errors
    /// When the address is wrong or the model has no price.
    pub fn new(settings: WriterSettings, today: &str) -> anyhow::Result<Self> {
        let prices = llm::Prices::built_in()?;
        let price = match prices.find(&settings.model, today) {
            _ if settings.free => Price::free(),
            Some(price) => price.clone(),
            None => anyhow::bail!(
                "[datagen] writer: {:?} has no price in configs/llm_prices.toml; set free = true for a model of your own",
                settings.model
            ),
        };
        Ok(Self { client: Client::new(&settings.provider)?, price, settings })
    }

    /// Writes the rows of a shard that are not in `have`; the answer has each with the number of answers it took.
    ///
    /// # Errors
    /// When the budget does not allow it, the provider refuses us, or the lease is lost.
    pub async fn rows(
        &self,
        ctx: &JobContext,
        (pack, design): (&DomainPack, &Design),
        dataset: DatasetId,
        rows: RowRange,
        have: &BTreeMap<u32, (DialogueRecord, u32)>,
    ) -> Result<BTreeMap<u32, (DialogueRecord, u32)>, JobError> {
        let lost = calls::take_over(&ctx.store, ctx.claim, dataset, rows).await?;
        if lost > 0 {
            tracing::warn!(calls = lost, "calls of a lost worker may have to be paid twice");
        }
        let mut paid: BTreeMap<u32, Vec<PaidCall>> = BTreeMap::new();
        for call in calls::paid(&ctx.store, dataset, rows).await? {
            paid.entry(call.row).or_default().push(call);
        }
        let missing: Vec<u32> = rows.rows().filter(|row| !have.contains_key(row)).collect();
        let shard = Shard { ctx, pack, design, dataset };
        self.affordable(&shard, missing.iter().filter(|row| !paid.contains_key(row)).count()).await?;
        let (total, done) = (u64::from(rows.to - rows.from), AtomicU64::new(have.len() as u64));
        // Progress is written within the futures: all of them are polled together, and none waits for a lock that
        // another holds while nobody polls it.
        let one = |row: u32| {
            let (shard, done, paid) = (&shard, &done, paid.remove(&row).unwrap_or_default());
            async move {
                let written = self.row(shard, row, paid).await?;
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if done < total {
                    ctx.progress(done, total, "dialogues").await?;
                }
                Ok((row, written))
            }
        };
        let asked: Vec<_> = missing.into_iter().map(one).collect();
        let asked = futures::stream::iter(asked);
        asked.buffer_unordered(self.settings.provider.max_concurrency.max(1)).try_collect().await
    }

    /// Refuses a shard that cannot be paid for even if every row is right at once.
    async fn affordable(&self, shard: &Shard<'_>, rows: usize) -> Result<(), JobError> {
        let spent = calls::cost(&shard.ctx.store, shard.dataset).await?;
        let row = self.price.worst(0, self.settings.typical_tokens, false);
        let estimate = row.saturating_mul(rows as u64);
        let most = self.settings.max_cost_microusd;
        if spent.saturating_add(estimate) > most {
            return Err(unfit(format!(
                "{rows} dialogues are estimated at {estimate} millionths of a dollar; {spent} of {most} are spent"
            )));
        }
        Ok(())
    }

    async fn row(
        &self,
        shard: &Shard<'_>,
        row: u32,
        mut paid: Vec<PaidCall>,
    ) -> Result<(DialogueRecord, u32), JobError> {
        loop {
            shard.ctx.check()?;
            let messages = match self.standing(shard, row, &paid)? {
                Standing::Over(record, answers) => return Ok((record, answers)),
                Standing::Ask(messages) => messages,
            };
            let request = self.request(shard.pack, messages);
            let call = with_retries(self.client.retries(), || self.call(shard, row, &request)).await;
            match call {
                Ok(call) => paid.push(call),
                Err(error) if error.action() == Action::FailRow => {
                    tracing::warn!(row, kind = ?error.kind, "the provider does not write this row");
                    let record = self.empty(shard, row, &paid)?;
                    return Ok((record, u32::try_from(paid.len() + 1).unwrap_or(u32::MAX)));
                }
                Err(error) if error.action() == Action::StopJob => return Err(unfit(error)),
                Err(error) => return Err(JobError::transient(ErrorCode::Unavailable, error)),
            }
        }
    }

    /// One call, in the books before it is made.
    async fn call(&self, shard: &Shard<'_>, row: u32, request: &ChatRequest) -> Result<PaidCall, LlmError> {
        let store = &shard.ctx.store;
        let down =
            |error: store::StoreError| LlmError::new(ErrorKind::Network, format!("the books: {error}"));
        let worst = self.price.worst(request.input_tokens_at_most(), request.max_tokens, false);
        let most = self.settings.max_cost_microusd;
        let attempt = calls::begin(store, shard.ctx.claim, shard.dataset, row, worst, most)
            .await
            .map_err(down)?
            .ok_or_else(|| {
                let detail =
                    format!("the next call may cost {worst} of {most} millionths of a dollar in all");
                LlmError::new(ErrorKind::BudgetExceeded, detail)
            })?;
        let ended = self.client.once(request, &mut |_| {}).await;
        let (cost, end) = match &ended {
            Ok(answer) => {
                let document = serde_json::to_value(answer).unwrap_or_default();
                (self.price.of(&answer.usage, false), CallEnd::Paid(document))
            }
            Err(error) if error.uncertain => (worst, CallEnd::Uncertain(error.to_string())),
            Err(error) => (0, CallEnd::Failed(error.to_string())),
        };
        let closing = || calls::end(store, shard.dataset, row, attempt, cost, &end);
        // An answer that was paid for is not given up because the database is away for a moment.
        closing.retry(backon::ExponentialBuilder::default().with_max_times(6)).await.map_err(down)?;
        let document = match end {
            CallEnd::Paid(document) => document,
            CallEnd::Failed(_) | CallEnd::Uncertain(_) => serde_json::Value::Null,
        };
        ended.map(|_| PaidCall { row, cost_microusd: cost, answer: document })
    }

    fn request(&self, pack: &DomainPack, messages: Vec<Message>) -> ChatRequest {
        ChatRequest {
            model: self.settings.model.clone(),
            system: prompts::system(pack),
            cache_system: true,
            messages,
            tool: Some(Tool {
                name: prompts::TOOL.into(),
                description: "Hands the finished dialogue in.".into(),
                schema: prompts::tool_schema(pack),
            }),
            max_tokens: self.settings.max_tokens,
            temperature: None,
            stream: true,
        }
    }

    /// Plays the paid answers through: a good one ends the row; others are repaired, and after that written anew.
    fn standing(&self, shard: &Shard<'_>, row: u32, paid: &[PaidCall]) -> Result<Standing, JobError> {
        let empty = self.empty(shard, row, paid)?;
        let first = Message { role: Role::User, text: prompts::row(shard.pack, &empty.seed) };
        let answers = u32::try_from(paid.len()).unwrap_or(u32::MAX);
        let mut messages = vec![first.clone()];
        let mut best: Option<(usize, DialogueRecord)> = None;
        for (number, call) in paid.iter().enumerate() {
            let Ok(found) = serde_json::from_value::<Answer>(call.answer.clone()) else { continue };
            let whole = found.stop != StopReason::MaxTokens && found.stop != StopReason::Refusal;
            let read = if whole { answer::read(shard.pack, &found) } else { None };
            messages.truncate(1);
            let Some(read) = read else { continue };
            let record = DialogueRecord {
                text_prompt: read.text_prompt,
                turns: read.turns,
                context_injections: read.injections,
                model: found.model,
                ..empty.clone()
            };
            let faults = validate::faults(shard.pack, &record);
            if faults.is_empty() {
                return Ok(Standing::Over(record, answers));
            }
            if number < REPAIRS {
                messages.push(Message { role: Role::Assistant, text: read.text });
                messages.push(Message { role: Role::User, text: repair::message(&faults) });
            }
            if best.as_ref().is_none_or(|(least, _)| faults.len() < *least) {
                best = Some((faults.len(), record));
            }
        }
        if paid.len() >= MOST_ANSWERS {
            return Ok(Standing::Over(best.map_or(empty, |(_, record)| record), answers));
        }
        Ok(Standing::Ask(messages))
    }

    /// The record of a row without words.
    fn empty(&self, shard: &Shard<'_>, row: u32, paid: &[PaidCall]) -> Result<DialogueRecord, JobError> {
        let (pack, design) = (shard.pack, shard.design);
        let seed = design.values(pack, row).ok_or_else(|| unfit(format!("the design has no row {row}")))?;
        Ok(DialogueRecord {
            id: format!("{}-{}-{row:05}", pack.short, design.id().get(..8).unwrap_or_default()),
            schema_version: DIALOGUE_SCHEMA_VERSION,
            domain: pack.id.clone(),
            text_prompt: String::new(),
            turns: Vec::new(),
            context_injections: Vec::new(),
            seed,
            design: design.row(row),
            model: self.settings.model.clone(),
            cost_microusd: paid.iter().map(|call| call.cost_microusd).sum(),
        })
    }
}
