//! The assemble job against a database: layout, rejects, split, and the same bytes twice.

use std::collections::BTreeMap;
use std::time::Duration;

use artifacts::{Artifacts, sha256_hex};
use audio::Waveform;
use audio::wav::encode_pcm16;
use chassis::{Completion, JobContext, JobError, JobHandler};
use dataset::{AssembleHandler, DatasetSettings};
use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dataset::{DatasetFile, DatasetSpec, DatasetSummary};
use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Speaker, Turn};
use domain::injection::Injection;
use domain::job::{JobSpec, RowRange};
use domain::manifest::{ManifestEntry, Sidecar};
use domain::{DatasetId, ErrorCode, JobId};
use store::Store;
use store::dialogues::{AlignmentFacts, RenderFacts};
use store::jobs::NewJob;
use store::voices::NewVoice;
use testkit::TestDb;

/// What is wrong with a dialogue.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    SilentUser,
    AgentLabelMissing,
    Mono,
    WordAfterEnd,
    GateClosed,
    EmptyTurn,
    NoOffset,
}

struct World {
    store: Store,
    artifacts: Artifacts,
    dataset: DatasetId,
    _db: TestDb,
    _dir: tempfile::TempDir,
}

fn record(id: &str, fault: Fault) -> DialogueRecord {
    let turn = |index, speaker, text: &str| Turn { index, speaker, text: text.into() };
    DialogueRecord {
        id: id.into(),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: "test".into(),
        text_prompt: format!("ROLE: agent\nCLIENT: {id}"),
        turns: vec![
            turn(0, Speaker::Agent, "Hello"),
            turn(1, Speaker::User, if fault == Fault::EmptyTurn { " " } else { "Hi" }),
        ],
        context_injections: vec![Injection { after_turn: 1, text: "Ask.".into(), frame_offset: None }],
        seed: BTreeMap::new(),
        design: DesignRow { design_id: "d".into(), row: 0 },
        model: "test".into(),
        cost_microusd: 5,
    }
}

fn sound(fault: Fault) -> Waveform {
    let tone = |from: usize, hertz: f32| -> Vec<f32> {
        let wave = |i: usize| 0.3 * (i as f32 * hertz * std::f32::consts::TAU / 24_000.0).sin();
        (0..24_000).map(|i| if (from..from + 9_600).contains(&i) { wave(i) } else { 0.0 }).collect()
    };
    let user = if fault == Fault::SilentUser { vec![0.0; 24_000] } else { tone(12_000, 400.0) };
    if fault == Fault::Mono {
        Waveform::mono(24_000, user)
    } else {
        Waveform::stereo(24_000, tone(0, 200.0), user)
    }
}

fn sidecar(record: &DialogueRecord, fault: Fault) -> Sidecar {
    let word = |word: &str, start_ms, end_ms, speaker| AlignedWord {
        word: word.into(),
        start_ms,
        end_ms,
        speaker,
        estimated: false,
    };
    let last = if fault == Fault::WordAfterEnd { 1_200 } else { 900 };
    let words = vec![word("Hello", 0, 400, Speaker::Agent), word("Hi", 500, last, Speaker::User)];
    let spans = [(0, 400), (500, last)];
    let turns: Vec<AlignedTurn> = record
        .turns
        .iter()
        .zip(spans)
        .map(|(t, (start_ms, end_ms))| AlignedTurn {
            index: t.index,
            speaker: t.speaker,
            start_ms,
            end_ms,
            text: t.text.clone(),
        })
        .collect();
    let mut injections = record.context_injections.clone();
    injections[0].frame_offset = (fault != Fault::NoOffset).then_some(6);
    let voice = Some("../speaker_samples/test-a.wav".to_owned());
    let mut sidecar = Sidecar::publish(words, &turns, record.text_prompt.clone(), voice, injections);
    if fault == Fault::AgentLabelMissing {
        sidecar.alignments[0].2 = "SPEAKER_MAIN".into();
    }
    sidecar
}

impl World {
    async fn with(faults: &[Fault], eval_fraction: f64) -> anyhow::Result<Self> {
        let db = TestDb::new().await?;
        let store = Store::from_pool(db.pool().await?);
        let dir = tempfile::tempdir()?;
        let artifacts = Artifacts::open(dir.path())?;
        let dataset = DatasetId::generate();
        let dialogues = u32::try_from(faults.len())?;
        let spec = DatasetSpec {
            domain: "test".into(),
            dialogues,
            seed: 3,
            shard_size: 4,
            eval_fraction,
            ..DatasetSpec::default()
        };
        let mut tx = store.begin().await?;
        store::datasets::insert(&mut tx, dataset, "calls", &spec).await?;
        tx.commit().await?;
        let world = Self { store, artifacts, dataset, _db: db, _dir: dir };
        world.build(faults).await?;
        Ok(world)
    }

