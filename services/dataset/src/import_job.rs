//! The import job: all of a source or nothing of it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use artifacts::Artifacts;
use audio::wav::{WavLimits, parse};
use chassis::{Completion, JobContext, JobError, JobHandler, Stop};
use domain::dataset::{DatasetSummary, ImportSource, ImportSpec};
use domain::dialogue::is_record_id;
use domain::job::{JobKind, JobSpec};
use domain::{DatasetId, ErrorCode};
use store::datasets::Dataset;
use store::dialogues::Split;
use store::voices::NewVoice;

use crate::DatasetSettings;
use crate::import::ImportOptions;
use crate::import::archive::{UnpackLimits, unpack};
use crate::import::dialogue::{Prepared, id_of, prepare};
use crate::import::finding::{Fault, Findings};
use crate::import::manifest::Side;
use crate::import::plan::{Plan, plan};
use crate::import::tree::{Tree, base_name, without_extension};
use crate::layout::{Publisher, records_file};
use crate::publish::{self, CardMeta, Entry, internal, invalid};
use crate::report::Report;
use crate::split::{Candidate, held_out};
use crate::tokenizer::newest;

/// Faults written into the job's error; the report has all of them.
const SHOWN_FAULTS: usize = 40;
/// Entries of an archive.
const MAX_ENTRIES: u64 = 1_000_000;

/// Imports datasets.
#[derive(Debug, Clone)]
pub struct ImportHandler {
    /// `[dataset]`
    pub settings: DatasetSettings,
    /// `[artifacts].import_dir`
    pub import_dir: PathBuf,
}

#[chassis::async_trait]
impl JobHandler for ImportHandler {
    fn kind(&self) -> JobKind {
        JobKind::Import
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Import { dataset_id } = spec else {
            return Err(internal(format!("not an import job: {spec:?}")));
        };
        let dataset = store::datasets::get(&ctx.store, dataset_id).await?;
        let Some(spec) = dataset.import.clone() else {
            return Err(internal(format!("dataset {dataset_id} is not imported")));
        };
        let unpacked = ctx.attempt_prefix(&format!("{}/unpacked", Dataset::prefix(dataset_id)));
        let outcome = self.import(ctx, &dataset, &spec, &unpacked).await;
        ctx.artifacts.delete_prefix(&unpacked).await?;
        // Empty folders of what was unpacked.
        let _ = tokio::fs::remove_dir_all(ctx.artifacts.local_path(&unpacked)?).await;
        // Whoever lost the lease must not touch what the new holder writes.
        if outcome.is_err() && ctx.stop() != Some(Stop::LeaseLost) {
            ctx.artifacts.delete_prefix(&published(dataset_id)).await?;
        }
        outcome
    }
}

fn published(dataset: DatasetId) -> String {
    format!("{}/published", Dataset::prefix(dataset))
}

/// An import holds a worker for long: it also ends when the process goes down, and the job goes back to the queue.
fn check(ctx: &JobContext) -> Result<(), JobError> {
    ctx.stop().map_or(Ok(()), |stop| Err(JobError::Stopped(stop)))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JobError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| JobError::transient(ErrorCode::Internal, error))
}

/// What one import carries from step to step.
struct Import<'a> {
    ctx: &'a JobContext,
    tree: Arc<Tree>,
    plan: Arc<Plan>,
    options: ImportOptions,
    findings: Findings,
    publisher: Publisher,
    voices: BTreeMap<String, (String, NewVoice)>,
}

impl ImportHandler {
    async fn import(
        &self,
        ctx: &JobContext,
        dataset: &Dataset,
        spec: &ImportSpec,
        unpacked: &str,
    ) -> Result<Completion, JobError> {
        let tokenizer = newest(&ctx.store, &ctx.artifacts).await?;
        let options = ImportOptions::new(
            spec,
            self.settings.max_audio_seconds,
            tokenizer.as_ref().map(|t| Arc::clone(&t.tokenizer)),
        );
        let tree = match self.open(&ctx.artifacts, &spec.source, unpacked).await? {
            Ok(tree) => Arc::new(tree),
            Err(faults) => {
                return refuse(ctx, dataset, Findings { faults, ..Findings::default() }).await;
            }
        };
        check(ctx)?;
        let source = Arc::clone(&tree);
        let (plan, findings) = blocking(move || {
            let mut findings = Findings::default();
            (plan(&source, &mut findings), findings)
        })
        .await?;
        let publisher = Publisher::new(ctx.artifacts.clone(), published(dataset.id));
        let plan = Arc::new(plan);
        let mut import = Import { ctx, tree, plan, options, findings, publisher, voices: BTreeMap::new() };
        let (mut entries, sides) = import.samples().await?;
        if !import.findings.faults.is_empty() {
            return refuse(ctx, dataset, import.findings).await;
        }
        put_on_sides(&mut entries, &sides, &import.plan, spec, &mut import.findings);
        entries.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        let summary = self.publish(&mut import, dataset, spec, &entries).await?;
        let facts: Vec<_> = entries.iter().map(|e| e.facts.clone()).collect();
        let named = tokenizer.as_ref().map(|t| t.model.as_str());
        let report = Report::new(&dataset.name, &summary, &facts, named, Some(import.findings));
        publish::write_report(&ctx.artifacts, dataset.id, &report).await?;
        let side = |eval| if eval { Split::Eval } else { Split::Train };
        Ok(Completion::Imported {
            dataset: dataset.id,
            summary,
            dialogues: entries.into_iter().map(|e| (e.record, side(e.eval))).collect(),
            voices: import.voices.into_values().map(|(_, voice)| voice).collect(),
        })
    }

