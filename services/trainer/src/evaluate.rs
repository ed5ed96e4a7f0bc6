//! Losses over a fixed list of windows: weighted sums over all of them and all processes, divided once.

use std::collections::BTreeMap;

use domain::run::TrainingSpec;
use personaplex::loss::{LossSettings, LossWeights};
use personaplex::{Lm, PassSums};
use ranks::Group;
use tch::Device;

use crate::TrainError;
use crate::batch::Batch;
use crate::loader::Sample;
use crate::numbers::{Points, sum_over};
use crate::update::{add, share};

/// Windows that are evaluated together: with context or without, of dialogues with one outcome.
type Slice<'a> = (bool, Option<&'a str>);

/// Runs the list, every process its share, without gradients.
pub(crate) fn evaluate(
    lm: &Lm,
    samples: &[Sample],
    spec: &TrainingSpec,
    settings: &LossSettings,
    device: Device,
    group: &dyn Group,
    step: u32,
) -> Result<Points, TrainError> {
    let mut slices: BTreeMap<Slice<'_>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        slices.entry((sample.has_context(), sample.outcome.as_deref())).or_default().push(sample);
    }
    let mut found = Vec::with_capacity(slices.len());
    for (slice, windows) in &slices {
        let own: Vec<&Sample> = windows.iter().copied().skip(group.rank()).step_by(group.world()).collect();
        let mut sums = PassSums::default();
        // All processes make the same number of passes: they may bring each other the weights.
        let batch_size = spec.batch_size as usize;
        let rounds = windows.len().div_ceil(group.world()).div_ceil(batch_size);
        for round in 0..rounds {
            let chunk = own.chunks(batch_size).nth(round);
            let batch = Batch::collate(chunk.unwrap_or(&windows[..1]), device);
            let weights = LossWeights::new(
                &batch.codes,
                lm.config(),
                &batch.prompt_lengths,
                Some(&batch.context_mask),
                settings,
            )?;
            let found = lm.losses(&batch.codes, &weights, i64::from(spec.sliced_heads_frames))?;
            if chunk.is_some() {
                add(&mut sums, &found);
            }
        }
        let mut totals = [sums.text_sum, sums.text_weight, sums.audio_sum, sums.audio_weight];
        group.sum(&mut totals)?;
        [sums.text_sum, sums.text_weight, sums.audio_sum, sums.audio_weight] = totals;
        sum_over(group, &mut sums.metrics, lm.config().dep_q as usize)?;
        found.push((*slice, sums));
    }
    Ok(points(spec, step, &found))
}

fn points(spec: &TrainingSpec, step: u32, found: &[(Slice<'_>, PassSums)]) -> Points {
    let of = |wanted: &dyn Fn(&Slice<'_>) -> bool| {
        let mut sums = PassSums::default();
        let mut some = false;
        for (_, part) in found.iter().filter(|(slice, _)| wanted(slice)) {
            some = true;
            add(&mut sums, part);
        }
        some.then_some(sums)
    };
    let mut points = Points::new("eval", step);
    let Some(all) = of(&|_| true) else { return points };
    let (text, audio) = (share(all.text_sum, all.text_weight), share(all.audio_sum, all.audio_weight));
    points
        .add("loss", spec.text_loss_weight * text + spec.audio_loss_weight * audio)
        .add("text_loss", text)
        .add("audio_loss", audio)
        .add("text_perplexity", text.exp())
        .add("audio_perplexity", audio.exp())
        .diagnostics(&all.metrics);
    let mut slice = |name: &str, sums: Option<PassSums>| {
        let Some(sums) = sums else { return };
        let mean = |sum: f64, weight: f64| (weight > 0.0).then(|| sum / weight);
        points
            .add(&format!("{name}/text_loss"), mean(sums.text_sum, sums.text_weight))
            .add(&format!("{name}/audio_loss"), mean(sums.audio_sum, sums.audio_weight))
            .add(&format!("{name}/real_token_loss"), sums.metrics.real_token_loss());
    };
    slice("context", of(&|(context, _)| *context));
    slice("no_context", of(&|(context, _)| !*context));
    let outcomes: std::collections::BTreeSet<&str> = found.iter().filter_map(|((_, o), _)| *o).collect();
    for outcome in outcomes {
        slice(&format!("outcome_{outcome}"), of(&|(_, o)| *o == Some(outcome)));
    }
    points
}
