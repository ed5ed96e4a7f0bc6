//! Small plots as inline SVG.

use std::fmt::Write;

use super::numbers::Histogram;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 34.0;
const BOTTOM: f64 = 20.0;
const TOP: f64 = 8.0;

/// Bars of a histogram with its axis.
pub(super) fn histogram(data: &Histogram, unit: &str, label: &str) -> String {
    let most = data.counts.iter().copied().max().unwrap_or(0);
    let mut out = open(label);
    if most == 0 {
        let _ = write!(
            out,
            "<text class=\"none\" x=\"{}\" y=\"{}\">no values</text></svg>",
            WIDTH / 2.0,
            HEIGHT / 2.0
        );
        return out;
    }
    let (room, height) = (WIDTH - LEFT - 6.0, HEIGHT - BOTTOM - TOP);
    let bar = room / data.counts.len() as f64;
    for (i, &count) in data.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let tall = (height * count as f64 / most as f64).max(1.0);
        let from = data.from + data.width * i as f64;
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{} to {} {unit}: {count}</title></rect>",
            LEFT + bar * i as f64,
            TOP + height - tall,
            (bar - 1.0).max(1.0),
            number(from),
            number(from + data.width)
        );
    }
    let base = TOP + height;
    let _ = write!(out, "<path d=\"M{LEFT} {TOP}V{base}H{}\"/>", WIDTH - 6.0);
    let _ = write!(out, "<text class=\"y\" x=\"{}\" y=\"{}\">{most}</text>", LEFT - 4.0, TOP + 8.0);
    let _ = write!(out, "<text class=\"y\" x=\"{}\" y=\"{base}\">0</text>", LEFT - 4.0);
    let ticks = data.counts.len().clamp(1, 4);
    for tick in 0..=ticks {
        let at = data.counts.len() as f64 * tick as f64 / ticks as f64;
        let anchor = if tick == 0 {
            "start"
        } else if tick == ticks {
            "end"
        } else {
            "middle"
        };
        let _ = write!(
            out,
            "<text style=\"text-anchor:{anchor}\" x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT + bar * at,
            HEIGHT - 6.0,
            number(data.from + data.width * at)
        );
    }
    out.push_str("</svg>");
    out
}

/// One horizontal bar per row: name, share 0 to 1, text behind it.
pub(super) fn bars(rows: &[(String, f64, String)], label: &str) -> String {
    let height = 26.0 * rows.len() as f64 + 6.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        super::html::escape(label)
    );
    for (i, (name, share, text)) in rows.iter().enumerate() {
        let y = 26.0 * i as f64 + 6.0;
        let room = WIDTH - 90.0 - 100.0;
        let _ =
            write!(out, "<text class=\"y\" x=\"84\" y=\"{}\">{}</text>", y + 13.0, super::html::escape(name));
        let _ = write!(out, "<rect class=\"back\" x=\"90\" y=\"{y}\" width=\"{room}\" height=\"18\"/>");
        let _ = write!(
            out,
            "<rect x=\"90\" y=\"{y}\" width=\"{:.1}\" height=\"18\"/>",
            room * share.clamp(0.0, 1.0)
        );
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\">{}</text>",
            96.0 + room,
            y + 13.0,
            super::html::escape(text)
        );
    }
    out.push_str("</svg>");
    out
}

fn open(label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        super::html::escape(label)
    )
}

/// A number for an axis: no more digits than it needs.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if matches!(text, "-0" | "") { "0".into() } else { text.to_owned() }
}
