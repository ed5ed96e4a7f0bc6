//! The import job against a database: all or nothing, and the same content after an export.

mod common;

use std::path::Path;
use std::time::Duration;

use artifacts::Artifacts;
use chassis::{JobContext, JobError, JobHandler};
use common::{IDS, Source, sound};
use dataset::report::Report;
use dataset::{DatasetSettings, ImportHandler};
use domain::dataset::{DatasetSpec, DatasetSummary, ImportSource, ImportSpec};
use domain::job::JobSpec;
use domain::{DatasetId, ErrorCode, JobId, UploadId};
use store::Store;
use store::jobs::NewJob;
use testkit::TestDb;

struct World {
    store: Store,
    artifacts: Artifacts,
    dir: tempfile::TempDir,
    _db: TestDb,
}

fn spec(source: ImportSource) -> ImportSpec {
    ImportSpec {
        source,
        main_speaker_label: None,
        eval_fraction: 0.05,
        seed: 0,
        license: None,
        drop_voices: false,
        script_words: false,
    }
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let db = TestDb::new().await?;
        let store = Store::from_pool(db.pool().await?);
        let dir = tempfile::tempdir()?;
        let artifacts = Artifacts::open(&dir.path().join("artifacts"))?;
        std::fs::create_dir(dir.path().join("import"))?;
        Ok(Self { store, artifacts, dir, _db: db })
    }

    /// Puts a folder into the import folder.
    fn offer(&self, name: &str, from: &Path) -> anyhow::Result<ImportSource> {
        copy_folder(from, &self.dir.path().join("import").join(name))?;
        Ok(ImportSource::Path(name.into()))
    }

    fn upload(&self, from: &Path) -> anyhow::Result<ImportSource> {
        let id = UploadId::generate();
        let path = self.artifacts.local_path(&format!("uploads/{id}/archive"))?;
        std::fs::create_dir_all(path.parent().expect("has one"))?;
        let packed = flate2::write::GzEncoder::new(std::fs::File::create(path)?, flate2::Compression::fast());
        let mut archive = tar::Builder::new(packed);
        archive.append_dir_all("wrapped", from)?;
        archive.into_inner()?.finish()?;
        Ok(ImportSource::Upload(id))
    }

    async fn import(
        &self,
        name: &str,
        import: &ImportSpec,
    ) -> anyhow::Result<(DatasetId, Result<DatasetSummary, JobError>)> {
        let id = DatasetId::generate();
        let base = DatasetSpec {
            domain: "imported".into(),
            dialogues: 0,
            seed: 0,
            shard_size: 1,
            eval_fraction: 0.05,
            ..DatasetSpec::default()
        };
        let job = NewJob {
            id: JobId::generate(),
            spec: JobSpec::Import { dataset_id: id },
            needs: Vec::new(),
            max_attempts: 3,
            traceparent: None,
        };
        let mut tx = self.store.begin().await?;
        store::datasets::insert_import(&mut tx, id, name, &base, import).await?;
        store::jobs::enqueue(&mut tx, &job).await?;
        tx.commit().await?;
        let claimed = store::leases::claim(&self.store, job.id, "test", Duration::from_secs(60)).await?;
        let claim = claimed.ok_or_else(|| anyhow::anyhow!("nobody else claims it"))?.claim;
        let ctx = JobContext::new(self.store.clone(), self.artifacts.clone(), claim);
        let settings =
            DatasetSettings { max_audio_seconds: 60.0, max_unpacked_bytes: 1 << 30, license: "other".into() };
        let handler = ImportHandler { settings, import_dir: self.dir.path().join("import") };
        let done = match handler.run(&ctx, job.spec).await {
            Ok(done) => done,
            Err(error) => return Ok((id, Err(error))),
        };
        store::leases::finish(&self.store, ctx.claim, done).await?;
        let stored = store::datasets::get(&self.store, id).await?;
        Ok((id, Ok(stored.summary.expect("published"))))
    }

    fn folder(&self, id: DatasetId) -> anyhow::Result<std::path::PathBuf> {
        Ok(self.artifacts.local_path(&format!("datasets/{id}/published"))?)
    }

    async fn report(&self, id: DatasetId) -> anyhow::Result<Report> {
        Ok(self.artifacts.get_json(&format!("datasets/{id}/report/report.json")).await?)
    }
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Imports a source, then what was published of it: the summaries, content hash included, must be the same.
async fn there_and_back(world: &World, name: &str, source: &Source) -> anyhow::Result<(DatasetId, Report)> {
    let (first, outcome) = world.import(name, &spec(world.offer(name, source.dir.path())?)).await?;
    let summary = outcome?;
    let export = world.upload(&world.folder(first)?)?;
    let (again, outcome) = world.import(&format!("{name}-again"), &spec(export)).await?;
    assert_eq!(outcome?, summary, "the content hash too");
    let findings = world.report(again).await?.import.expect("an import");
    assert_eq!(findings.repairs, std::collections::BTreeMap::new(), "nothing was left to repair");
    Ok((first, world.report(first).await?))
}

