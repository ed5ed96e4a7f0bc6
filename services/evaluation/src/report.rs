//! The report of a comparison: a JSON document, and one HTML page made from it that needs nothing from elsewhere.

use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use serde_json::{Value, json};

use crate::comparison::{ALPHA, FEWEST_PAIRS, MetricComparison, PairedComparison, Verdict};

/// Version of the JSON document.
pub const SCHEMA: &str = "plexforge.comparison/1";

const TEMPLATE: &str = include_str!("../templates/report.html");
/// Width of the bars of the page, in SVG units.
const BAR: f64 = 150.0;
/// Size of a picture of pairs, in SVG units, with its margin.
const PAIRS_WIDTH: f64 = 120.0;
const PAIRS_HEIGHT: f64 = 60.0;
const MARGIN: f64 = 8.0;

/// One evaluation as the report names it.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Id.
    pub evaluation_id: String,
    /// Name.
    pub evaluation: String,
    /// Model.
    pub model_id: String,
    /// Its name.
    pub model: String,
    /// Base of a merged model.
    pub base_id: Option<String>,
    /// Run that made it.
    pub run_id: Option<String>,
    /// Where the dialogues come from.
    pub dataset_id: String,
    /// Settings.
    pub spec: Value,
    /// Held-out loss measured in training.
    pub eval_loss: Option<f64>,
    /// Dialogues played.
    pub dialogues: u64,
    /// Injected text that came through, in all; must be 0.
    pub leaks: f64,
}

/// What both sides said in one dialogue.
#[derive(Debug, Clone, Serialize)]
pub struct Transcript {
    /// Record id.
    pub dialogue: String,
    /// Baseline.
    pub a: String,
    /// Candidate.
    pub b: String,
}

/// All of a report.
#[derive(Debug, Clone)]
pub struct Report {
    /// Name of the comparison.
    pub name: String,
    /// When it was asked for, RFC 3339.
    pub created_at: String,
    /// Baseline and candidate.
    pub sides: (Side, Side),
    /// The numbers.
    pub compared: PairedComparison,
    /// What was said.
    pub transcripts: Vec<Transcript>,
    /// What the reader should know.
    pub warnings: Vec<String>,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Report {
    /// A report; adds the warnings that follow from the numbers.
    #[must_use]
    pub fn new(
        name: String,
        created_at: String,
        sides: (Side, Side),
        compared: PairedComparison,
        transcripts: Vec<Transcript>,
        mut warnings: Vec<String>,
        seed: u64,
    ) -> Self {
        let n = compared.paired.len();
        if n < FEWEST_PAIRS {
            warnings.push(format!(
                "{n} paired dialogues cannot reach {ALPHA} in any metric (at least {FEWEST_PAIRS} must differ): read the \
                 numbers as a description, not as evidence."
            ));
        }
        for (side, which) in [(&sides.0, "baseline"), (&sides.1, "candidate")] {
            if side.leaks > 0.0 {
                warnings.push(format!("Injected text came through {} times in the {which}.", side.leaks));
            }
        }
        if !compared.dropped.is_empty() {
            warnings.push(format!("Dialogues of one side only, left out: {}.", compared.dropped.join(", ")));
        }
        Self { name, created_at, sides, compared, transcripts, warnings, seed }
    }

    /// The JSON document (finetune.md 8.5, the parts that exist).
    #[must_use]
    pub fn document(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "name": self.name,
            "created_at": self.created_at,
            "alpha": ALPHA,
            "seed": self.seed,
            "runs": { "a": self.sides.0, "b": self.sides.1 },
            "pairing": { "key": "dialogue", "n": self.compared.paired.len(), "dropped": self.compared.dropped },
            "metrics": self.compared.metrics,
            "transcripts": self.transcripts,
            "warnings": self.warnings,
        })
    }
}

/// The page.
///
/// # Errors
/// When the template does not fit the data: a fault of ours.
pub fn html(report: &Report) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("report.html", TEMPLATE)?;
    let metrics: Vec<Value> = report.compared.metrics.iter().map(row).collect();
    let page = minijinja::value::Serde(json!({
        "name": report.name, "created_at": report.created_at, "alpha": ALPHA, "seed": report.seed,
        "a": report.sides.0, "b": report.sides.1,
        "loss_a": report.sides.0.eval_loss.map(number), "loss_b": report.sides.1.eval_loss.map(number),
        "pairs": report.compared.paired.len(), "metrics": metrics,
        "transcripts": report.transcripts, "warnings": report.warnings,
        "bar": BAR, "pairs_width": PAIRS_WIDTH, "pairs_height": PAIRS_HEIGHT,
    }));
    environment.get_template("report.html")?.render(page)
}

