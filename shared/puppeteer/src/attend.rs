//! The task beside a session: hears the conversation, asks for advice, injects, notes every decision.
//!
//! One advice is asked for at a time and given up at its deadline. The session only ever tries to hand a frame over, so
//! whatever happens here delays nothing there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::puppeteer::{PuppeteerDecision, PuppeteerMode, PuppeteerOutcome, PuppeteerSpec};
use tokio::sync::mpsc;

use crate::advise::{Adviser, Consultation};
use crate::director::{Advice, Director, Heard, Look};

/// What a puppeteer can do to its session.
pub trait Stage: Send + Sync {
    /// Queues a text; the error is the code of the refusal.
    fn inject(&self, id: &str, text: &str) -> impl Future<Output = Result<(), String>> + Send;

    /// Keeps a decision. Must not wait.
    fn note(&self, decision: PuppeteerDecision);
}

/// A puppeteer for one session.
pub struct Puppeteer {
    spec: PuppeteerSpec,
    adviser: Option<Arc<dyn Adviser>>,
    deadline: Duration,
    /// Prefix of the ids of its injections, unique in the session.
    prefix: String,
}

/// An advice being waited for.
struct Asked {
    look: Look,
    since: Instant,
    answer: Pin<Box<dyn Future<Output = Result<Advice, String>> + Send>>,
}