/// The first published variant: the dialogue as one text, and manifests with the absolute paths of another disk whose
/// folders are not ours, so that only the name of the file is left to find it by.
#[tokio::test]
async fn the_first_record_variant_with_foreign_paths_goes_there_and_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    let source = Source::seed();
    std::fs::remove_dir_all(source.path("mono_wav"))?;
    let mut records = String::new();
    for id in IDS {
        let mut record = common::record(id);
        record["text_prompt"] = record["system_prompt"].take();
        record["dialogue"] =
            "[Call start]\nBROKER (June): Hello, Ann.\nCLIENT (Ann): Hi there.\n[Call end]".into();
        for gone in ["system_prompt", "assistant_name"] {
            record.as_object_mut().expect("an object").remove(gone);
        }
        records.push_str(&format!("{record}\n"));
    }
    source.write("pharma.jsonl", records);
    let elsewhere =
        |ids: &[&str]| common::manifest(ids).replace("/home/them/data/pharma/stereo_wav", "D:/out/run7");
    source.write("dataset/train.jsonl", elsewhere(&IDS[..2]));
    source.write("dataset/eval.jsonl", elsewhere(&IDS[2..]));
    let (id, report) = there_and_back(&world, "variant-a", &source).await?;
    assert_eq!(report.import.map(|f| f.repairs_of("absolute_path_rewritten")), Some(3));
    let rows = store::dialogues::of_dataset(&world.store, id, None).await?;
    let texts: Vec<_> = rows[0].record.turns.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(
        (texts, rows[0].record.text_prompt.as_str()),
        (vec!["Hello, Ann.", "Hi there."], "ROLE: agent\nCLIENT: Ann")
    );
    assert_eq!(
        std::fs::read_to_string(world.folder(id)?.join("scripts/dial-00000.txt"))?,
        "Speaker 1: Hello, Ann.\nSpeaker 2: Hi there.\n"
    );
    let line = std::fs::read_to_string(world.folder(id)?.join("dataset/eval.jsonl"))?;
    assert_eq!(line, "{\"path\":\"../stereo_wav/dial-00002.wav\",\"duration\":2.0}\n");
    Ok(())
}

/// Single-speaker data as the older fine-tuning tool reads it: words of `SPEAKER_MAIN` only, no turns, records or sides.
#[tokio::test]
async fn single_speaker_data_goes_there_and_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    let source = Source { dir: tempfile::tempdir()? };
    let mut lines = String::new();
    for n in 0..6 {
        source.wav(&format!("data_stereo/talk{n}.mp3.wav"), &sound(2, 24_000));
        source.json(
            &format!("data_stereo/talk{n}.mp3.json"),
            &serde_json::json!({"alignments": [["Hello", [0.0, 0.4], "SPEAKER_MAIN"], ["you", [0.5, 0.8], "SPEAKER_MAIN"]]}),
        );
        lines.push_str(&format!("{{\"path\": \"data_stereo/talk{n}.mp3.wav\", \"duration\": 2.0}}\n"));
    }
    source.write("data.jsonl", lines);
    let (id, report) = there_and_back(&world, "talks", &source).await?;
    let summary = report.summary.expect("published");
    assert_eq!((summary.train_dialogues + summary.eval_dialogues, summary.words), (6, 12));
    assert!((1..6).contains(&summary.eval_dialogues), "some are held out: {summary:?}");
    assert_eq!((report.measured.map(|m| m.agent_words_per_s.count), report.prompts), (Some(6), vec![]));
    let folder = world.folder(id)?;
    let sidecar: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("stereo_wav/talk0.mp3.json"))?)?;
    assert_eq!(sidecar["alignments"][1], serde_json::json!(["you", [0.5, 0.8], "SPEAKER_BROKER"]));
    let card = std::fs::read_to_string(folder.join("README.md"))?;
    assert!(card.contains("path: dataset/eval.jsonl") && card.contains("pretty_name: talks"), "{card}");
    Ok(())
}

