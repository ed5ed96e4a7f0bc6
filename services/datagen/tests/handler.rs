//! Generate jobs against a real database: enqueue, claim, run, finish, read the rows.
#![expect(clippy::expect_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use artifacts::Artifacts;
use chassis::{JobContext, JobError, JobHandler};
use datagen::handler::GenerateHandler;
use datagen::packs::Packs;
use domain::dataset::DatasetSpec;
use domain::dialogue::DialogueRecord;
use domain::job::{JobKind, JobSpec, JobState, RowRange};
use domain::{DatasetId, DialogueId, ErrorCode, JobId};
use store::jobs::{self, NewJob};
use store::{Store, datasets, dialogues, leases};
use testkit::TestDb;

const LEASE: Duration = Duration::from_secs(30);

struct World {
    db: TestDb,
    store: Store,
    folder: tempfile::TempDir,
    dataset: DatasetId,
    handler: GenerateHandler,
}

impl World {
    async fn new(domain: &str) -> anyhow::Result<Self> {
        let db = TestDb::new().await?;
        let store = Store::from_pool(db.pool().await?);
        let dataset = DatasetId::generate();
        let spec = DatasetSpec {
            domain: domain.into(),
            dialogues: 10,
            seed: 42,
            shard_size: 4,
            eval_fraction: 0.2,
            ..DatasetSpec::default()
        };
        let mut tx = store.begin().await?;
        datasets::insert(&mut tx, dataset, "calls", &spec).await?;
        tx.commit().await?;
        let handler = GenerateHandler::new(Packs::open(Path::new(""))?);
        Ok(Self { db, store, folder: tempfile::tempdir()?, dataset, handler })
    }

    async fn enqueue(&self, rows: RowRange) -> anyhow::Result<JobId> {
        let id = JobId::generate();
        let spec = JobSpec::Generate { dataset_id: self.dataset, rows };
        let mut tx = self.store.begin().await?;
        jobs::enqueue(&mut tx, &NewJob { id, spec, needs: vec![], max_attempts: 2, traceparent: None })
            .await?;
        tx.commit().await?;
        Ok(id)
    }

    async fn claim(&self, job: JobId) -> anyhow::Result<(JobContext, JobSpec)> {
        let claimed = leases::claim(&self.store, job, "test", LEASE).await?.expect("the job waits");
        let artifacts = Artifacts::open(self.folder.path())?;
        Ok((JobContext::new(self.store.clone(), artifacts, claimed.claim), claimed.spec))
    }
}

