//! What the demo measured.

use std::time::Duration;

use serde_json::{Value, json};

use client::chat::Conversation;
use domain::session::SessionStats;

use super::super::output::Output;

/// Collected on the way; nothing here is assumed.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub stages: Vec<(&'static str, Duration)>,
    pub total: Duration,
    /// Summary of the run.
    pub training: Value,
    pub stats: Option<SessionStats>,
    /// Frames of hidden context that the events of the session told of.
    pub hidden_by_events: u64,
    /// Text pieces that came while context was hidden; must be 0.
    pub pieces_while_hidden: usize,
    pub rejected: Vec<String>,
    pub agent_frames: u64,
    pub text_pieces: usize,
    /// Summaries of base and tuned.
    pub evaluations: [Value; 2],
    pub report: String,
    pub docs: String,
}

impl Facts {
    /// Takes the facts of the live session.
    pub(crate) fn hear(&mut self, conversation: &Conversation) {
        let spans = conversation.hidden_spans();
        self.hidden_by_events = spans.iter().map(|(start, end)| end - start).sum();
        self.pieces_while_hidden = conversation.pieces_while_hidden();
        self.rejected = conversation.rejections().into_iter().map(str::to_owned).collect();
        self.agent_frames = conversation.agent_frames;
        self.text_pieces = conversation.texts.len();
        self.stats = conversation.stats.clone();
    }

    /// All of it as one document.
    pub(crate) fn json(&self) -> Value {
        let stages: serde_json::Map<String, Value> =
            self.stages.iter().map(|(name, took)| ((*name).to_owned(), json!(took.as_secs_f64()))).collect();
        json!({
            "stages_s": stages, "total_s": self.total.as_secs_f64(), "training": self.training,
            "session": {
                "stats": self.stats, "agent_frames": self.agent_frames, "text_pieces": self.text_pieces,
                "hidden_frames_by_events": self.hidden_by_events, "text_pieces_while_hidden": self.pieces_while_hidden,
                "context_rejected": self.rejected,
            },
            "evaluations": { "base": self.evaluations[0], "tuned": self.evaluations[1] },
            "report": self.report, "docs": self.docs,
        })
    }

    /// The same for people.
    pub(crate) fn print(&self, out: Output) {
        out.line("\nMeasured in this run");
        let stages: Vec<String> =
            self.stages.iter().map(|(name, took)| format!("{name} {:.1} s", took.as_secs_f64())).collect();
        fact(out, "wall time", &format!("{:.1} s ({})", self.total.as_secs_f64(), stages.join(", ")));
        fact(
            out,
            "training",
            &format!(
                "loss {} -> {}, held-out loss {} -> {}, {} frames/s",
                number(&self.training["loss_first"], 3),
                number(&self.training["loss_last"], 3),
                number(&self.training["eval_loss_first"], 3),
                number(&self.training["eval_loss_last"], 3),
                number(&self.training["frames_per_s"], 0)
            ),
        );
        if let Some(stats) = &self.stats {
            fact(
                out,
                "session",
                &format!(
                    "{} frames of 80 ms; per frame p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {} late; ready after {:.0} ms",
                    stats.frames,
                    stats.frame_ms_p50,
                    stats.frame_ms_p99,
                    stats.frame_ms_max,
                    stats.late_frames,
                    stats.ready_ms
                ),
            );
        }
        fact(out, "injection", &self.injection());
        for (side, summary) in ["base", "tuned"].iter().zip(&self.evaluations) {
            let metrics = &summary["metrics"];
            fact(
                out,
                side,
                &format!(
                    "silence {} of frames, {} text pieces a dialogue, injected text leaked {}",
                    number(&metrics["silence_share"]["mean"], 2),
                    number(&metrics["text_pieces"]["mean"], 0),
                    number(&summary["injected_text_leak"], 0)
                ),
            );
        }
        fact(out, "report", &self.report);
        fact(out, "API", &self.docs);
    }

    fn injection(&self) -> String {
        if !self.rejected.is_empty() {
            return format!("refused by the server: {}", self.rejected.join(", "));
        }
        format!(
            "{} frames hidden, {} text pieces let through meanwhile",
            self.hidden_by_events, self.pieces_while_hidden
        )
    }
}

fn fact(out: Output, name: &str, text: &str) {
    out.line(&format!("  {name:12} {text}"));
}

/// A number of a summary, or `?` where it is not there.
fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| "?".to_owned(), |v| format!("{v:.digits$}"))
}
