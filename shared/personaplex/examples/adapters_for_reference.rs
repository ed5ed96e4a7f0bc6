//! Writes adapters with random values for the base of a golden tree's `c_lora` set, and what the model gives with them:
//! unmerged, merged, and both in the serving path; then the same for a model of which every tensor was moved.
//! `tests/golden/check_adapters.py` loads the files into the published package and compares.

use std::path::{Path, PathBuf};

use clap::Parser;
use nn::tensor_from_file;
use personaplex::{
    Adapter, AdapterMeta, BatchOptions, Given, Lm, LmBatch, LoraConfig, Order, Prompt, Sampler,
};
use tch::{Device, Kind, Tensor};
use weights::lora::{AdapterFile, merge_file};
use weights::{LmConfig, SafetensorsFile, checkpoint_sha256};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Cli {
    /// The golden tree
    tree: PathBuf,
    /// Folder for the adapters and logits; created
    out: PathBuf,
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Name, without depformer, with embedding tables.
const CASES: [(&str, bool, bool); 4] = [
    ("backbone", true, false),
    ("all", false, false),
    ("backbone_and_tables", true, true),
    ("all_and_tables", false, true),
];

fn main() -> Outcome {
    let cli = Cli::parse();
    nn::device::set_threads(1);
    let tree = Tree::open(&cli.tree.join("finetune/c_lora"))?;
    for (name, skip_depformer, embeddings) in CASES {
        let config = LoraConfig { skip_depformer, embeddings, ..tree.lora.clone() };
        tree.write_adapter(&cli.out.join(name), &config, cli.seed)?;
    }
    tree.write_whole(&cli.out.join("whole"), cli.seed)
}

/// The base, codes for it, and the rank and scaling drawn for the tree.
struct Tree {
    base: PathBuf,
    lm: LmConfig,
    lora: LoraConfig,
    /// `[B, 17, T]`.
    codes: Tensor,
}

impl Tree {
    fn open(folder: &Path) -> Outcome<Self> {
        let expected: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("expected.json"))?)?;
        let io = SafetensorsFile::open(&folder.join("io.safetensors"))?;
        let rank = expected["rank"].as_i64().ok_or("no rank")?;
        let scaling = expected["scaling"].as_f64().ok_or("no scaling")?;
        Ok(Self {
            base: folder.join("base_personaplex_names.safetensors"),
            lm: serde_json::from_value(expected["config"].clone())?,
            lora: LoraConfig { rank, scaling, ..LoraConfig::default() },
            codes: tensor_from_file(&io, "codes")?.to_kind(Kind::Int64),
        })
    }

    fn load(&self, path: &Path) -> Outcome<Lm> {
        Ok(Lm::from_file(path, &self.lm, Device::Cpu, Kind::Float)?)
    }

    /// One adapter directory, and the logits beside it.
    fn write_adapter(&self, folder: &Path, config: &LoraConfig, seed: u64) -> Outcome {
        let (adapter, merged) = (folder.join("adapter"), folder.join("merged.safetensors"));
        let mut lm = self.load(&self.base)?;
        lm.add_lora(config, seed)?;
        randomise(&lm, seed);
        lm.adapter()?.save(&adapter, &self.lm, &self.meta()?)?;

        // From here on as whoever was given the files.
        let mut lm = self.load(&self.base)?;
        lm.apply_adapter(&Adapter::load(&adapter, &self.lm)?)?;
        merge_file(&self.base, &self.lm, &AdapterFile::open(&adapter, &self.lm)?, &merged)?;
        self.write_logits(folder, &[("unmerged", &lm), ("merged", &self.load(&merged)?)])
    }

    /// The file of full fine-tuning, and its logits.
    fn write_whole(&self, folder: &Path, seed: u64) -> Outcome {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("consolidated.safetensors");
        let mut lm = self.load(&self.base)?;
        lm.train_all()?;
        randomise(&lm, seed);
        lm.save_whole(&path, &self.meta()?)?;
        self.write_logits(folder, &[("whole", &self.load(&path)?)])
    }

    fn meta(&self) -> Outcome<AdapterMeta> {
        Ok(AdapterMeta { base_sha256: checkpoint_sha256(&self.base)?, ..AdapterMeta::default() })
    }

    fn write_logits(&self, folder: &Path, models: &[(&str, &Lm)]) -> Outcome {
        let mut all = Vec::new();
        for (name, lm) in models {
            let out = tch::no_grad(|| lm.forward_train(&self.codes))?;
            let [rows, text, audio] = self.serve(lm)?;
            all.extend([
                (format!("{name}_text"), out.text_logits),
                (format!("{name}_audio"), out.audio_logits),
                (format!("{name}_served_rows"), rows),
                (format!("{name}_served_text"), text),
                (format!("{name}_served_audio"), audio),
            ]);
        }
        let all: Vec<(&str, Tensor)> = all.iter().map(|(n, t)| (n.as_str(), t.contiguous())).collect();
        Ok(Tensor::write_safetensors(&all, folder.join("logits.safetensors"))?)
    }

    /// A greedy conversation with the first item's user: its rows `[17, N + 2]`, and of all calls but the first, each of
    /// which decides the next row, text logits `[N, V]` and audio logits `[N, 8, V]`. The first call decides row 1, where
    /// delayed codebooks hold their initial id and are not predicted.
    fn serve(&self, lm: &Lm) -> Outcome<[Tensor; 3]> {
        let user: Vec<i64> =
            Vec::try_from(self.codes.get(0).narrow(0, 9, 8).transpose(0, 1).contiguous().view(-1))?;
        let options = BatchOptions { order: Order::Reference, top_k_limit: 1, ..BatchOptions::default() };
        let mut batch = LmBatch::new(lm, 1, options)?;
        let prefix = lm.prefill(&Prompt::of_frames(Vec::new()), Order::Reference)?;
        lm.open(&mut batch, 0, &prefix, Sampler::greedy())?;
        let (mut text, mut audio) = (Vec::new(), Vec::new());
        for (call, frame) in user.chunks_exact(8).enumerate() {
            let user = Some(std::array::from_fn(|k| frame[k] as i32));
            lm.step(&mut batch, &[Some(Given { user, ..Given::default() })])?;
            if call == 0 {
                continue;
            }
            text.push(batch.text_logits().ok_or("no text logits")?.get(0));
            audio.push(batch.audio_logits().ok_or("no audio logits")?.get(0));
        }
        let rows = &batch.history(0)?.rows()[..text.len() + 2];
        let flat: Vec<i64> = rows.iter().flatten().map(|id| i64::from(*id)).collect();
        let rows = Tensor::from_slice(&flat).view([-1, 17]).transpose(0, 1);
        Ok([rows, Tensor::stack(&text, 0), Tensor::stack(&audio, 0)])
    }
}

/// Moves what is trained as training would: fresh adapters change nothing. A keeps its start, as B is what was zero.
fn randomise(lm: &Lm, seed: u64) {
    tch::manual_seed(seed as i64);
    tch::no_grad(|| {
        for mut param in lm.trainable().into_iter().filter(|p| !p.name.contains("lora_A")) {
            let noise = Tensor::empty_like(&param.tensor).uniform_(-0.1, 0.1);
            let _ = param.tensor.g_add_(&noise);
        }
    });
}