#[tokio::test]
async fn shards_leave_valid_dialogues_of_one_design() -> anyhow::Result<()> {
    let world = World::new("insurance_brokerage").await?;
    for rows in RowRange::shards(10, 4) {
        let job = world.enqueue(rows).await?;
        let (ctx, spec) = world.claim(job).await?;
        let done = world.handler.run(&ctx, spec).await?;
        assert_eq!(dialogues::of_dataset(&world.store, world.dataset, Some(rows)).await?.len(), 0);
        leases::finish(&world.store, ctx.claim, done).await?;
        let job = jobs::get(&world.store, job).await?;
        assert_eq!(job.state, JobState::Succeeded);
        let progress = job.progress.expect("was recorded");
        assert_eq!((progress.done, progress.unit.as_str()), (u64::from(rows.to - rows.from), "dialogues"));
    }
    let packs = Packs::open(Path::new(""))?;
    let pack = packs.get("insurance_brokerage", None)?;
    let stored = dialogues::of_dataset(&world.store, world.dataset, None).await?;
    assert_eq!(stored.iter().map(|d| d.row).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    for dialogue in &stored {
        assert_eq!(datagen::validate::faults(pack, &dialogue.record), []);
        assert_eq!(dialogue.record.design.row, dialogue.row);
        assert_eq!(dialogue.record.design.design_id, stored[0].record.design.design_id);
    }
    drop(world.db);
    Ok(())
}

#[tokio::test]
async fn a_second_attempt_writes_the_same_and_the_lost_one_writes_nothing() -> anyhow::Result<()> {
    let world = World::new("pharma_adherence").await?;
    let rows = RowRange { from: 4, to: 8 };
    let job = world.enqueue(rows).await?;
    let (first, spec) = world.claim(job).await?;
    let lost = world.handler.run(&first, spec).await?;
    leases::hand_back(&world.store, first.claim).await?;
    let (second, spec) = world.claim(job).await?;
    let again = world.handler.run(&second, spec).await?;
    let records = |done: &chassis::Completion| match done {
        chassis::Completion::Generated { dialogues, .. } => dialogues.clone(),
        other => panic!("another completion: {other:?}"),
    };
    assert_eq!(records(&lost), records(&again));
    assert!(leases::finish(&world.store, first.claim, lost).await.is_err());
    leases::finish(&world.store, second.claim, again).await?;
    assert_eq!(dialogues::of_dataset(&world.store, world.dataset, None).await?.len(), 4);
    drop(world.db);
    Ok(())
}

#[tokio::test]
async fn unknown_domains_and_rows_past_the_end_fail_for_good() -> anyhow::Result<()> {
    for (domain, to, word) in [("astrology", 4, "astrology"), ("pharma_adherence", 11, "11")] {
        let world = World::new(domain).await?;
        let job = world.enqueue(RowRange { from: 0, to }).await?;
        let (ctx, spec) = world.claim(job).await?;
        match world.handler.run(&ctx, spec).await {
            Err(JobError::Permanent(ErrorCode::ValidationFailed, detail)) => {
                assert!(detail.contains(word), "{detail}");
            }
            other => panic!("{other:?}"),
        }
        leases::hand_back(&world.store, ctx.claim).await?;
        drop(world.db);
    }
    Ok(())
}

impl World {
    /// Runs every generate job that waits.
    async fn work_off(&self) -> anyhow::Result<()> {
        while let Some(claimed) = leases::claim_next(&self.store, JobKind::Generate, "test", LEASE).await? {
            let artifacts = Artifacts::open(self.folder.path())?;
            let ctx = JobContext::new(self.store.clone(), artifacts, claimed.claim);
            let done = self.handler.run(&ctx, claimed.spec).await?;
            leases::finish(&self.store, ctx.claim, done).await?;
        }
        Ok(())
    }

    /// What a person makes of a dialogue.
    async fn correct(&self, id: DialogueId, record: &DialogueRecord) -> anyhow::Result<()> {
        let mut tx = self.store.begin().await?;
        dialogues::review::edit(&mut tx, id, 1, record, &[]).await?;
        tx.commit().await?;
        Ok(())
    }

    /// A dataset with its generate jobs.
    async fn dataset(&self, spec: &DatasetSpec) -> anyhow::Result<DatasetId> {
        let dataset_id = DatasetId::generate();
        let mut tx = self.store.begin().await?;
        datasets::insert(&mut tx, dataset_id, "calls", spec).await?;
        for rows in RowRange::shards(spec.dialogues, 4) {
            let spec = JobSpec::Generate { dataset_id, rows };
            let new =
                NewJob { id: JobId::generate(), spec, needs: vec![], max_attempts: 2, traceparent: None };
            jobs::enqueue(&mut tx, &new).await?;
        }
        tx.commit().await?;
        Ok(dataset_id)
    }
}

#[tokio::test]
async fn an_extension_takes_over_the_dialogues_of_its_base_and_writes_the_rest() -> anyhow::Result<()> {
    let world = World::new("pharma_adherence").await?;
    let base_spec = DatasetSpec {
        domain: "pharma_adherence".into(),
        dialogues: 10,
        seed: 42,
        approved_only: true,
        ..DatasetSpec::default()
    };
    let base = world.dataset(&base_spec).await?;
    world.work_off().await?;
    let before = dialogues::of_dataset(&world.store, base, None).await?;
    // A person corrected one of them: that is what is taken over.
    let mut corrected = before[3].record.clone();
    corrected.turns[1].text = "A word of my own.".into();
    world.correct(before[3].id, &corrected).await?;
    let more = DatasetSpec { dialogues: 17, blocks: vec![10, 7], extends: Some(base), ..base_spec };
    let extended = world.dataset(&more).await?;
    world.work_off().await?;
    let after = dialogues::of_dataset(&world.store, extended, None).await?;
    assert_eq!(after.len(), 17);
    for (old, new) in before.iter().zip(&after).filter(|(old, _)| old.row != 3) {
        assert_eq!(old.record, new.record);
    }
    assert_eq!(after[3].record.turns[1].text, "A word of my own.");
    assert_ne!(after[12].record.design.design_id, after[2].record.design.design_id);
    drop(world.db);
    Ok(())
}

#[tokio::test]
async fn a_dialogue_that_is_told_twice_is_kept_as_invalid_and_the_first_one_stays_good() -> anyhow::Result<()>
{
    let world = World::new("insurance_brokerage").await?;
    let spec = DatasetSpec {
        domain: "insurance_brokerage".into(),
        dialogues: 8,
        seed: 1,
        approved_only: true,
        ..DatasetSpec::default()
    };
    let base = world.dataset(&spec).await?;
    world.work_off().await?;
    // Row 6 of the base says what row 1 says: taken over, it is one dialogue told twice.
    let written = dialogues::of_dataset(&world.store, base, None).await?;
    let again = DialogueRecord { id: written[6].record.id.clone(), ..written[1].record.clone() };
    world.correct(written[6].id, &again).await?;
    let more = DatasetSpec { dialogues: 10, blocks: vec![8, 2], extends: Some(base), ..spec };
    let extended = world.dataset(&more).await?;
    world.work_off().await?;
    let found = dialogues::of_dataset(&world.store, extended, None).await?;
    let invalid: Vec<u32> = found.iter().filter(|d| !d.faults.is_empty()).map(|d| d.row).collect();
    assert_eq!(invalid, [6], "{:?}", found[6].faults);
    assert_eq!(found[6].faults[0].code.as_str(), "V10");
    assert!(found[6].faults[0].detail.contains(&found[1].record.id), "{:?}", found[6].faults);
    drop(world.db);
    Ok(())
}
