//! What the specification alone says.

use domain::preflight::Severity::{Error, Info, Warning};
use domain::preflight::{DataNumbers, ScheduleNumbers};
use domain::run::{CarryContext, Schedule, TrainingSpec};

use crate::findings::Findings;

/// Learning rate above which the published model was seen to collapse into repetition (finetune.md 6.11).
const LR_SEEN_TO_WORK: f64 = 2e-6;
/// Padding weight from which on models were seen to fall silent (finetune.md 4.3).
const PADDING_WEIGHT: f64 = 0.3;
/// Warm-up steps below which a cycle has no warm-up to speak of (finetune.md 6.3).
const WARM_UP_STEPS: f64 = 5.0;
/// Silence of the prompt when serving, frames.
const SERVING_SILENCE_FRAMES: u32 = 6;
/// Passes over the data above which it is learned by heart.
const MANY_EPOCHS: f64 = 10.0;

/// Faults of the specification, and values that were seen to go wrong.
pub fn check(spec: &TrainingSpec, earlier: Option<(&TrainingSpec, u32)>, findings: &mut Findings) {
    for fault in spec.faults() {
        findings.say(Error, "spec_invalid", &format!("/spec{}", fault.pointer), fault.detail);
    }
    if let Some((earlier, step)) = earlier {
        for fault in spec.resume_faults(earlier, step) {
            findings.say(Error, "resume_mismatch", &format!("/spec{}", fault.pointer), fault.detail);
        }
    }
    optimizer(spec, findings);
    loss(spec, findings);
    streams(spec, findings);
}

fn optimizer(spec: &TrainingSpec, findings: &mut Findings) {
    let lr = spec.optim.lr;
    if lr > LR_SEEN_TO_WORK {
        let detail = format!(
            "{lr:e} is above {LR_SEEN_TO_WORK:e}: on the published model 5e-6 collapsed into repetition by step 64 to 128, 1e-5 \
             and 2e-5 at once"
        );
        findings.say(Warning, "lr_high", "/spec/optim/lr", detail);
    }
    if !spec.lora.skip_depformer || spec.full_finetuning {
        let detail =
            "the depformer is trained: adapters there were seen to damage the audio; watch the screech probe";
        findings.say(Warning, "depformer_trained", "/spec/lora/skip_depformer", detail);
    }
    if spec.do_eval && !spec.probe.enable {
        let detail =
            "no free-running generation at evaluations: the runs with the lowest loss were those that looped";
        findings.say(Warning, "probe_off", "/spec/probe/enable", detail);
    }
}

fn loss(spec: &TrainingSpec, findings: &mut Findings) {
    let weight = spec.text_padding_weight;
    if weight >= PADDING_WEIGHT {
        let detail = format!(
            "{weight} is not below {PADDING_WEIGHT}: with so much weight on padding models fell silent"
        );
        findings.say(Warning, "padding_weight_high", "/spec/text_padding_weight", detail);
    }
}

fn streams(spec: &TrainingSpec, findings: &mut Findings) {
    let silence = spec.system_prompt.audio_silence_frames;
    if spec.system_prompt.enable && silence != SERVING_SILENCE_FRAMES {
        let detail = format!(
            "{silence}, but a session has {SERVING_SILENCE_FRAMES}: the model meets another prompt there"
        );
        findings.say(Warning, "silence_differs", "/spec/system_prompt/audio_silence_frames", detail);
    }
    if !spec.system_prompt.enable {
        let detail = "windows begin without voice and brief, sessions begin with them";
        findings.say(Warning, "prompt_off", "/spec/system_prompt/enable", detail);
    }
    if spec.puppeteer.enable && spec.puppeteer.carry_context == CarryContext::None {
        let detail = "facts told in an earlier window become targets without a ground: the model learns to make them up";
        findings.say(Warning, "context_not_carried", "/spec/puppeteer/carry_context", detail);
    }
    if !spec.interleaver.keep_main_only {
        let detail = "the user's words become targets of the agent's text";
        findings.say(Warning, "user_words_kept", "/spec/interleaver/keep_main_only", detail);
    }
}