/// One metric as the page shows it: numbers as text, pictures as coordinates.
fn row(metric: &MetricComparison) -> Value {
    let largest = metric.mean_a.abs().max(metric.mean_b.abs());
    let width = |mean: f64| if largest > 0.0 { BAR * mean.abs() / largest } else { 0.0 };
    let interval = metric.ci.as_ref().map_or_else(
        || format!("none: {}", metric.ci_missing.unwrap_or("not defined")),
        |ci| format!("{} to {}", number(ci.lo), number(ci.hi)),
    );
    let verdict = match metric.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Different => "different",
        Verdict::NoEvidence => "no evidence",
        Verdict::InsufficientData => "too few pairs",
    };
    json!({
        "title": metric.title, "unit": metric.unit, "n": metric.n, "n_eff": metric.n_eff,
        "mean_a": number(metric.mean_a), "mean_b": number(metric.mean_b),
        "width_a": width(metric.mean_a), "width_b": width(metric.mean_b),
        "diff": number(metric.mean_diff), "interval": interval,
        "p": format!("{:.3}", metric.wilcoxon.p), "p_adjusted": format!("{:.3}", metric.p_adjusted),
        "delta": format!("{:.2}", metric.cliffs_delta.delta), "label": metric.cliffs_delta.label,
        "verdict": verdict, "note": metric.note, "lines": lines(metric),
    })
}

/// One line from left (baseline) to right (candidate) for each pair, on a common scale.
fn lines(metric: &MetricComparison) -> Vec<Value> {
    let values = || metric.pairs.iter().flat_map(|p| [p.a, p.b]);
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let y = |value: f64| {
        let part = if high > low { (value - low) / (high - low) } else { 0.5 };
        PAIRS_HEIGHT - MARGIN - part * (PAIRS_HEIGHT - 2.0 * MARGIN)
    };
    let title = |p: &crate::comparison::Pair| format!("{}: {} to {}", p.dialogue, number(p.a), number(p.b));
    metric
        .pairs
        .iter()
        .map(|p| {
            json!({ "x1": MARGIN, "y1": y(p.a), "x2": PAIRS_WIDTH - MARGIN, "y2": y(p.b), "title": title(p) })
        })
        .collect()
}

/// Three significant digits, without exponents in the usual range.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.001 || v <= 0.0 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::comparison::compare;
    use domain::evaluation::DialogueScore;

    fn side(name: &str, loss: f64) -> Side {
        Side {
            evaluation_id: "eval_1".into(),
            evaluation: name.into(),
            model_id: "mdl_1".into(),
            model: format!("{name}-model"),
            base_id: None,
            run_id: None,
            dataset_id: "ds_1".into(),
            spec: json!({}),
            eval_loss: Some(loss),
            dialogues: 3,
            leaks: 0.0,
        }
    }

    fn scores(shift: f64, count: u32) -> Vec<DialogueScore> {
        let value = |i: u32, base: f64| base + shift * (1.0 + 0.1 * f64::from(i)) + 0.01 * f64::from(i);
        (0..count)
            .map(|i| DialogueScore {
                dialogue: format!("pharma-{i}"),
                metrics: [
                    ("silence_share".to_owned(), value(i, 0.4)),
                    ("response_gap_s".to_owned(), value(i, 1.2)),
                    ("frame_ms_p50".to_owned(), value(i, 6.0)),
                    ("injected_text_leak".to_owned(), 0.0),
                ]
                .into(),
            })
            .collect()
    }

    /// A report with hostile text in every place that text can come from.
    fn hostile(count: u32) -> Report {
        let compared = compare(&scores(0.0, count), &scores(-0.2, count), 1);
        let transcripts = vec![Transcript {
            dialogue: "pharma-0".into(),
            a: "<script>alert(1)</script> & \"quotes\"".into(),
            b: "Good morning, this is the pharmacy.".into(),
        }];
        let sides = (side("<b>base</b>", 7.1), side("tuned", 5.2));
        Report::new(
            "base vs <i>tuned</i>".into(),
            "2026-03-01T10:00:00Z".into(),
            sides,
            compared,
            transcripts,
            vec![],
            1,
        )
    }

    #[test]
    fn text_is_escaped_and_the_page_needs_nothing_from_elsewhere() -> anyhow::Result<()> {
        let page = html(&hostile(3))?;
        assert!(page.contains("&lt;script&gt;alert(1)"), "escaped transcript");
        for needle in ["<script", "<b>base", "<i>tuned", "src=", "href=\"http", "@import", "url("] {
            assert!(!page.contains(needle), "{needle} in the page");
        }
        assert!(page.contains("cannot reach 0.05"), "the warning about few pairs");
        assert!(page.contains("<svg") && page.contains("5.200"), "pictures and losses");
        Ok(())
    }

    #[test]
    fn the_document_has_the_fields_of_the_specification() {
        let document = hostile(8).document();
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["pairing"]["n"], 8);
        let gap = document["metrics"]
            .as_array()
            .and_then(|m| m.iter().find(|m| m["name"] == "response_gap_s"))
            .expect("the metric");
        assert_eq!(gap["verdict"], "better");
        for field in [
            "n_eff",
            "mean_diff",
            "median_diff",
            "hl_shift",
            "ci",
            "wilcoxon",
            "p_adjusted",
            "cliffs_delta",
            "rank_biserial",
        ] {
            assert!(!gap[field].is_null(), "{field}");
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in
            [(0.0, "0.000"), (0.12345, "0.123"), (12.345, "12.3"), (1234.5, "1234"), (1e-5, "1.0e-5")]
        {
            assert_eq!(number(value), text);
        }
    }
}
