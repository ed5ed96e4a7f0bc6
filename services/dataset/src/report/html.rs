//! The report as one page: no scripts, nothing loaded.

use std::fmt::Write;

use super::svg::{bars, histogram, number};
use super::{Measured, Report, Spread};
use crate::import::finding::Findings;

const STYLE: &str = "\
:root{--ink:#1c2430;--soft:#5d6b7a;--line:#d5dce3;--back:#f6f8fa;--bar:#2a6fb0;--bad:#b3261e}\
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.45 system-ui,sans-serif}\
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}h1{font-size:26px;margin:0 0 4px}\
h2{font-size:18px;margin:34px 0 10px}p.sub{color:var(--soft);margin:0 0 18px}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px}\
.tile,figure,table,ul.warn{background:#fff;border:1px solid var(--line);border-radius:8px}\
.tile{padding:10px 14px}.tile b{display:block;font-size:22px}.tile span{color:var(--soft);font-size:13px}\
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(320px,1fr));gap:12px}\
figure{margin:0;padding:12px 14px}figcaption{font-weight:600}figure small{color:var(--soft);display:block;margin-bottom:4px}\
svg{width:100%;height:auto;display:block}svg rect{fill:var(--bar)}svg rect.back{fill:#e8edf2}\
svg path{fill:none;stroke:var(--soft)}svg text{font-size:11px;fill:var(--soft)}svg text.y{text-anchor:end}\
svg text.none{text-anchor:middle}\
table{border-collapse:collapse;width:100%;overflow:hidden}th,td{text-align:left;padding:6px 12px;border-bottom:1px solid var(--line);vertical-align:top}\
th{font-size:13px;color:var(--soft)}td.n{text-align:right;font-variant-numeric:tabular-nums}\
ul.warn{margin:0;padding:10px 14px 10px 34px}ul.warn li{margin:2px 0}code{font-size:13px;overflow-wrap:anywhere}\
details{background:#fff;border:1px solid var(--line);border-radius:8px;margin:0 0 8px;padding:8px 14px}summary{cursor:pointer}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0 0;font-size:13px}.bad{color:var(--bad)}";

/// Text inside of HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The page of a report.
#[must_use]
pub fn page(report: &Report) -> String {
    let name = escape(&report.name);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>Dataset {name}</title><style>{STYLE}</style></head><body><main>\
         <h1>Dataset {name}</h1>"
    );
    match &report.summary {
        Some(summary) => {
            let _ =
                write!(out, "<p class=\"sub\">content <code>{}</code></p>", escape(&summary.content_sha256));
        }
        None => out.push_str("<p class=\"sub bad\">The import was refused; nothing was published.</p>"),
    }
    if let (Some(summary), Some(measured)) = (&report.summary, &report.measured) {
        tiles(
            &mut out,
            &[
                (number(measured.hours), "hours"),
                (summary.train_dialogues.to_string(), "dialogues for training"),
                (summary.eval_dialogues.to_string(), "held out"),
                (summary.rejected_dialogues.to_string(), "left out"),
                (summary.words.to_string(), "words"),
                (summary.injections.to_string(), "injections"),
            ],
        );
    }
    if !report.warnings.is_empty() {
        out.push_str("<h2>To look at</h2><ul class=\"warn\">");
        for warning in &report.warnings {
            let _ = write!(out, "<li>{}</li>", escape(warning));
        }
        out.push_str("</ul>");
    }
    if let Some(measured) = &report.measured {
        plots(&mut out, measured);
        tokens(&mut out, measured);
    }
    if !report.prompts.is_empty() {
        out.push_str("<h2>Briefs</h2><p class=\"sub\">What the agent is told. Nothing in them should speak of a text that is to be written.</p>");
        for prompt in &report.prompts {
            let (id, text) = (escape(&prompt.id), escape(&prompt.text));
            let _ = write!(out, "<details><summary><code>{id}</code></summary><pre>{text}</pre></details>");
        }
    }
    if let Some(findings) = &report.import {
        import(&mut out, findings);
    }
    out.push_str("</main></body></html>\n");
    out
}

fn tiles(out: &mut String, tiles: &[(String, &str)]) {
    out.push_str("<div class=\"tiles\">");
    for (value, label) in tiles {
        let _ = write!(out, "<div class=\"tile\"><b>{}</b><span>{label}</span></div>", escape(value));
    }
    out.push_str("</div>");
}

fn plot(out: &mut String, title: &str, unit: &str, spread: &Spread) {
    // One bar over the whole width would look like a spread.
    let alike = spread.count > 1 && spread.min >= spread.max;
    let small = if spread.count == 0 {
        "no values".to_owned()
    } else if alike {
        format!("all {} are {} {unit}", spread.count, number(spread.min))
    } else {
        format!(
            "median {}, 80 % in {} … {} {unit}",
            number(spread.median),
            number(spread.p10),
            number(spread.p90)
        )
    };
    let picture = if alike { String::new() } else { histogram(&spread.histogram, unit, title) };
    let _ = write!(out, "<figure><figcaption>{title}</figcaption><small>{small}</small>{picture}</figure>");
}

