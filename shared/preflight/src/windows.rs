//! Every window of the training, with silence in place of audio: lengths, prompts, contexts, lost text.

use domain::dialogue::Speaker;
use domain::preflight::DataNumbers;
use domain::preflight::Severity::{Error, Info, Warning};
use domain::run::TrainingSpec;
use streams::{DialogueInput, PromptInput, StreamsError, build_dialogue};

use crate::base::Base;
use crate::data::Dialogue;
use crate::findings::Findings;
use crate::views::{view_config, window_config};

/// Turns below which a dialogue is one question and one answer (finetune.md 9, 13).
const FEW_TURNS: f64 = 4.0;
/// Text tokens per word above which the tokenizer does not know the language.
const MANY_TOKENS: f64 = 2.5;
/// Share of text tokens without a frame above which somebody should look.
const LOST_TEXT: f64 = 0.02;
/// Share of a window that a prompt may take before it is the larger part of the training.
const PROMPT_SHARE: f64 = 0.5;

/// Percent of drawn windows below which the model was seen to lose its greeting.
const FEW_STARTS: f64 = 10.0;

#[derive(Default)]
struct Totals {
    numbers: DataNumbers,
    prompts: (u64, u64),
    turns: (usize, usize),
    text: (usize, usize),
    /// Windows in which the agent says nothing.
    silent: u32,
    /// Training windows that begin with the conversation.
    starts: u32,
}

/// Builds and counts.
pub fn count(
    spec: &TrainingSpec,
    dialogues: &[Dialogue],
    base: &Base,
    findings: &mut Findings,
) -> DataNumbers {
    let mut totals = Totals::default();
    for dialogue in dialogues {
        if let Err(error) = one(spec, dialogue, base, &mut totals, findings) {
            findings.at(Error, code_of(&error), &dialogue.at, error.to_string());
        }
    }
    judge(spec, totals, findings)
}

fn code_of(error: &StreamsError) -> &'static str {
    match error {
        StreamsError::PromptTooLong { .. } => "prompt_too_long",
        StreamsError::InjectionTooLong { .. } => "injection_too_long",
        StreamsError::Tokenize { .. } => "text_unusable",
        StreamsError::TagInPrompt(_) => "prompt_tag",
        StreamsError::EmptyContext | StreamsError::TagInContext(_) | StreamsError::ControlInContext(_) => {
            "context_text"
        }
        _ => "window",
    }
}

