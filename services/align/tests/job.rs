//! The align job against a database.

mod common;

use std::time::Duration;

use align::{AlignHandler, AlignSettings, Backend};
use artifacts::Artifacts;
use chassis::{Completion, JobContext, JobError, JobHandler};
use common::call;
use domain::dataset::DatasetSpec;
use domain::job::{JobSpec, RowRange};
use domain::manifest::Sidecar;
use domain::{DatasetId, ErrorCode, JobId};
use store::Store;
use store::dialogues::RenderFacts;
use store::jobs::NewJob;
use testkit::TestDb;

async fn claimed(store: &Store, artifacts: &Artifacts, spec: &JobSpec) -> anyhow::Result<JobContext> {
    let id = JobId::generate();
    let job = NewJob { id, spec: spec.clone(), needs: Vec::new(), max_attempts: 3, traceparent: None };
    let mut tx = store.begin().await?;
    store::jobs::enqueue(&mut tx, &job).await?;
    tx.commit().await?;
    let claimed = store::leases::claim(store, id, "test", Duration::from_secs(60)).await?;
    let claim = claimed.ok_or_else(|| anyhow::anyhow!("nobody else claims it"))?.claim;
    Ok(JobContext::new(store.clone(), artifacts.clone(), claim))
}

#[tokio::test]
async fn an_align_job_leaves_stereo_sidecar_and_facts_and_fails_on_damaged_sound() -> anyhow::Result<()> {
    let db = TestDb::new().await?;
    let store = Store::from_pool(db.pool().await?);
    let dir = tempfile::tempdir()?;
    let artifacts = Artifacts::open(dir.path())?;
    let dataset = DatasetId::generate();
    let spec = DatasetSpec {
        domain: "d".into(),
        dialogues: 2,
        seed: 0,
        shard_size: 4,
        eval_fraction: 0.0,
        ..DatasetSpec::default()
    };
    let mut tx = store.begin().await?;
    store::datasets::insert(&mut tx, dataset, "calls", &spec).await?;
    tx.commit().await?;

    let calls =
        [call("good", &["Hello you", "Hi it is $5", "Yes"]), call("one-sided", &["Hello", "!!", "Bye"])];
    let rows = RowRange { from: 0, to: 2 };
    let dialogues = (0..).zip(calls.iter().map(|c| c.record.clone())).map(Into::into).collect();
    let ctx = claimed(&store, &artifacts, &JobSpec::Generate { dataset_id: dataset, rows }).await?;
    store::leases::finish(&store, ctx.claim, Completion::Generated { dataset, dialogues }).await?;
    let mut renders = Vec::new();
    for (row, call) in (0..).zip(&calls) {
        let base = format!("datasets/{dataset}/build/render/{}", call.record.id);
        let wav = artifacts.put(&format!("{base}.wav"), audio::wav::encode_pcm16(&call.mono)?).await?;
        let report = artifacts.put_json(&format!("{base}.json"), &call.report).await?;
        let facts = RenderFacts {
            wav: wav.path,
            wav_sha256: wav.sha256,
            report: report.path,
            duration_ms: call.report.duration_ms,
            agent_voice: call.report.agent_voice.clone(),
        };
        renders.push((row, facts));
    }
    let ctx = claimed(&store, &artifacts, &JobSpec::Render { dataset_id: dataset, rows }).await?;
    let done = Completion::Rendered { dataset, renders: renders.clone(), voices: Vec::new() };
    store::leases::finish(&store, ctx.claim, done).await?;

    let settings = AlignSettings {
        backend: Backend::Native,
        model: "none".into(),
        max_estimated_share: 0.15,
        max_edit_rate: 0.02,
        min_coverage: 0.85,
        min_speech_ratio_db: 20.0,
    };
    let handler = AlignHandler::new(settings.clone());
    let spec = JobSpec::Align { dataset_id: dataset, rows };
    let ctx = claimed(&store, &artifacts, &spec).await?;
    let done = handler.run(&ctx, spec.clone()).await?;
    store::leases::finish(&store, ctx.claim, done).await?;
    let stored = store::dialogues::of_dataset(&store, dataset, None).await?;
    let facts: Vec<_> = stored.into_iter().map(|d| d.alignment.expect("aligned")).collect();
    assert_eq!((facts[0].words, facts[0].estimated_words, facts[0].faults.len()), (7, 0, 0));
    assert!(facts[1].faults.iter().any(|f| f.contains("user")), "{:?}", facts[1].faults);
    let wav = artifacts.get_verified(&facts[0].wav, &facts[0].wav_sha256).await?;
    let stereo = audio::wav::parse(&wav, &audio::WavLimits::default())?;
    assert_eq!((stereo.channels.len(), stereo.duration_ms()), (2, calls[0].report.duration_ms));
    artifacts.get_verified(&facts[0].sidecar, &facts[0].sidecar_sha256).await?;
    let sidecar: Sidecar = artifacts.get_json(&facts[0].sidecar).await?;
    assert!(sidecar.context_injections.iter().all(|i| i.frame_offset.is_some()));

    let acoustic = AlignSettings { backend: Backend::Acoustic, ..settings };
    let ctx = claimed(&store, &artifacts, &spec).await?;
    let error = AlignHandler::new(acoustic.clone()).run(&ctx, spec.clone()).await.expect_err("no model");
    assert!(matches!(&error, JobError::Permanent(ErrorCode::AlignmentFailed, _)), "{error}");
    assert!(error.to_string().contains("pocketsphinx-en-us"), "{error}");
    let model = "/usr/share/pocketsphinx/model/en-us".into();
    let ctx = claimed(&store, &artifacts, &spec).await?;
    let done = AlignHandler::new(AlignSettings { model, ..acoustic }).run(&ctx, spec.clone()).await?;
    let Completion::Aligned { alignments, .. } = &done else { anyhow::bail!("{done:?}") };
    let heard = |fault: &String| fault.contains("words are heard");
    assert!(alignments[0].1.faults.iter().any(heard), "tones are no words: {:?}", alignments[0].1.faults);

    artifacts.put(&renders[0].1.wav, "not what was rendered").await?;
    let ctx = claimed(&store, &artifacts, &spec).await?;
    let error = handler.run(&ctx, spec).await.expect_err("damaged");
    assert!(matches!(error, JobError::Permanent(ErrorCode::ArtifactDamaged, _)), "{error}");
    Ok(())
}
