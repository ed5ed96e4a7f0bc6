//! The render job against a database.

mod common;

use std::sync::Arc;
use std::time::Duration;

use artifacts::Artifacts;
use chassis::{Completion, JobContext, JobError, JobHandler};
use common::{CALL, record};
use domain::dataset::DatasetSpec;
use domain::dialogue::DialogueRecord;
use domain::job::{JobSpec, RowRange};
use domain::render::RenderReport;
use domain::{DatasetId, ErrorCode, JobId};
use store::Store;
use store::jobs::NewJob;
use testkit::TestDb;
use tts::{FliteEngine, RenderHandler};

struct World {
    store: Store,
    artifacts: Artifacts,
    dataset: DatasetId,
    _db: TestDb,
    _dir: tempfile::TempDir,
}

impl World {
    async fn with(records: Vec<DialogueRecord>) -> anyhow::Result<Self> {
        let db = TestDb::new().await?;
        let store = Store::from_pool(db.pool().await?);
        let dir = tempfile::tempdir()?;
        let artifacts = Artifacts::open(dir.path())?;
        let dataset = DatasetId::generate();
        let dialogues = u32::try_from(records.len())?;
        let spec = DatasetSpec {
            domain: "d".into(),
            dialogues,
            seed: 0,
            shard_size: 4,
            eval_fraction: 0.0,
            ..DatasetSpec::default()
        };
        let mut tx = store.begin().await?;
        store::datasets::insert(&mut tx, dataset, "calls", &spec).await?;
        tx.commit().await?;
        let world = Self { store, artifacts, dataset, _db: db, _dir: dir };
        let rows = RowRange { from: 0, to: dialogues };
        let ctx = world.claimed(JobSpec::Generate { dataset_id: dataset, rows }).await?.0;
        let done = Completion::Generated { dataset, dialogues: (0..).zip(records).map(Into::into).collect() };
        store::leases::finish(&world.store, ctx.claim, done).await?;
        Ok(world)
    }

    async fn claimed(&self, spec: JobSpec) -> anyhow::Result<(JobContext, JobSpec)> {
        let id = JobId::generate();
        let job = NewJob { id, spec: spec.clone(), needs: Vec::new(), max_attempts: 3, traceparent: None };
        let mut tx = self.store.begin().await?;
        store::jobs::enqueue(&mut tx, &job).await?;
        tx.commit().await?;
        let claimed = store::leases::claim(&self.store, id, "test", Duration::from_secs(60)).await?;
        let claim = claimed.ok_or_else(|| anyhow::anyhow!("nobody else claims it"))?.claim;
        Ok((JobContext::new(self.store.clone(), self.artifacts.clone(), claim), spec))
    }

    fn render(&self, to: u32) -> JobSpec {
        JobSpec::Render { dataset_id: self.dataset, rows: RowRange { from: 0, to } }
    }
}

fn handler() -> RenderHandler {
    RenderHandler { engine: Arc::new(FliteEngine::new()), max_words: 100 }
}

#[tokio::test]
async fn a_render_job_leaves_files_facts_and_voices_and_may_run_twice() -> anyhow::Result<()> {
    let world =
        World::with(vec![record("call-0", &CALL), record("call-1", &["Hello.", "!!!", "Bye."])]).await?;
    let (first, spec) = world.claimed(world.render(2)).await?;
    handler().run(&first, spec).await?;
    let (ctx, spec) = world.claimed(world.render(2)).await?;
    let done = handler().run(&ctx, spec).await?;
    store::leases::finish(&world.store, ctx.claim, done).await?;

    for dialogue in store::dialogues::of_dataset(&world.store, world.dataset, None).await? {
        let facts = dialogue.render.expect("the completion was applied");
        let wav = world.artifacts.get_verified(&facts.wav, &facts.wav_sha256).await?;
        let twin = facts.wav.replace(&ctx.job_id().to_string(), &first.job_id().to_string());
        assert_eq!(wav, world.artifacts.get(&twin).await?, "both attempts give the same bytes");
        let report: RenderReport = world.artifacts.get_json(&facts.report).await?;
        assert_eq!(report.turns.len(), dialogue.record.turns.len());
        assert_eq!((report.duration_ms, &report.agent_voice), (facts.duration_ms, &facts.agent_voice));
        let voice = store::voices::find(&world.store, &facts.agent_voice).await?;
        assert!((4000..=6000).contains(&voice.duration_ms));
        world.artifacts.get_verified(&voice.artifact, &voice.sha256).await?;
    }
    let job = store::jobs::get(&world.store, ctx.job_id()).await?;
    assert_eq!(job.progress.map(|p| (p.done, p.total)), Some((2, 2)));
    Ok(())
}

#[tokio::test]
async fn a_script_over_the_limit_fails_the_job_for_good_before_anything_is_rendered() -> anyhow::Result<()> {
    let long = "word ".repeat(101);
    let world = World::with(vec![record("fine", &CALL), record("long", &[&long])]).await?;
    let (ctx, spec) = world.claimed(world.render(2)).await?;
    let error = handler().run(&ctx, spec).await.expect_err("too long");
    let JobError::Permanent(ErrorCode::InvalidDialogue, detail) = &error else { panic!("{error}") };
    assert!(detail.contains("\"long\"") && detail.contains("101") && detail.contains("100"), "{detail}");
    assert!(world.artifacts.list("datasets").await?.is_empty());
    Ok(())
}