#[tokio::test]
async fn an_export_imported_again_has_the_same_content() -> anyhow::Result<()> {
    let world = World::new().await?;
    let source = Source::seed();
    // Something to repair, so that the first import is not a copy.
    source.edit_sidecar(|v| v["alignments"].as_array_mut().expect("words").reverse());
    let (first, outcome) = world.import("first", &spec(world.offer("seed", source.dir.path())?)).await?;
    let first_summary = outcome?;
    assert_eq!((first_summary.train_dialogues, first_summary.eval_dialogues), (2, 1));
    assert_eq!((first_summary.words, first_summary.injections), (12, 3));
    assert!((first_summary.audio_s - 6.0).abs() < 1e-9);
    let report = world.report(first).await?;
    assert_eq!(report.import.as_ref().map(|f| f.repairs_of("words_sorted")), Some(3));

    let export = world.folder(first)?;
    for import in [spec(world.offer("export", &export)?), spec(world.upload(&export)?)] {
        let name = format!("again-{:.4}", format!("{:?}", import.source));
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let (again, outcome) = world.import(&name, &import).await?;
        assert_eq!(outcome?, first_summary, "the content hash too");
        assert_eq!(
            std::fs::read(world.folder(again)?.join("pharma.jsonl"))?,
            std::fs::read(export.join("pharma.jsonl"))?
        );
        let findings = world.report(again).await?.import.expect("an import");
        assert_eq!(findings.repairs, std::collections::BTreeMap::new(), "nothing was left to repair");
    }
    let card = std::fs::read_to_string(export.join("README.md"))?;
    for line in
        ["---\nlicense: other\n", "num_examples: 2", "path: dataset/train.jsonl", "- n<1K", "hours: 0.002"]
    {
        assert!(card.contains(line), "{line:?} in {card}");
    }
    let stored = store::datasets::get(&world.store, first).await?;
    assert_eq!(stored.spec.dialogues, 3);
    let rows = store::dialogues::of_dataset(&world.store, first, None).await?;
    let sides: Vec<_> = rows.iter().map(|d| (d.record.id.as_str(), d.split.as_deref())).collect();
    assert_eq!(sides, [(IDS[0], Some("train")), (IDS[1], Some("train")), (IDS[2], Some("eval"))]);
    assert_eq!(store::voices::find(&world.store, "v1").await?.source, "import");
    let unpacked = world.artifacts.local_path(&format!("datasets/{first}/unpacked"))?;
    assert!(!unpacked.exists() || std::fs::read_dir(unpacked)?.next().is_none(), "nothing is left over");
    Ok(())
}

#[tokio::test]
async fn one_fault_is_enough_to_import_nothing_and_all_are_told() -> anyhow::Result<()> {
    let world = World::new().await?;
    let source = Source::seed();
    source.wav("stereo_wav/dial-00001.wav", &sound(1, 24_000));
    source.edit_sidecar(|v| v["context_injections"][0]["frame_offset"] = 99.into());
    let (id, outcome) = world.import("bad", &spec(world.offer("bad", source.dir.path())?)).await?;
    let error = outcome.expect_err("two faults");
    let JobError::Permanent(ErrorCode::InvalidDataset, detail) = &error else { panic!("{error}") };
    assert!(detail.starts_with("2 faults, nothing was imported\n"), "{detail}");
    assert!(
        detail.contains("dataset/train.jsonl:2: \"stereo_wav/dial-00001.wav\" needs 2 channels"),
        "{detail}"
    );
    assert!(detail.contains("stereo_wav/dial-00000.json: injection 0 is at frame 99"), "{detail}");
    assert_eq!(world.artifacts.list(&format!("datasets/{id}/published")).await?, Vec::<String>::new());
    assert_eq!(store::datasets::get(&world.store, id).await?.published_at, None);
    assert_eq!(store::dialogues::of_dataset(&world.store, id, None).await?.len(), 0);
    let report = world.report(id).await?;
    assert_eq!((report.import.map(|f| f.faults.len()), report.summary), (Some(2), None));
    let page = world.artifacts.get(&format!("datasets/{id}/report/report.html")).await?;
    assert!(String::from_utf8_lossy(&page).contains("The import was refused"));
    // A refused import does not keep the name: the repaired source is the next version.
    let repaired = Source::seed();
    let (id, outcome) = world.import("bad", &spec(world.offer("repaired", repaired.dir.path())?)).await?;
    outcome?;
    assert_eq!(store::datasets::get(&world.store, id).await?.version, 2);
    Ok(())
}