/// Steps, passes and warm-up. With `epochs` the windows decide the steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, clamped")]
pub fn schedule(spec: &TrainingSpec, data: Option<&DataNumbers>, findings: &mut Findings) -> ScheduleNumbers {
    let windows_per_step = u64::from(spec.batch_size) * u64::from(spec.num_microbatches);
    let windows = data.map_or(0.0, |d| f64::from(d.train_windows));
    let a_pass = windows / (windows_per_step as f64).max(1.0);
    let steps = match spec.epochs {
        Some(epochs) if windows > 0.0 => (epochs * a_pass).ceil().clamp(1.0, 1e6) as u64,
        _ => u64::from(spec.max_steps),
    };
    let epochs = if a_pass > 0.0 { steps as f64 / a_pass } else { 0.0 };
    let warm_up_steps = spec.optim.pct_start * steps as f64;
    if warm_up_steps < WARM_UP_STEPS && spec.optim.pct_start > 0.0 {
        let (p, kind) = (spec.optim.pct_start, spec.optim.schedule);
        let begins = if kind == Schedule::Onecycle && warm_up_steps < 1.0 {
            "starts at its highest rate"
        } else {
            "has next to no warm-up"
        };
        let detail = format!("{p} of {steps} steps are {warm_up_steps:.1}: the run {begins}");
        findings.say(Warning, "warm_up_short", "/spec/optim/pct_start", detail);
    }
    if epochs > MANY_EPOCHS {
        let detail = format!(
            "{steps} steps of {windows_per_step} windows are {epochs:.1} passes over {windows} windows; 1 to 4 are usual"
        );
        findings.say(Warning, "many_epochs", "/spec/max_steps", detail);
    }
    if windows > 0.0 && (windows_per_step as f64) > windows {
        let detail =
            format!("an update takes {windows_per_step} windows, the dataset has {windows}: some come twice");
        findings.say(Info, "batch_above_data", "/spec/batch_size", detail);
    }
    ScheduleNumbers { steps, windows_per_step, epochs, warm_up_steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(change: impl FnOnce(&mut TrainingSpec)) -> Vec<String> {
        let mut spec = TrainingSpec::default();
        change(&mut spec);
        let mut findings = Findings::default();
        check(&spec, None, &mut findings);
        schedule(&spec, None, &mut findings);
        findings.finish().into_iter().map(|f| f.code).collect()
    }

    #[test]
    fn the_defaults_raise_no_finding_and_each_doubtful_value_its_own() {
        assert_eq!(codes(|_| {}), [""; 0]);
        assert_eq!(codes(|s| s.optim.lr = 2.1e-6), ["lr_high"]);
        assert_eq!(codes(|s| s.lora.skip_depformer = false), ["depformer_trained"]);
        assert_eq!(codes(|s| s.text_padding_weight = 0.3), ["padding_weight_high"]);
        assert_eq!(codes(|s| s.max_steps = 40), ["warm_up_short"]);
        assert_eq!(codes(|s| s.system_prompt.audio_silence_frames = 7), ["silence_differs"]);
        assert_eq!(codes(|s| s.puppeteer.carry_context = CarryContext::None), ["context_not_carried"]);
        assert_eq!(codes(|s| s.batch_size = 0), ["spec_invalid"]);
    }

    #[test]
    fn epochs_decide_the_steps_once_the_windows_are_known() {
        let spec = TrainingSpec { epochs: Some(2.0), ..TrainingSpec::default() };
        let data = DataNumbers { train_windows: 100, ..DataNumbers::default() };
        let numbers = schedule(&spec, Some(&data), &mut Findings::default());
        assert_eq!((numbers.steps, numbers.windows_per_step), (13, 16));
        assert!((numbers.epochs - 13.0 * 16.0 / 100.0).abs() < 1e-12);
    }

    #[test]
    fn a_checkpoint_of_another_rank_is_an_error() {
        let (spec, mut earlier) = (TrainingSpec::default(), TrainingSpec::default());
        earlier.lora.rank = 8;
        let mut findings = Findings::default();
        check(&spec, Some((&earlier, 10)), &mut findings);
        assert_eq!(findings.finish()[0].code, "resume_mismatch");
    }
}