fn one(
    spec: &TrainingSpec,
    dialogue: &Dialogue,
    base: &Base,
    totals: &mut Totals,
    findings: &mut Findings,
) -> Result<(), StreamsError> {
    let sidecar = &dialogue.sidecar;
    let words = sidecar.words(&spec.data.main_speaker_label);
    let silence = vec![base.codes.silence; dialogue.frames];
    let injections = if spec.puppeteer.enable { &sidecar.context_injections[..] } else { &[] };
    let input = DialogueInput { words: &words, injections, agent_codes: &silence, user_codes: &silence };
    let spliced = build_dialogue(&input, &base.tokenizer, &view_config(spec, base.codes))?;
    let prompted = spec.system_prompt.enable;
    let voice = vec![base.codes.silence; dialogue.voice_frames];
    let prompt = PromptInput {
        text: if prompted { &sidecar.text_prompt } else { "" },
        voice: &voice,
        silence_frames: if prompted { spec.system_prompt.audio_silence_frames as usize } else { 0 },
    };
    let set = spliced.windows(&prompt, &base.tokenizer, &window_config(spec), &base.codes)?;
    let limit = spec.system_prompt.max_frames as usize;
    if let Some(window) = set.windows.iter().find(|w| w.prompt_len > limit) {
        let (found, index) = (window.prompt_len, window.index);
        let detail =
            format!("the prompt of window {index} takes {found} frames, system_prompt.max_frames is {limit}");
        findings.at(Error, "prompt_above_limit", &dialogue.at, detail);
    }
    let in_windows: usize = set.windows.iter().map(|w| w.context_mask.iter().filter(|c| **c).count()).sum();
    let n = &mut totals.numbers;
    let windows = u32::try_from(set.windows.len()).unwrap_or(u32::MAX);
    if dialogue.eval {
        n.eval_dialogues += 1;
        n.eval_windows += windows;
        n.eval_hours += dialogue.seconds / 3600.0;
    } else {
        n.train_dialogues += 1;
        n.train_windows += windows;
        totals.starts += u32::from(set.windows.first().is_some_and(|w| w.start == 0));
        n.train_hours += dialogue.seconds / 3600.0;
        n.train_frames += set.windows.iter().map(|w| w.valid_frames as u64).sum::<u64>();
    }
    n.injections += u32::try_from(injections.len()).unwrap_or(u32::MAX);
    n.context_tokens += spliced.stats.context_tokens as u64;
    n.context_tokens_in_windows += in_windows as u64;
    n.agent_words += words.iter().filter(|w| w.speaker == Speaker::Agent).count() as u64;
    for window in &set.windows {
        totals.prompts.0 += window.prompt_len as u64;
        totals.prompts.1 += 1;
        n.longest_prompt_frames =
            n.longest_prompt_frames.max(u32::try_from(window.prompt_len).unwrap_or(u32::MAX));
        let speaks = spliced.agent_words.iter().any(|(from, to)| *from < window.end && *to > window.start);
        totals.silent += u32::from(!speaks);
    }
    totals.turns.0 += sidecar.turns.len();
    totals.turns.1 += usize::from(!sidecar.turns.is_empty());
    totals.text.0 += spliced.stats.text.tokens_dropped;
    totals.text.1 += spliced.stats.text.tokens;
    for doubt in spliced.stats.warnings() {
        findings.at(Info, "dialogue_doubtful", &dialogue.at, doubt);
    }
    Ok(())
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// What the sums say.
fn judge(spec: &TrainingSpec, totals: Totals, findings: &mut Findings) -> DataNumbers {
    let mut n = totals.numbers;
    n.window_frames = u32::try_from(window_config(spec).duration_frames).unwrap_or(u32::MAX);
    n.mean_prompt_frames = ratio(totals.prompts.0 as f64, totals.prompts.1 as f64);
    n.mean_turns = ratio(totals.turns.0 as f64, totals.turns.1 as f64);
    n.tokens_per_word = ratio(totals.text.1 as f64, n.agent_words as f64);
    n.dropped_text_share = ratio(totals.text.0 as f64, totals.text.1 as f64);
    n.injection_yield = if n.context_tokens == 0 {
        1.0
    } else {
        n.context_tokens_in_windows as f64 / n.context_tokens as f64
    };
    if n.context_tokens != n.context_tokens_in_windows {
        let detail = format!(
            "{} of {} context tokens ({:.1} %) stand in a window; all must",
            n.context_tokens_in_windows,
            n.context_tokens,
            100.0 * n.injection_yield
        );
        findings.say(Error, "injection_lost", "/spec/puppeteer", detail);
    }
    if totals.turns.1 > 0 && n.mean_turns < FEW_TURNS {
        let detail =
            format!("{:.1} turns a dialogue: such data makes a model that answers once", n.mean_turns);
        findings.say(Warning, "single_turn", "/dataset_id", detail);
    }
    if n.tokens_per_word > MANY_TOKENS {
        let detail = format!(
            "{:.2} text tokens a word: the tokenizer does not know this language well",
            n.tokens_per_word
        );
        findings.say(Warning, "language", "/dataset_id", detail);
    }
    if n.dropped_text_share > LOST_TEXT {
        let (lost, all, share) = (totals.text.0, totals.text.1, 100.0 * n.dropped_text_share);
        let detail =
            format!("{lost} of {all} text tokens ({share:.1} %) find no frame: the words come too fast");
        findings.say(Warning, "text_lost", "/spec/interleaver/overflow", detail);
    }
    if n.mean_prompt_frames > PROMPT_SHARE * f64::from(n.window_frames) {
        let detail = format!(
            "prompts take {:.0} of {} frames on average (longest {}): most of the computation goes into them",
            n.mean_prompt_frames, n.window_frames, n.longest_prompt_frames
        );
        findings.say(Warning, "prompt_share", "/spec/duration_sec", detail);
    }
    if totals.starts < n.train_windows {
        // The greeting is learned from these alone (finetune.md 9, 9).
        let (starts, all, weight) = (totals.starts, n.train_windows, spec.puppeteer.first_window_weight);
        let weighted = f64::from(starts) * weight;
        let drawn = 100.0 * weighted / (weighted + f64::from(all - starts));
        let detail = format!(
            "{starts} of {all} training windows begin with the conversation; with weight {weight} {drawn:.0} % of those drawn do"
        );
        let severity = if drawn < FEW_STARTS { Warning } else { Info };
        findings.say(severity, "window_starts", "/spec/puppeteer/first_window_weight", detail);
    }
    if totals.silent > 0 {
        let all = n.train_windows + n.eval_windows;
        findings.say(
            Info,
            "silent_windows",
            "",
            format!("in {} of {all} windows the agent says nothing", totals.silent),
        );
    }
    n
}