#[tokio::test]
async fn sources_outside_the_import_folder_and_lost_uploads_are_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let source = Source::seed();
    copy_folder(source.dir.path(), &world.dir.path().join("outside"))?;
    std::os::unix::fs::symlink(world.dir.path().join("outside"), world.dir.path().join("import/link"))?;
    for (n, path) in ["../outside", "/etc", "link", "missing", ""].into_iter().enumerate() {
        let (_, outcome) = world.import(&format!("n{n}"), &spec(ImportSource::Path(path.into()))).await?;
        let error = outcome.expect_err(path).to_string();
        assert!(error.contains("there is no such file or folder in the import folder"), "{path}: {error}");
    }
    let (_, outcome) = world.import("gone", &spec(ImportSource::Upload(UploadId::generate()))).await?;
    assert!(outcome.expect_err("gone").to_string().contains("send the archive again"));
    Ok(())
}

/// A source with many samples, each of them sound.
fn large(samples: usize) -> anyhow::Result<Source> {
    let source = Source { dir: tempfile::tempdir()? };
    source.wav("stereo_wav/s0.wav", &sound(2, 24_000));
    let mut sidecar = common::sidecar();
    sidecar["voice_prompt"] = serde_json::Value::Null;
    source.json("stereo_wav/s0.json", &sidecar);
    for n in 1..samples {
        std::fs::hard_link(source.path("stereo_wav/s0.wav"), source.path(&format!("stereo_wav/s{n}.wav")))?;
        std::fs::hard_link(source.path("stereo_wav/s0.json"), source.path(&format!("stereo_wav/s{n}.json")))?;
    }
    Ok(source)
}

#[tokio::test]
async fn a_cancelled_import_stops_soon_and_leaves_nothing() -> anyhow::Result<()> {
    let (db, rabbit) = (TestDb::new().await?, testkit::TestBus::new().await?);
    let store = Store::from_pool(db.pool().await?);
    let bus = std::sync::Arc::new(bus::Bus::new(rabbit.url(), Duration::from_secs(2))?);
    let source = large(600)?;
    let dir = tempfile::tempdir()?;
    copy_folder(source.dir.path(), &dir.path().join("import/many"))?;
    let settings =
        DatasetSettings { max_audio_seconds: 60.0, max_unpacked_bytes: 1 << 30, license: "other".into() };
    let handler = ImportHandler { settings, import_dir: dir.path().join("import") };
    let harness = chassis::testing::spawn(
        db.url(),
        store.clone(),
        bus,
        vec![std::sync::Arc::new(handler) as std::sync::Arc<dyn JobHandler>],
    )?;
    let (id, job) = (DatasetId::generate(), JobId::generate());
    let base = DatasetSpec {
        domain: "imported".into(),
        dialogues: 0,
        seed: 0,
        shard_size: 1,
        eval_fraction: 0.05,
        ..DatasetSpec::default()
    };
    let mut tx = store.begin().await?;
    let import = spec(ImportSource::Path("many".into()));
    store::datasets::insert_import(&mut tx, id, "many", &base, &import).await?;
    let new = NewJob {
        id: job,
        spec: JobSpec::Import { dataset_id: id },
        needs: Vec::new(),
        max_attempts: 3,
        traceparent: None,
    };
    store::jobs::enqueue(&mut tx, &new).await?;
    store::commit(tx).await?;
    let progress = async || {
        store::jobs::get(&store, job)
            .await
            .is_ok_and(|j| j.progress.is_some_and(|p| p.done > 2 && p.total == 600))
    };
    testkit::wait_until("the import is under way", Duration::from_secs(60), progress).await?;
    store::jobs::cancel(&store, job).await?;
    let cancelled = async || {
        store::jobs::get(&store, job).await.is_ok_and(|j| j.state == domain::job::JobState::Cancelled)
    };
    testkit::wait_until("the import has stopped", Duration::from_secs(20), cancelled).await?;
    assert_eq!(harness.artifacts.list(&format!("datasets/{id}/published")).await?, Vec::<String>::new());
    assert_eq!(store::datasets::get(&store, id).await?.published_at, None);
    Ok(())
}