    /// Leaves what the earlier stages leave.
    async fn build(&self, faults: &[Fault]) -> anyhow::Result<()> {
        let (mut records, mut renders, mut alignments) = (Vec::new(), Vec::new(), Vec::new());
        for (row, fault) in (0u32..).zip(faults.iter().copied()) {
            let record = record(&format!("dial-{row:03}"), fault);
            let base = format!("datasets/{}/build/{}", self.dataset, record.id);
            let put =
                async |name: &str, bytes: Vec<u8>| self.artifacts.put(&format!("{base}{name}"), bytes).await;
            let stereo = sound(fault);
            let mono = put("-mono.wav", encode_pcm16(&stereo.mix_down())?).await?;
            let wav = put(".wav", encode_pcm16(&stereo)?).await?;
            let json = put(".json", serde_json::to_vec(&sidecar(&record, fault))?).await?;
            renders.push((
                row,
                RenderFacts {
                    wav: mono.path,
                    wav_sha256: mono.sha256,
                    report: json.path.clone(),
                    duration_ms: 1000,
                    agent_voice: "test-a".into(),
                },
            ));
            alignments.push((
                row,
                AlignmentFacts {
                    wav: wav.path,
                    wav_sha256: wav.sha256,
                    sidecar: json.path,
                    sidecar_sha256: json.sha256,
                    duration_ms: 1000,
                    words: 2,
                    estimated_words: 0,
                    faults: if fault == Fault::GateClosed {
                        vec!["a closed gate".into()]
                    } else {
                        Vec::new()
                    },
                },
            ));
            records.push((row, record).into());
        }
        let clip = self.artifacts.put("voices/test-a.wav", encode_pcm16(&sound(Fault::None))?).await?;
        let voice = NewVoice {
            name: "test-a".into(),
            artifact: clip.path,
            sha256: clip.sha256,
            duration_ms: 1000,
            source: "test".into(),
        };
        let (dataset, dataset_id) = (self.dataset, self.dataset);
        let rows = RowRange { from: 0, to: u32::try_from(faults.len())? };
        self.done(
            JobSpec::Generate { dataset_id, rows },
            Completion::Generated { dataset, dialogues: records },
        )
        .await?;
        let done = Completion::Rendered { dataset, renders, voices: vec![voice] };
        self.done(JobSpec::Render { dataset_id, rows }, done).await?;
        self.done(JobSpec::Align { dataset_id, rows }, Completion::Aligned { dataset, alignments }).await
    }

    async fn done(&self, spec: JobSpec, done: Completion) -> anyhow::Result<()> {
        let ctx = self.claimed(spec).await?;
        Ok(store::leases::finish(&self.store, ctx.claim, done).await?)
    }

    async fn claimed(&self, spec: JobSpec) -> anyhow::Result<JobContext> {
        let id = JobId::generate();
        let job = NewJob { id, spec, needs: Vec::new(), max_attempts: 3, traceparent: None };
        let mut tx = self.store.begin().await?;
        store::jobs::enqueue(&mut tx, &job).await?;
        tx.commit().await?;
        let claimed = store::leases::claim(&self.store, id, "test", Duration::from_secs(60)).await?;
        let claim = claimed.ok_or_else(|| anyhow::anyhow!("nobody else claims it"))?.claim;
        Ok(JobContext::new(self.store.clone(), self.artifacts.clone(), claim))
    }

    async fn assemble(&self) -> anyhow::Result<(JobContext, Result<Completion, JobError>)> {
        let spec = JobSpec::Assemble { dataset_id: self.dataset };
        let ctx = self.claimed(spec.clone()).await?;
        let handler = AssembleHandler {
            settings: DatasetSettings {
                max_audio_seconds: 60.0,
                max_unpacked_bytes: 1 << 30,
                license: "other".into(),
            },
        };
        let outcome = handler.run(&ctx, spec).await;
        Ok((ctx, outcome))
    }

    fn published(&self) -> String {
        format!("datasets/{}/published", self.dataset)
    }

    async fn snapshot(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        for key in self.artifacts.list(&self.published()).await? {
            let path = key.trim_start_matches(&self.published()).trim_start_matches('/').to_owned();
            files.insert(path, sha256_hex(&self.artifacts.get(&key).await?));
        }
        Ok(files)
    }

    async fn lines<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        let bytes = self.artifacts.get(&format!("{}/{path}", self.published())).await?;
        Ok(std::str::from_utf8(&bytes)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }
}