    /// The source as a folder; an archive is unpacked first.
    async fn open(
        &self,
        artifacts: &Artifacts,
        source: &ImportSource,
        unpacked: &str,
    ) -> Result<Result<Tree, Vec<Fault>>, JobError> {
        let (path, name) = match source {
            ImportSource::Path(asked) => match confined(&self.import_dir, asked) {
                Some(path) => (path, asked.clone()),
                None => {
                    let detail = "there is no such file or folder in the import folder";
                    return Ok(Err(vec![Fault::new(asked, "source", detail)]));
                }
            },
            ImportSource::Upload(id) => {
                let key = format!("uploads/{id}/archive");
                let path = artifacts.local_path(&key)?;
                if !path.is_file() {
                    let detail = "the upload is not there any more; send the archive again";
                    return Ok(Err(vec![Fault::new("archive", "source", detail)]));
                }
                (path, "archive".to_owned())
            }
        };
        let into = artifacts.local_path(unpacked)?;
        let limits = UnpackLimits { max_bytes: self.settings.max_unpacked_bytes, max_entries: MAX_ENTRIES };
        blocking(move || {
            if path.is_dir() {
                return Tree::open(&path).map_err(|fault| vec![fault]);
            }
            std::fs::create_dir_all(&into).map_err(|error| {
                vec![Fault::new(&name, "archive", format!("cannot be unpacked: {error}"))]
            })?;
            unpack(&path, &name, &into, limits)?;
            Tree::open(&into).map_err(|fault| vec![fault])
        })
        .await
    }

    async fn publish(
        &self,
        import: &mut Import<'_>,
        dataset: &Dataset,
        spec: &ImportSpec,
        entries: &[Entry],
    ) -> Result<DatasetSummary, JobError> {
        let plan = &import.plan;
        // The record file keeps its name, so that an import of an export has the same content.
        let records = plan.records_file.as_deref().map_or(dataset.name.as_str(), without_extension);
        let records = records_file(records);
        let rejected =
            plan.rejects.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        publish::write_lists(&mut import.publisher, &records, entries, plan.rejects.clone()).await?;
        let card = plan.card.as_ref();
        let license = spec.license.as_deref().or(plan.license.as_deref()).unwrap_or(&self.settings.license);
        let meta = CardMeta {
            name: &dataset.name,
            domain: card.map_or(&dataset.spec.domain, |c| &c.domain),
            seed: card.map_or(spec.seed, |c| c.seed),
            eval_fraction: card.map_or(spec.eval_fraction, |c| c.eval_fraction),
            license,
        };
        let rejected = u32::try_from(rejected).unwrap_or(u32::MAX);
        let summary = publish::write_card(&mut import.publisher, &meta, entries, rejected).await?;
        import.publisher.remove_others().await?;
        Ok(summary)
    }
}

