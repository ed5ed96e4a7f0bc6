use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::config::{
    Declared, KYUTAI_CONFIG_FILE, PEFT_CONFIG_FILE, check_saved, check_targets, read_kyutai, read_peft,
};
use super::names::{Modules, Target, plain, reaches_depformer};
use super::{
    AdapterMeta, AdapterReport, FORMAT_VERSION, Half, Layout, LoraConfig, LoraError, Site, embedding_tables,
    sites,
};
use crate::{Dtype, LmConfig, SafetensorsFile, TensorEntry, TensorSpec, WeightsError};

/// Tensors of the reference layout.
pub const KYUTAI_FILE: &str = "lora.safetensors";
/// Tensors of the PEFT layout.
pub const PEFT_FILE: &str = "adapter_model.safetensors";

/// A mapped adapter that was found whole: every half of every site has its bytes, in one floating-point type.
pub struct AdapterFile {
    file: SafetensorsFile,
    config: LoraConfig,
    meta: AdapterMeta,
    dtype: Dtype,
    /// By kyutai's name: tensor of the file and byte range within it.
    parts: BTreeMap<String, (String, Range<usize>)>,
}

impl AdapterFile {
    /// Opens an adapter directory in either layout. Every missing, unexpected or ill-formed tensor and every
    /// contradiction between configuration, header, names and model is in one report.
    pub fn open(dir: &Path, lm: &LmConfig) -> Result<Self, LoraError> {
        let (layout, declared) = match layout_of(dir)? {
            Layout::Kyutai => (Layout::Kyutai, read_kyutai(&dir.join(KYUTAI_CONFIG_FILE), lm)?),
            Layout::Peft => (Layout::Peft, read_peft(&dir.join(PEFT_CONFIG_FILE))?),
        };
        Self::read(&dir.join(tensors_name(layout)), lm, declared)
    }

    /// Opens one file whose rank and scaling are known from elsewhere.
    pub fn open_file(path: &Path, lm: &LmConfig, rank: i64, scaling: f64) -> Result<Self, LoraError> {
        Self::read(
            path,
            lm,
            Declared { rank, scaling, disagreements: Vec::new(), targets: None, saved: None },
        )
    }

    fn read(path: &Path, lm: &LmConfig, declared: Declared) -> Result<Self, LoraError> {
        let file = SafetensorsFile::open(path)?;
        let skip_depformer = !reaches_depformer(file.tensors().map(|(name, _)| name));
        let tables = embedding_tables(lm);
        let is_table = |name: &str| tables.iter().any(|t| t.name == plain(name));
        let said = file.metadata().get("embeddings").is_some_and(|v| v == "true");
        let embeddings = said || file.tensors().any(|(name, _)| is_table(name));
        let mut config =
            LoraConfig { rank: declared.rank, scaling: declared.scaling, skip_depformer, embeddings };
        config.validate()?;
        let sites = sites(lm, skip_depformer);
        let mut reader =
            Reader { rank: config.rank, report: AdapterReport::default(), parts: BTreeMap::new() };
        reader.report.disagreements = declared.disagreements;
        let dtype = reader.tensors(&file, &sites, &tables);
        reader.missing(&sites, if embeddings { &tables } else { &[] });
        if let Some(saved) = &declared.saved {
            check_saved(saved, &tables, embeddings, &mut reader.report.disagreements);
        }
        if let Some(targets) = &declared.targets {
            check_targets(targets, &sites, &mut reader.report.disagreements);
        }
        if file.metadata().get("skip_depformer").is_some_and(|v| v == "true") && !skip_depformer {
            reader.zeros(&file)?;
            config.skip_depformer = true;
        }
        let meta = reader.metadata(file.metadata(), &config);
        let Reader { report, parts, .. } = reader;
        if !report.is_clean() {
            return Err(LoraError::Adapter { path: path.to_path_buf(), report: Box::new(report) });
        }
        Ok(Self { file, config, meta, dtype, parts })
    }

    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    pub fn meta(&self) -> &AdapterMeta {
        &self.meta
    }

