//! A specification in the words of `streams`: how the text stream is laid out, context spliced and windows cut.

use domain::frame::FRAME_RATE;
use domain::run::{self, TrainingSpec};
use streams::splice::SpliceMode;
use streams::text_stream::{Overflow, TextStreamConfig};
use streams::windows::WindowRules;
use streams::{CarryContext, PromptCodes, ViewConfig, WindowConfig};

/// How windows are cut.
#[must_use]
pub fn window_config(spec: &TrainingSpec) -> WindowConfig {
    // 12.5 frames a second, rounded down.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "10 to 240 s, checked before"
    )]
    let frames = (spec.duration_sec * FRAME_RATE) as usize;
    let p = &spec.puppeteer;
    WindowConfig {
        rules: WindowRules {
            lookback: p.lookback as usize,
            min_post: p.min_post as usize,
            min_window: p.min_window as usize,
            max_tokens_per_injection: p.max_tokens_per_injection as usize,
        },
        carry_context: match p.carry_context {
            run::CarryContext::None => CarryContext::None,
            run::CarryContext::Prompt => CarryContext::Prompt,
        },
        first_window_weight: p.first_window_weight,
        ..WindowConfig::new(frames)
    }
}

/// How a dialogue becomes frames.
#[must_use]
pub fn view_config(spec: &TrainingSpec, codes: PromptCodes) -> ViewConfig {
    let (i, p) = (&spec.interleaver, &spec.puppeteer);
    #[expect(clippy::cast_possible_truncation, reason = "at most 10 s, checked before")]
    let audio_delay_ms = (i.audio_delay * 1e3).round() as i64;
    ViewConfig {
        text: TextStreamConfig {
            keep_main_only: i.keep_main_only,
            use_bos_eos: i.use_bos_eos,
            audio_delay_ms,
            overflow: match i.overflow {
                run::Overflow::Drop => Overflow::Drop,
                run::Overflow::Shift => Overflow::Shift,
                run::Overflow::ShiftBounded => Overflow::ShiftBounded,
            },
            ..TextStreamConfig::default()
        },
        splice_mode: match p.splice_mode {
            run::SpliceMode::OverlayThenStretch => SpliceMode::OverlayThenStretch,
            run::SpliceMode::InsertCopyUser => SpliceMode::InsertCopyUser,
        },
        guard: p.guard as usize,
        max_tokens_per_injection: p.max_tokens_per_injection as usize,
        codes,
    }
}