impl Import<'_> {
    /// Checks every sample and writes those that are sound, as long as nothing is wrong.
    async fn samples(&mut self) -> Result<(Vec<Entry>, HashMap<String, Side>), JobError> {
        let (mut entries, mut sides, mut ids) = (Vec::new(), HashMap::new(), HashMap::new());
        let samples = self.plan.samples.clone();
        for (done, sample) in (1u64..).zip(&samples) {
            check(self.ctx)?;
            let id = id_of(&sample.wav);
            if let Some(first) = ids.insert(id.clone(), sample.wav.clone())
                && first != sample.wav
            {
                let detail = format!("{:?} and {first:?} would both be called {id:?}", sample.wav);
                self.findings.fault(sample.fault("same_id", detail));
            }
            let (tree, plan, options) =
                (Arc::clone(&self.tree), Arc::clone(&self.plan), self.options.clone());
            let one = sample.clone();
            let (prepared, findings) = blocking(move || {
                let mut findings = Findings::default();
                (prepare(&tree, &plan, &one, &options, &mut findings), findings)
            })
            .await?;
            self.findings.merge(findings);
            if let Some(prepared) = prepared {
                sides.insert(id, sample.side);
                let row = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                entries.push(self.write(row, prepared).await?);
            }
            self.ctx.progress(done, samples.len() as u64, "dialogues").await?;
        }
        Ok((entries, sides))
    }

    async fn write(&mut self, row: u32, prepared: Prepared) -> Result<Entry, JobError> {
        let Prepared { record, wav, sidecar, script, mono, voice, passed, facts } = prepared;
        if let Some(path) = voice {
            self.voice(path).await?;
        }
        // One fault is enough to import nothing: the rest is only checked.
        if self.findings.faults.is_empty() {
            let id = &record.id;
            self.publisher.put(&format!("stereo_wav/{id}.wav"), wav).await?;
            self.publisher.put(&format!("stereo_wav/{id}.json"), sidecar).await?;
            self.publisher.put(&format!("scripts/{id}.txt"), script).await?;
            if let Some(mono) = mono {
                self.publisher.put(&format!("mono_wav/{id}.wav"), mono).await?;
            }
        }
        Ok(Entry { row, record, passed, facts, eval: false })
    }

    /// Publishes a voice clip once and registers it under its file's name.
    async fn voice(&mut self, path: String) -> Result<(), JobError> {
        let file = base_name(&path).to_owned();
        if let Some((first, _)) = self.voices.get(&file) {
            if *first != path {
                let detail = format!("{path:?} and {first:?} would both be the voice {file:?}");
                self.findings.fault(Fault::new(&path, "voice_name", detail));
            }
            return Ok(());
        }
        let bytes = match self.tree.read(&path) {
            Ok(bytes) => bytes,
            Err(fault) => {
                self.findings.fault(fault);
                return Ok(());
            }
        };
        let name = without_extension(&file).to_owned();
        let duration_ms = match parse(&bytes, &WavLimits { max_seconds: 600.0, max_channels: 2 }) {
            Ok(wave) if is_record_id(&name) => wave.duration_ms(),
            Ok(_) => {
                self.findings.fault(Fault::new(&path, "voice_name", format!("{name:?} cannot name a voice")));
                return Ok(());
            }
            Err(error) => {
                self.findings.fault(Fault::new(&path, "voice_prompt", format!("is no usable WAV: {error}")));
                return Ok(());
            }
        };
        let target = format!("speaker_samples/{file}");
        self.publisher.put(&target, bytes).await?;
        let sha256 = self.publisher.file(&target).map(|f| f.sha256.clone()).unwrap_or_default();
        let artifact = self.publisher.key(&target);
        let voice = NewVoice { name, artifact, sha256, duration_ms, source: "import".into() };
        self.voices.insert(file, (path, voice));
        Ok(())
    }
}

/// Writes what was found, and fails the job with it.
async fn refuse(ctx: &JobContext, dataset: &Dataset, findings: Findings) -> Result<Completion, JobError> {
    let detail = findings.summary(SHOWN_FAULTS);
    publish::write_report(&ctx.artifacts, dataset.id, &Report::refused(&dataset.name, findings)).await?;
    Err(invalid(detail))
}

/// Sides as the source's manifests say; where none holds out anything, by the hash of the id.
fn put_on_sides(
    entries: &mut [Entry],
    sides: &HashMap<String, Side>,
    plan: &Plan,
    spec: &ImportSpec,
    findings: &mut Findings,
) {
    if plan.is_split {
        for entry in entries.iter_mut() {
            entry.eval = sides.get(&entry.record.id) == Some(&Side::Eval);
        }
        return;
    }
    let candidates: Vec<Candidate> =
        entries.iter().map(|e| Candidate::new(&e.record.id, &e.record.text_prompt)).collect();
    match held_out(&candidates, spec.seed, spec.eval_fraction) {
        Some(eval) => entries.iter_mut().zip(eval).for_each(|(entry, eval)| entry.eval = eval),
        None => findings.warn("too_few_to_hold_out", "all dialogues are for training"),
    }
}

/// The path below the import folder, with links resolved; none when it is not there or leads outside.
fn confined(root: &Path, asked: &str) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let clean = !asked.is_empty()
        && !asked.contains(['\0', '\\'])
        && Path::new(asked).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    let path = clean.then(|| root.join(asked).canonicalize().ok())??;
    (path.starts_with(&root) && path != root).then_some(path)
}