    /// See [`AdapterMeta::check_base`].
    ///
    /// # Errors
    /// When the file names another base.
    pub fn check_base(&self, base_sha256: &str) -> Result<bool, LoraError> {
        self.meta.check_base(base_sha256)
    }

    /// Type of every tensor: f32, bf16 or f16.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes of one half of one module by its kyutai name; the shape is [`Site::shape`]'s.
    pub fn bytes(&self, module: &str, half: Half) -> Result<&[u8], WeightsError> {
        self.tensor(&half.name(module))
    }

    /// Bytes of one tensor by its whole kyutai name, as in [`super::adapter_inventory`].
    pub fn tensor(&self, name: &str) -> Result<&[u8], WeightsError> {
        let (tensor, range) = self.parts.get(name).ok_or_else(|| WeightsError::NoTensor {
            path: self.file.path().to_path_buf(),
            name: name.to_string(),
        })?;
        Ok(&self.file.tensor(tensor)?.1[range.clone()])
    }
}

pub(super) fn tensors_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Kyutai => KYUTAI_FILE,
        Layout::Peft => PEFT_FILE,
    }
}

/// The one layout whose tensors lie in `dir`.
fn layout_of(dir: &Path) -> Result<Layout, LoraError> {
    let found = match (dir.join(KYUTAI_FILE).exists(), dir.join(PEFT_FILE).exists()) {
        (true, false) => return Ok(Layout::Kyutai),
        (false, true) => return Ok(Layout::Peft),
        (true, true) => format!("both {KYUTAI_FILE} and {PEFT_FILE}"),
        (false, false) => format!("neither {KYUTAI_FILE} nor {PEFT_FILE}"),
    };
    Err(LoraError::Layout { path: dir.to_path_buf(), found })
}

/// Collects parts and complaints while a file is gone through.
struct Reader {
    rank: i64,
    report: AdapterReport,
    parts: BTreeMap<String, (String, Range<usize>)>,
}

impl Reader {
    /// Assigns every tensor of the file; returns the type most of them have.
    fn tensors(&mut self, file: &SafetensorsFile, sites: &[Site], tables: &[TensorSpec]) -> Dtype {
        let modules = Modules::of(sites);
        let dtype = common_dtype(file);
        for (name, entry) in file.tensors() {
            if entry.dtype != dtype {
                self.report.wrong_dtype.push((name.to_string(), entry.dtype));
            }
            let Some((target, half)) = modules.find(name) else {
                self.table(name, entry, tables);
                continue;
            };
            let (site, steps, stacked) = match target {
                Target::Step(site, step) => (*site, *step..*step + 1, 1),
                Target::Stacked(site) => (*site, 0..site.steps, site.steps),
            };
            let [rows, columns] = site.shape(half, self.rank);
            // Adapters of a stacked projection may share one A among its steps.
            let shared = half == Half::A && entry.shape == [rows, columns];
            if entry.shape != [stacked * rows, columns] && !shared {
                self.wrong_shape(name, half, [stacked * rows, columns], &entry.shape);
            }
            let size = (rows * columns) as usize * entry.dtype.size();
            for step in steps.clone() {
                let first = if shared { 0 } else { (step - steps.start) as usize * size };
                let part = (name.to_string(), first..first + size);
                if self.parts.insert(half.name(&site.module_of(step)), part).is_some() {
                    self.report.duplicate.push(name.to_string());
                    break;
                }
            }
        }
        dtype
    }

    /// Assigns a tensor that is no half of an adapter: an embedding table or nothing that belongs here.
    fn table(&mut self, name: &str, entry: &TensorEntry, tables: &[TensorSpec]) {
        let Some(table) = tables.iter().find(|t| t.name == plain(name)) else {
            self.report.unexpected.push(name.to_string());
            return;
        };
        if entry.shape != table.shape {
            self.report.wrong_shape.push((name.to_string(), table.shape.clone(), entry.shape.clone()));
        }
        let size = table.shape.iter().product::<i64>() as usize * entry.dtype.size();
        if self.parts.insert(table.name.clone(), (name.to_string(), 0..size)).is_some() {
            self.report.duplicate.push(name.to_string());
        }
    }

