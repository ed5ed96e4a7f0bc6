//! The golden set's small model in f32: this device against the CPU.

use std::path::Path;

use nn::tensor_from_file;
use personaplex::{BatchOptions, Frame, Given, Lm, LmBatch, Order, Prompt, Sampler, TrainOutput};
use tch::{Device, Kind, Tensor};
use weights::{LmConfig, SafetensorsFile};

use crate::Outcome;
use crate::measure::Table;

/// Ten times what the golden sets allow on the CPU.
const HIDDEN: f64 = 5e-4;
const LOGITS: f64 = 2e-3;

/// One greedy conversation.
struct Played {
    frames: Vec<Frame>,
    /// `[N, dim]`.
    hidden: Option<Tensor>,
}

pub fn run(set: &Path, device: Device, table: &mut Table) -> Outcome {
    let text = std::fs::read_to_string(set.join("config.json"))?;
    let config: LmConfig =
        serde_json::from_value(serde_json::from_str::<serde_json::Value>(&text)?["config"].clone())?;
    let weights = set.join("weights.safetensors");
    let load = |device| -> Outcome<Lm> { Ok(Lm::from_file(&weights, &config, device, Kind::Float)?) };
    let (here, there) = (load(Device::Cpu)?, load(device)?);

    let codes = tensor_from_file(&SafetensorsFile::open(&set.join("forward_f32.safetensors"))?, "codes")?;
    let (wanted, found) = (forward(&here, &codes)?, forward(&there, &codes)?);
    for (name, a, b) in [
        ("text logits", &wanted.text_logits, &found.text_logits),
        ("audio logits", &wanted.audio_logits, &found.audio_logits),
    ] {
        close(table, &format!("whole forward: {name}"), a, b, LOGITS);
    }

    let run = SafetensorsFile::open(&set.join("gen_plain.safetensors"))?;
    let users = users(&tensor_from_file(&run, "in_user")?)?;
    let (wanted, found) = (play(&here, &users, false)?, play(&there, &users, false)?);
    same(table, "greedy stream: ids", &wanted, &found);
    if let (Some(a), Some(b)) = (&wanted.hidden, &found.hidden) {
        close(table, "greedy stream: hidden", a, b, HIDDEN);
    }
    if device.is_cuda() {
        same(table, "greedy stream as graphs: ids", &wanted, &play(&there, &users, true)?);
    }
    Ok(())
}

fn forward(lm: &Lm, codes: &Tensor) -> Outcome<TrainOutput> {
    tch::no_grad(|| Ok(lm.forward_train(&codes.to_kind(Kind::Int64))?))
}

/// User codes of the first conversation, `[N, B, 8]` with -1 for none.
fn users(codes: &Tensor) -> Outcome<Vec<[i32; 8]>> {
    let flat = Vec::<i64>::try_from(codes.select(1, 0).to_kind(Kind::Int64).contiguous().flatten(0, -1))?;
    let all = flat.chunks_exact(8).map(|c| std::array::from_fn(|k| c[k] as i32));
    Ok(all.filter(|codes: &[i32; 8]| codes[0] >= 0).collect())
}

fn play(lm: &Lm, users: &[[i32; 8]], graphs: bool) -> Outcome<Played> {
    let mut batch = LmBatch::new(lm, 1, BatchOptions { graphs, ..BatchOptions::default() })?;
    let prefix = lm.prefill(&Prompt::default(), Order::Early)?;
    lm.open(&mut batch, 0, &prefix, Sampler::greedy())?;
    let (mut frames, mut hidden) = (Vec::new(), Vec::new());
    for user in users {
        let emitted = lm.step(&mut batch, &[Some(Given { user: Some(*user), ..Given::default() })])?;
        frames.push(emitted[0].ok_or("the early order emits at every call")?.frame);
        hidden.extend(batch.hidden().map(|h| h.flatten(0, -1).to_device(Device::Cpu).copy()));
    }
    let hidden = (!hidden.is_empty()).then(|| Tensor::stack(&hidden, 0));
    Ok(Played { frames, hidden })
}

fn same(table: &mut Table, what: &str, wanted: &Played, found: &Played) {
    let equal = wanted.frames.iter().zip(&found.frames).take_while(|(a, b)| a == b).count();
    let count = wanted.frames.len();
    let holds = equal == count && found.frames.len() == count && count > 0;
    table.must(what, format!("{equal} of {count}"), holds, "every frame equal to the CPU's");
}

fn close(table: &mut Table, what: &str, wanted: &Tensor, found: &Tensor, most: f64) {
    let found = found.to_device(Device::Cpu).to_kind(Kind::Double);
    let largest = (found - wanted.to_kind(Kind::Double)).abs().max().double_value(&[]);
    table.must(what, format!("{largest:.1e}"), largest <= most, &format!("at most {most:.0e} from the CPU"));
}