fn plots(out: &mut String, m: &Measured) {
    out.push_str("<h2>Dialogues</h2><div class=\"plots\">");
    plot(out, "Duration", "s", &m.duration_s);
    plot(out, "Turns", "", &m.turns);
    plot(out, "Agent, words a second of speech", "/s", &m.agent_words_per_s);
    plot(out, "User, words a second of speech", "/s", &m.user_words_per_s);
    out.push_str("</div><h2>Taking turns</h2><div class=\"plots\">");
    plot(out, "Gap, agent after user", "s", &m.gap_s);
    plot(out, "Overlap, share of the time", "", &m.overlap_share);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let rows = [
        ("negative gaps".to_owned(), m.negative_gap_share, percent(m.negative_gap_share)),
        ("interpolated".to_owned(), m.estimated_share, percent(m.estimated_share)),
        ("empty turns".to_owned(), m.unaligned_turn_share, percent(m.unaligned_turn_share)),
    ];
    let _ = write!(
        out,
        "<figure><figcaption>Shares</figcaption><small>agent begins before the user ends; words with interpolated times; turns \
         without any word</small>{}</figure></div>",
        bars(&rows, "Shares")
    );
    injections(out, m);
    out.push_str("<h2>Levels</h2><div class=\"plots\">");
    plot(out, "Agent (left)", "dBFS", &m.agent_dbfs);
    plot(out, "User (right)", "dBFS", &m.user_dbfs);
    let _ = write!(
        out,
        "<figure><figcaption>Clipping</figcaption><small>dialogues with samples at full scale</small><div class=\"tile\" \
         style=\"border:0;padding:0\"><b>{}</b></div></figure></div>",
        m.clipped_dialogues
    );
}

fn injections(out: &mut String, m: &Measured) {
    let all = &m.injections;
    let share = |n: u64| if all.total == 0 { 0.0 } else { n as f64 / all.total as f64 };
    let row = |name: &str, n: u64| (name.to_owned(), share(n), format!("{n} ({:.0} %)", 100.0 * share(n)));
    let rows = [row("proactive", all.proactive), row("reactive", all.reactive)];
    out.push_str("<h2>Injections</h2><div class=\"plots\">");
    plot(out, "Injections of a dialogue", "", &all.per_dialogue);
    plot(out, "Place in the dialogue, 0 to 1", "", &all.place);
    let _ = write!(
        out,
        "<figure><figcaption>Placement</figcaption><small>in a turn of the user, or after one of the agent</small>{}</figure></div>",
        bars(&rows, "Placement")
    );
}

fn tokens(out: &mut String, m: &Measured) {
    out.push_str("<h2>Tokens and windows</h2>");
    let Some(t) = &m.tokens else {
        out.push_str("<p>Not measured: no model was registered when the dataset was published, and so there was no tokenizer.</p>");
        return;
    };
    out.push_str("<div class=\"plots\">");
    plot(out, "Text tokens without a frame, share", "", &t.dropped_share);
    let rows: Vec<(String, f64, String)> = t
        .windows
        .iter()
        .map(|w| {
            let text = format!("{:.0} % of {}", 100.0 * w.start_share, w.windows);
            (format!("{} s", number(w.seconds)), w.start_share, text)
        })
        .collect();
    let _ = write!(
        out,
        "<figure><figcaption>Windows that begin with the conversation</figcaption><small>by length of a sample, prompt \
         included; the others teach the model to begin anywhere</small>{}</figure></div>",
        bars(&rows, "Window starts")
    );
    let _ = write!(
        out,
        "<p>Tokenizer of model <code>{}</code>: {} text tokens, {} without a frame ({} dialogues above 2 %, {} above 10 %); {} \
         context tokens, {} frames deferred, {} inserted.</p>",
        escape(&t.tokenizer),
        t.total,
        t.dropped,
        t.warned_dialogues,
        t.failed_dialogues,
        t.context_tokens,
        t.deferred_frames,
        t.inserted_frames
    );
}

fn import(out: &mut String, findings: &Findings) {
    if !findings.faults.is_empty() {
        let _ = write!(
            out,
            "<h2 class=\"bad\">Faults ({})</h2><table><tr><th>Where<th>Code<th>What",
            findings.faults.len()
        );
        for fault in &findings.faults {
            let line = fault.line.map_or(String::new(), |l| format!(":{l}"));
            let _ = write!(
                out,
                "<tr><td><code>{}{line}</code><td><code>{}</code><td>{}",
                escape(&fault.file),
                escape(&fault.code),
                escape(&fault.detail)
            );
        }
        out.push_str("</table>");
    }
    for (title, remarks) in
        [("Repairs of the import", &findings.repairs), ("Remarks of the import", &findings.warnings)]
    {
        if remarks.is_empty() {
            continue;
        }
        let _ = write!(out, "<h2>{title}</h2><table><tr><th>What<th>Count<th>For example");
        for (code, remark) in remarks {
            let examples: Vec<String> = remark.examples.iter().map(|e| escape(e)).collect();
            let _ = write!(
                out,
                "<tr><td><code>{}</code><td class=\"n\">{}<td><code>{}</code>",
                escape(code),
                remark.count,
                examples.join("<br>")
            );
        }
        out.push_str("</table>");
    }
}
