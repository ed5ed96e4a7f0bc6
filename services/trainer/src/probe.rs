//! The model talks on its own for a while: low losses alone have picked models that loop or fall silent (finetune.md 6.8).

mod sound;
mod talk;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use domain::frame::FRAME_RATE;
use personaplex::{Lm, Mimi, PersonaplexError};
use streams::Tokenizer;
use weights::ModelDir;

use crate::TrainError;
use crate::loader::Sample;
use crate::model::free_memory;
use crate::numbers::Points;
use crate::plan::Plan;
use sound::Sound;
use talk::{Said, Talk};

/// Words of all prompts below which repetition says nothing.
const FEW_WORDS: usize = 8;

/// Lets the model go on from the prompts of the first eval dialogues, with the recorded user, and measures what it says.
/// The same model, device and specification give the same numbers.
///
/// - `nan`: 1 when the model gave a number that is not finite; there are no others then. Else 0.
/// - `words_per_min`; `mute_pct`: prompts after which no word came, percent; `first_word_s`: mean time to the first word
///   after prompts that begin a dialogue, over those after which one came.
/// - `longest_repeat_words`: words of the longest passage that came twice after one prompt.
/// - `repeat_ratio`: share of all words that repeat an earlier passage of at least [`text::PASSAGE`] words of the same
///   prompt; none below [`FEW_WORDS`] words. `distinct_2`: share of the pairs of neighbouring words that are different.
/// - `silence_pct` of the frames; `screech_pct` of those that are not silent; `clipped_pct` of the samples.
///
/// # Errors
/// When the tokenizer or the codec cannot be loaded, or a window does not fit the model.
pub(crate) fn probe(lm: &Lm, plan: &Plan, samples: &[Sample], step: u32) -> Result<Points, TrainError> {
    let spec = &plan.spec.probe;
    let dir = ModelDir::new(&plan.base);
    let config = dir.load_config()?;
    let mut points = Points::new("probe", step);
    let openings = openings(samples, spec.prompts as usize);
    if openings.is_empty() {
        return Ok(points);
    }
    let talk = Talk { spec, seed: plan.spec.seed, silence: config.silence_codes };
    let said = talk.all(lm, &openings, slots(lm, plan, openings.len()));
    give_back(plan)?;
    let Some(said) = said? else {
        points.add("nan", 1.0);
        return Ok(points);
    };
    points.add("nan", 0.0);
    let path = dir.tokenizer_of(&config);
    let bytes = std::fs::read(&path).map_err(|source| TrainError::Io { path: path.clone(), source })?;
    let tokenizer = Tokenizer::from_bytes(&bytes)
        .map_err(|e| TrainError::Dataset { path: path.display().to_string(), detail: e.to_string() })?;
    speech(&said, &tokenizer, &mut points);
    sounds(&said, plan, &mut points)?;
    give_back(plan)?;
    Ok(points)
}

/// The earliest window there is of each of the first dialogues.
fn openings(samples: &[Sample], prompts: usize) -> Vec<&Sample> {
    let mut places = BTreeMap::new();
    let mut found: Vec<&Sample> = Vec::new();
    for sample in samples {
        let place = *places.entry(sample.dialogue.as_str()).or_insert(found.len());
        match found.get_mut(place) {
            None => found.push(sample),
            Some(first) if sample.window.index < first.window.index => *first = sample,
            Some(_) => {}
        }
    }
    found.truncate(prompts);
    found
}

/// Conversations at a time: all, or as many as half of the device's free memory holds.
fn slots(lm: &Lm, plan: &Plan, wanted: usize) -> usize {
    let config = lm.config();
    let values = 2 * config.num_layers * config.context * config.dim;
    let bytes = values.unsigned_abs() * lm.kind().elt_size_in_bytes() as u64;
    let room = free_memory(plan.device).map_or(wanted as u64, |free| free / 2 / bytes.max(1));
    wanted.min(usize::try_from(room).unwrap_or(wanted)).max(1)
}

/// Caches of conversations and codec have other sizes than what training allocates: kept, they would stand in its way.
fn give_back(plan: &Plan) -> Result<(), TrainError> {
    if plan.device.is_cuda() {
        nn::graph::empty_cache(plan.device).map_err(PersonaplexError::from)?;
    }
    Ok(())
}

/// What was said, in words.
fn speech(said: &[Said], tokenizer: &Tokenizer, points: &mut Points) {
    let words: Vec<Vec<String>> = said.iter().map(|s| text::words(&tokenizer.decode(&s.spoken()))).collect();
    let count: usize = words.iter().map(Vec::len).sum();
    let minutes = said.iter().map(|s| s.text.len() as f64).sum::<f64>() / FRAME_RATE / 60.0;
    let longest = words.iter().map(|w| text::longest_repeat(w)).max().unwrap_or(0);
    let repeated: usize = words.iter().map(|w| text::repeated_words(w)).sum();
    let (distinct, pairs) = words.iter().map(|w| text::pairs(w)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let greetings: Vec<f64> = said
        .iter()
        .filter(|s| s.begins)
        .filter_map(Said::first_word)
        .map(|f| f as f64 / FRAME_RATE)
        .collect();
    let mute = said.iter().filter(|s| s.first_word().is_none()).count();
    let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
    points
        .add("words_per_min", (minutes > 0.0).then(|| count as f64 / minutes))
        .add("longest_repeat_words", longest as f64)
        .add("repeat_ratio", (count >= FEW_WORDS).then(|| share(repeated, count)))
        .add("distinct_2", (pairs > 0).then(|| share(distinct, pairs)))
        .add(
            "first_word_s",
            (!greetings.is_empty()).then(|| greetings.iter().sum::<f64>() / greetings.len() as f64),
        )
        .add("mute_pct", 100.0 * share(mute, said.len()));
}

/// What was said, as sound. The codec is here for this alone: a training does not keep it.
fn sounds(said: &[Said], plan: &Plan, points: &mut Points) -> Result<(), TrainError> {
    let mimi = Mimi::load(&plan.base, plan.device)?;
    let mut sound = Sound::new();
    for one in said {
        sound.add(&mimi.decode(&one.codes)?);
    }
    points
        .add("silence_pct", sound.silence_pct())
        .add("screech_pct", sound.screech_pct())
        .add("clipped_pct", sound.clipped_pct());
    Ok(())
}
