//! Tests of steps that fail half-way, which nothing outside can bring about.

use std::sync::Arc;

use anyhow::{Context, Result};
use domain::ModelId;
use domain::session::SamplingParams;
use streams::inject_queue::{InjectItem, InjectKind, QueueLimits, When};
use streams::tokens::PromptCodes;
use tch::{Device, Kind};
use tokio::sync::{Semaphore, mpsc};
use weights::ModelConfig;

use super::conversation::{Line, Output};
use super::group::{Group, GroupOptions};
use super::models::LoadedModel;
use super::slot::{Turn, Wires};
use super::{AgentFrame, ModelSource, OpenRequest, Pace, Place, WindowPolicy, thread};

fn group(dir: &std::path::Path) -> Result<(Group, ModelSource)> {
    nn::device::set_threads(1);
    let config = ModelConfig::preset("tiny")?;
    let dir = dir.join("model");
    weights::init_model_with(&dir, &config, weights::preset_tokenizer("tiny")?, 5)?;
    let codes = PromptCodes { silence: config.silence_codes, sine: config.sine_codes };
    let source = ModelSource { id: ModelId::generate(), dir, files: Vec::new(), codes };
    let model = LoadedModel::load(&source, Device::Cpu, Kind::Float, false)?;
    let policy = WindowPolicy::Refresh;
    let options = GroupOptions { slots: 3, rows: None, policy, kept_rows: 100, prefix_bytes: 1 << 20 };
    Ok((Group::new(model, 0, &options)?, source))
}

fn open(group: &mut Group, source: &ModelSource, id: u64) -> Result<mpsc::UnboundedReceiver<Output>> {
    let request = OpenRequest {
        model: source.clone(),
        adapter: None,
        voice: None,
        prompt_tokens: vec![5; 7],
        sampling: SamplingParams { seed: Some(id), ..SamplingParams::default() },
        limits: QueueLimits::default(),
        pace: Pace::Audio,
        resume: None,
    };
    let (output, frames) = mpsc::unbounded_channel();
    let place = Place { _permit: Arc::new(Semaphore::new(1)).try_acquire_owned()? };
    let wires = Wires { line: Arc::new(Line::default()), output, place, span: tracing::Span::none() };
    group.open(id, &request, wires)?;
    Ok(frames)
}

fn turns(frame: usize) -> Vec<Turn> {
    let pcm: Vec<f32> = (0..1_920).map(|n| ((frame * 1_920 + n) as f32 * 0.02).sin() * 0.3).collect();
    (0..3).map(|slot| Turn { slot, pcm: pcm.clone(), absent: false }).collect()
}

fn frames(output: &mut mpsc::UnboundedReceiver<Output>) -> Vec<AgentFrame> {
    let mut all = Vec::new();
    while let Ok(Output::Frame(frame)) = output.try_recv() {
        all.push(*frame);
    }
    all
}

#[test]
fn a_step_that_fails_half_way_costs_no_conversation_a_frame_or_an_injected_token() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let _no_grad = tch::no_grad_guard();
    let (mut group, source) = group(dir.path())?;
    let mut outputs = (0..3).map(|id| open(&mut group, &source, id)).collect::<Result<Vec<_>>>()?;
    for frame in 0..5 {
        thread::step(&mut group, turns(frame));
    }
    let item = InjectItem {
        id: "a".into(),
        kind: InjectKind::Context,
        tokens: (60..70).collect(),
        when: When::Immediate,
        deadline_frames: None,
        ttl_frames: None,
        supersedes: None,
    };
    group.inject(1, item).context("open")?.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    for frame in 5..25 {
        // The decoder is the last part of a step: everything before it has happened.
        if frame == 10 {
            group.decoder = group.model.mimi.new_decoder_batch(1, 1);
        }
        thread::step(&mut group, turns(frame));
    }
    for (id, output) in outputs.iter_mut().enumerate() {
        let said = frames(output);
        let numbers: Vec<u64> = said.iter().map(|f| f.index).collect();
        assert_eq!(numbers, (0..25).collect::<Vec<_>>(), "conversation {id}");
        let hidden = said.iter().filter(|f| f.hidden).count();
        assert_eq!(hidden, if id == 1 { 10 } else { 0 });
    }
    let rows = group.rows(1, 0)?.complete;
    let injected: Vec<i32> = rows.iter().map(|row| row[0]).skip_while(|t| *t != 60).take(10).collect();
    assert_eq!(injected, (60..70).collect::<Vec<_>>(), "every token once");
    Ok(())
}

#[test]
fn what_fails_for_one_conversation_alone_ends_that_one_only() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let _no_grad = tch::no_grad_guard();
    let (mut group, source) = group(dir.path())?;
    let mut outputs = (0..3).map(|id| open(&mut group, &source, id)).collect::<Result<Vec<_>>>()?;
    thread::step(&mut group, turns(0));
    // The batch forgets a conversation that the group believes open.
    group.lm.close(1);
    for frame in 1..4 {
        thread::step(&mut group, turns(frame));
    }
    for (id, output) in outputs.iter_mut().enumerate() {
        assert_eq!(frames(output).len(), 4, "conversation {id} goes on: it is put together again");
    }
    let mut short = turns(4);
    short[1].pcm.clear();
    thread::step(&mut group, short);
    thread::step(&mut group, turns(5).into_iter().filter(|turn| turn.slot != 1).collect());
    assert_eq!(outputs.iter_mut().map(|o| frames(o).len()).collect::<Vec<_>>(), [2, 0, 2]);
    assert_eq!(group.sessions(None), 2);
    Ok(())
}