    /// Names what no tensor of the file gave.
    fn missing(&mut self, sites: &[Site], tables: &[TensorSpec]) {
        let steps = sites.iter().flat_map(|site| (0..site.steps).map(|step| site.module_of(step)));
        let halves = steps.flat_map(|module| Half::BOTH.map(|half| half.name(&module)));
        let all = halves.chain(tables.iter().map(|t| t.name.clone()));
        self.report.missing.extend(all.filter(|name| !self.parts.contains_key(name)));
    }

    /// Drops the depformer's parts, which must be zero: they stand there for the reference server's sake.
    fn zeros(&mut self, file: &SafetensorsFile) -> Result<(), WeightsError> {
        let depformer = |name: &String| reaches_depformer(std::iter::once(name.as_str()));
        for (name, (tensor, range)) in self.parts.extract_if(.., |name, _| depformer(name)) {
            // A part of a wrong-shaped tensor may reach past it; that tensor is in the report already.
            let bytes = file.tensor(&tensor)?.1.get(range).unwrap_or_default();
            if bytes.iter().any(|b| *b != 0) {
                self.report
                    .disagreements
                    .push(format!("{name} is not zero, though the header says skip_depformer"));
            }
        }
        Ok(())
    }

    /// A tensor that fits but for its rank says so.
    fn wrong_shape(&mut self, name: &str, half: Half, wanted: [i64; 2], found: &[i64]) {
        let axis = usize::from(half == Half::B);
        if found.len() == 2 && found[1 - axis] == wanted[1 - axis] {
            // Stacked rows count the rank once per step.
            let steps = wanted[axis] / self.rank;
            if found[axis] % steps == 0 {
                self.report.wrong_rank.push((name.to_string(), self.rank, found[axis] / steps));
                return;
            }
        }
        self.report.wrong_shape.push((name.to_string(), wanted.to_vec(), found.to_vec()));
    }

    /// Reads our keys of the header and compares those that repeat the configuration.
    fn metadata(&mut self, header: &BTreeMap<String, String>, config: &LoraConfig) -> AdapterMeta {
        let text = |key: &str| header.get(key).map(String::as_str);
        let mut wrong = |key: &str, found: &str, wanted: String| {
            self.report.disagreements.push(format!("{key} is {found:?} in the file's header, not {wanted}"));
        };
        if let Some(found) = text("format_version").filter(|v| *v != FORMAT_VERSION) {
            wrong("format_version", found, FORMAT_VERSION.into());
        }
        if let Some(found) = text("rank").filter(|v| v.parse() != Ok(config.rank)) {
            wrong("rank", found, config.rank.to_string());
        }
        // The PEFT layout stores rank times scaling, so the last digit may differ.
        let close = |v: &&str| v.parse::<f64>().is_ok_and(|s| (s / config.scaling - 1.0).abs() < 1e-9);
        if let Some(found) = text("scaling").filter(|v| !close(v)) {
            wrong("scaling", found, config.scaling.to_string());
        }
        if let Some(found) = text("step").filter(|v| v.parse::<u64>().is_err()) {
            wrong("step", found, "a number".into());
        }
        AdapterMeta::of(header)
    }
}

/// The floating-point type that most tensors have; f32 when none has one.
fn common_dtype(file: &SafetensorsFile) -> Dtype {
    let count = |dtype| file.tensors().filter(|(_, e)| e.dtype == dtype).count();
    [Dtype::F32, Dtype::BF16, Dtype::F16].into_iter().rev().max_by_key(|d| count(*d)).unwrap_or(Dtype::F32)
}