#[tokio::test]
async fn a_dataset_is_published_whole_split_by_dialogue_and_the_same_twice() -> anyhow::Result<()> {
    let world = World::with(&[Fault::None; 6], 0.05).await?;
    let (_, first) = world.assemble().await?;
    first?;
    let before = world.snapshot().await?;
    let stale = format!("{}/stereo_wav/old.wav", world.published());
    world.artifacts.put(&stale, "left by an attempt with other settings").await?;
    let (ctx, second) = world.assemble().await?;
    store::leases::finish(&world.store, ctx.claim, second?).await?;
    assert_eq!(world.snapshot().await?, before, "the same bytes, nothing stale");

    let train: Vec<ManifestEntry> = world.lines("dataset/train.jsonl").await?;
    let eval: Vec<ManifestEntry> = world.lines("dataset/eval.jsonl").await?;
    assert_eq!((train.len(), eval.len()), (5, 1));
    for entry in train.iter().chain(&eval) {
        let path = entry.path.strip_prefix("../").expect("relative to the manifest's folder");
        assert!(before.contains_key(path) && before.contains_key(&path.replace(".wav", ".json")), "{path}");
        assert!((entry.duration - 1.0).abs() < 1e-9);
    }
    let sorted = train.windows(2).all(|pair| pair[0].path < pair[1].path);
    assert!(sorted, "{train:?}");
    for path in ["speaker_samples/test-a.wav", "scripts/dial-000.txt", "mono_wav/dial-005.wav", "calls.jsonl"]
    {
        assert!(before.contains_key(path), "{path}");
    }
    let card = world.artifacts.get(&format!("{}/dataset.json", world.published())).await?;
    let card: serde_json::Value = serde_json::from_slice(&card)?;
    let files: Vec<DatasetFile> = serde_json::from_value(card["files"].clone())?;
    let listed: BTreeMap<String, String> = files.into_iter().map(|f| (f.path, f.sha256)).collect();
    let mut there = before.clone();
    there.remove("dataset.json");
    assert_eq!(listed, there, "dataset.json lists every other file with its hash");

    let summary: DatasetSummary =
        store::datasets::get(&world.store, world.dataset).await?.summary.expect("published");
    assert_eq!(card["content_sha256"], summary.content_sha256.as_str());
    assert_eq!((summary.train_dialogues, summary.eval_dialogues, summary.rejected_dialogues), (5, 1, 0));
    assert_eq!((summary.words, summary.injections, card["cost_microusd"].as_u64()), (12, 6, Some(30)));
    Ok(())
}

#[tokio::test]
async fn every_faulty_dialogue_is_left_out_with_its_reason() -> anyhow::Result<()> {
    let faults = [
        Fault::None,
        Fault::SilentUser,
        Fault::AgentLabelMissing,
        Fault::Mono,
        Fault::WordAfterEnd,
        Fault::GateClosed,
        Fault::EmptyTurn,
        Fault::NoOffset,
        Fault::None,
    ];
    let world = World::with(&faults, 0.5).await?;
    let (ctx, outcome) = world.assemble().await?;
    store::leases::finish(&world.store, ctx.claim, outcome?).await?;
    let rejects: Vec<serde_json::Value> = world.lines("rejects.jsonl").await?;
    let reasons: Vec<String> = rejects.iter().map(|r| r["reasons"][0]["code"].to_string()).collect();
    let expected = [
        "silent_channel",
        "no_agent_words",
        "channels",
        "word_times",
        "alignment",
        "script",
        "injection_offset",
    ];
    assert_eq!(reasons, expected.map(|code| format!("\"{code}\"")));
    let text = serde_json::to_string(&rejects)?;
    assert!(text.contains("needs 2 channels (agent left, user right), not 1"), "{text}");
    assert!(text.contains("0 of 2 words belong to SPEAKER_BROKER"), "{text}");
    let splits: Vec<_> = store::dialogues::of_dataset(&world.store, world.dataset, None)
        .await?
        .into_iter()
        .map(|d| d.split.expect("every row has a side"))
        .collect();
    assert_eq!(splits.iter().filter(|s| *s == "rejected").count(), 7);
    assert!(splits.contains(&"train".to_owned()) && splits.contains(&"eval".to_owned()), "{splits:?}");
    assert!(!world.snapshot().await?.keys().any(|path| path.contains("dial-001")));
    Ok(())
}

#[tokio::test]
async fn too_few_good_dialogues_fail_the_job_with_what_was_wrong() -> anyhow::Result<()> {
    let world = World::with(&[Fault::None, Fault::SilentUser], 0.05).await?;
    let (_, outcome) = world.assemble().await?;
    let error = outcome.expect_err("one dialogue cannot be on two sides");
    let JobError::Permanent(ErrorCode::InvalidDataset, detail) = &error else { panic!("{error}") };
    assert!(detail.starts_with("1 of 2 dialogues passed") && detail.contains("silent"), "{detail}");
    Ok(())
}