/// The answer, once there is one; never when nothing was asked.
async fn answer(asked: &mut Option<Asked>) -> Result<Advice, String> {
    match asked {
        Some(asked) => asked.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Puppeteer {
    /// A puppeteer that gives an advice up after `deadline`; without an adviser only the schedule acts.
    #[must_use]
    pub fn new(spec: PuppeteerSpec, adviser: Option<Arc<dyn Adviser>>, deadline: Duration) -> Self {
        let adviser = adviser.filter(|_| spec.mode != PuppeteerMode::Scheduled);
        Self { spec, adviser, deadline, prefix: "pup".into() }
    }

    /// Works until the conversation ends, which is when nobody can send frames any more.
    pub async fn attend(self, mut heard: mpsc::Receiver<Heard>, stage: impl Stage) {
        let mut director = Director::new(self.spec.clone());
        let mut number = 0;
        let mut asked: Option<Asked> = None;
        loop {
            tokio::select! {
                frame = heard.recv() => match frame {
                    None => return,
                    Some(frame) => director.hear(frame),
                },
                advice = answer(&mut asked) => {
                    let Some(Asked { look, since, .. }) = asked.take() else { continue };
                    let decision = self.act(&mut director, &stage, &look, advice, &mut number).await;
                    stage.note(PuppeteerDecision { latency_ms: millis(since), ..decision });
                }
            }
            self.play_schedule(&mut director, &stage, &mut number).await;
            if asked.is_none()
                && let Some(adviser) = &self.adviser
                && director.may_inject()
                && let Some(look) = director.look()
            {
                let consultation = Consultation {
                    look: look.clone(),
                    told: director.told().to_vec(),
                    instructions: self.spec.instructions.clone(),
                };
                let answer = Box::pin(consult(Arc::clone(adviser), consultation, self.deadline));
                asked = Some(Asked { look, since: Instant::now(), answer });
            }
        }
    }

    async fn play_schedule(&self, director: &mut Director, stage: &impl Stage, number: &mut u32) {
        while let Some(item) = director.scheduled() {
            let since = Instant::now();
            let advice = Advice { text: item.text, facts: Vec::new(), reason: "scheduled".into() };
            let decision = self.inject(director, stage, advice, number, PuppeteerMode::Scheduled).await;
            stage.note(PuppeteerDecision { frame: item.frame, latency_ms: millis(since), ..decision });
        }
    }

    /// What becomes of an answer.
    async fn act(
        &self,
        director: &mut Director,
        stage: &impl Stage,
        look: &Look,
        answer: Result<Advice, String>,
        number: &mut u32,
    ) -> PuppeteerDecision {
        let advice = match answer {
            Ok(advice) => advice,
            Err(reason) => return decision(look.frame, self.spec.mode, PuppeteerOutcome::Failed, reason),
        };
        match director.judge(&advice) {
            PuppeteerOutcome::Injected => {
                let made = self.inject(director, stage, advice, number, self.spec.mode).await;
                PuppeteerDecision { frame: look.frame, ..made }
            }
            outcome => PuppeteerDecision {
                facts: advice.facts,
                ..decision(look.frame, self.spec.mode, outcome, advice.reason)
            },
        }
    }

    async fn inject(
        &self,
        director: &mut Director,
        stage: &impl Stage,
        advice: Advice,
        number: &mut u32,
        mode: PuppeteerMode,
    ) -> PuppeteerDecision {
        *number += 1;
        let id = format!("{}_{number}", self.prefix);
        let (outcome, reason) = match stage.inject(&id, &advice.text).await {
            Ok(()) => {
                director.injected(&advice);
                (PuppeteerOutcome::Injected, advice.reason)
            }
            Err(code) => (PuppeteerOutcome::Refused, code),
        };
        PuppeteerDecision {
            injection_id: Some(id),
            facts: advice.facts,
            ..decision(0, mode, outcome, reason)
        }
    }
}

/// Asks in a task of its own: an adviser that computes for long, or panics, stops nothing here.
async fn consult(
    adviser: Arc<dyn Adviser>,
    consultation: Consultation,
    deadline: Duration,
) -> Result<Advice, String> {
    let task = tokio::spawn(async move { adviser.advise(&consultation).await });
    let stop = task.abort_handle();
    match tokio::time::timeout(deadline, task).await {
        Ok(Ok(advice)) => advice,
        Ok(Err(_)) => Err("the adviser broke down".into()),
        Err(_) => {
            stop.abort();
            Err(format!("no advice within {} ms", deadline.as_millis()))
        }
    }
}

fn decision(frame: u64, mode: PuppeteerMode, outcome: PuppeteerOutcome, reason: String) -> PuppeteerDecision {
    PuppeteerDecision { frame, mode, outcome, injection_id: None, facts: Vec::new(), reason, latency_ms: 0 }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use domain::puppeteer::ScheduledContext;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{Keywords, Knowledge, KnowledgeBase, Speaker};

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A session that takes everything but texts with `no` in them.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<(Vec<String>, Vec<PuppeteerDecision>)>>);

    impl Stage for Notes {
        async fn inject(&self, _id: &str, text: &str) -> Result<(), String> {
            if text.contains("no room") {
                return Err("queue_full".into());
            }
            self.0.lock().expect("no panic").0.push(text.to_owned());
            Ok(())
        }

        fn note(&self, decision: PuppeteerDecision) {
            self.0.lock().expect("no panic").1.push(decision);
        }
    }

    impl Notes {
        fn injected(&self) -> Vec<String> {
            self.0.lock().expect("no panic").0.clone()
        }

        async fn decisions(&self, count: usize) -> Vec<PuppeteerDecision> {
            let enough = async {
                loop {
                    let found = self.0.lock().expect("no panic").1.clone();
                    if found.len() >= count {
                        return found;
                    }
                    sleep(Duration::from_millis(2)).await;
                }
            };
            timeout(PATIENCE, enough).await.expect("decisions in time")
        }
    }

    /// An adviser that never answers.
    struct Stuck;

    #[async_trait]
    impl Adviser for Stuck {
        async fn advise(&self, _: &Consultation) -> Result<Advice, String> {
            std::future::pending().await
        }
    }

    fn start(
        spec: PuppeteerSpec,
        adviser: Option<Arc<dyn Adviser>>,
        deadline: Duration,
    ) -> (mpsc::Sender<Heard>, Notes, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(64);
        let notes = Notes::default();
        let task = tokio::spawn(Puppeteer::new(spec, adviser, deadline).attend(receiver, notes.clone()));
        (sender, notes, task)
    }

    async fn say(sender: &mpsc::Sender<Heard>, from: u64, text: &str) {
        for (frame, text) in (from..).zip([text, "", "", "", "", "", "", ""]) {
            let heard = Heard { frame, speaker: Speaker::Agent, text: text.into() };
            sender.send(heard).await.expect("it listens");
        }
    }

    fn keywords() -> Arc<dyn Adviser> {
        let base =
            KnowledgeBase::from_markdown("- Policy 2266 renews on March 3.\n\n- Claim 88 has no room left.");
        Arc::new(Keywords::new(Knowledge::new(base.expect("facts"), None)))
    }

    #[tokio::test]
    async fn the_fact_that_fits_is_injected_once_and_every_decision_is_noted() {
        let spec = PuppeteerSpec { min_gap_s: 0.0, ..PuppeteerSpec::default() };
        let (sender, notes, task) = start(spec, Some(keywords()), PATIENCE);
        say(&sender, 0, " let me look at policy 2266").await;
        let first = notes.decisions(1).await;
        assert_eq!((first[0].outcome, first[0].frame), (PuppeteerOutcome::Injected, 6));
        assert_eq!(first[0].facts, ["fact-1"]);
        say(&sender, 20, " yes policy 2266 it is").await;
        assert_eq!(notes.decisions(2).await[1].outcome, PuppeteerOutcome::Nothing, "told already");
        say(&sender, 40, " and then there is claim 88").await;
        let refused = &notes.decisions(3).await[2];
        assert_eq!((refused.outcome, refused.reason.as_str()), (PuppeteerOutcome::Refused, "queue_full"));
        assert_eq!(notes.injected(), ["Policy 2266 renews on March 3."]);
        drop(sender);
        timeout(PATIENCE, task).await.expect("it ends with the session").expect("no panic");
    }

    #[tokio::test]
    async fn a_stuck_adviser_costs_its_deadline_and_the_schedule_goes_on_meanwhile() {
        let schedule = vec![ScheduledContext { frame: 9, text: "on time".into() }];
        let spec = PuppeteerSpec { schedule, ..PuppeteerSpec::default() };
        let (sender, notes, _task) = start(spec, Some(Arc::new(Stuck)), Duration::from_millis(80));
        say(&sender, 0, " four words or more").await;
        say(&sender, 8, "").await;
        let found = notes.decisions(2).await;
        assert_eq!((found[0].mode, found[0].outcome), (PuppeteerMode::Scheduled, PuppeteerOutcome::Injected));
        assert_eq!(
            (found[1].outcome, found[1].reason.as_str()),
            (PuppeteerOutcome::Failed, "no advice within 80 ms")
        );
        assert!(found[1].latency_ms >= 80);
    }

    #[tokio::test]
    async fn in_scheduled_mode_nobody_is_asked() {
        let spec = PuppeteerSpec { mode: PuppeteerMode::Scheduled, ..PuppeteerSpec::default() };
        let (sender, notes, task) = start(spec, Some(keywords()), PATIENCE);
        say(&sender, 0, " let me look at policy 2266").await;
        drop(sender);
        timeout(PATIENCE, task).await.expect("it ends").expect("no panic");
        assert_eq!(notes.injected(), Vec::<String>::new());
    }
}
