//! What reaches the terminal: text for people, one JSON document for programs, bars only where somebody watches.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use client::ClientError;

/// How to speak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    bars: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, bars: !json && std::io::stderr().is_terminal() }
    }

    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// A line on stdout. A closed pipe is the reader's wish, not an error.
    pub(crate) fn line(self, text: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// A line on stderr: for people, beside the result.
    pub(crate) fn note(self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// The result: a resource.
    pub(crate) fn show(self, view: &impl Serialize) {
        let value = serde_json::to_value(view).unwrap_or_default();
        if self.json {
            return self.line(&format!("{value:#}"));
        }
        let Value::Object(fields) = &value else { return self.line(&cell(&value)) };
        let width = fields.keys().map(String::len).max().unwrap_or(0);
        for (name, field) in fields.iter().filter(|(_, field)| !field.is_null()) {
            self.line(&format!("{name:width$}  {}", cell(field)));
        }
    }

    /// The result: rows, of which people see these columns.
    pub(crate) fn table(self, columns: &[&str], rows: &[impl Serialize]) {
        let rows: Vec<Value> = rows.iter().map(|row| serde_json::to_value(row).unwrap_or_default()).collect();
        if self.json {
            return self.line(&format!("{:#}", Value::from(rows)));
        }
        let cells: Vec<Vec<String>> = std::iter::once(columns.iter().map(|c| c.to_uppercase()).collect())
            .chain(rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()))
            .collect();
        let widths: Vec<usize> = (0..columns.len())
            .map(|i| cells.iter().map(|row: &Vec<String>| row[i].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &cells {
            let line: Vec<String> = row.iter().zip(&widths).map(|(text, &w)| format!("{text:w$}")).collect();
            self.line(line.join("  ").trim_end());
        }
    }

    /// The end of a command that did not work.
    pub(crate) fn error(self, error: &ClientError) {
        if self.json {
            let document = json!({ "error": {
                "code": error.code(), "detail": error.to_string(), "exit_code": error.exit_code() as u8,
            } });
            self.note(&format!("{document:#}"));
        } else {
            self.note(&format!("error: {error}"));
        }
    }

    /// A bar on stderr with a label; silent without a terminal.
    pub(crate) fn bar(self, label: &str) -> ProgressBar {
        let target = if self.bars { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        let style = ProgressStyle::with_template("  {prefix:12} {bar:28} {pos}/{len} {elapsed:>4} {msg}")
            .expect("the template is a constant")
            .progress_chars("##-");
        bar.set_style(style);
        bar.set_prefix(label.to_owned());
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
        bar
    }
}

/// A JSON value in one line for people.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.contains_key("done") && fields.contains_key("total") => {
            format!(
                "{}/{} {}",
                fields["done"],
                fields["total"],
                fields.get("unit").map_or("", |u| u.as_str().unwrap_or(""))
            )
        }
        other => shortened(other.to_string()),
    }
}

/// A line that a terminal can hold.
pub(crate) fn shortened(text: String) -> String {
    const LONGEST: usize = 160;
    if text.chars().count() <= LONGEST {
        return text;
    }
    let kept: String = text.chars().take(LONGEST).collect();
    format!("{kept}… (all with --json)")
}

/// A number for people; the rest of a JSON value as it is.
pub(crate) fn rounded(value: &Value) -> Value {
    match value.as_f64() {
        Some(number) if !value.is_u64() && !value.is_i64() => json!(format!("{number:.3}")),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_short_for_people() {
        assert_eq!(cell(&json!({"done": 1, "total": 3, "unit": "steps"})), "1/3 steps");
        assert_eq!(cell(&json!("x")), "x");
        assert_eq!(cell(&Value::Null), "-");
        assert!(cell(&json!(vec![0; 500])).chars().count() < 200);
        assert_eq!((rounded(&json!(0.12345)), rounded(&json!(7))), (json!("0.123"), json!(7)));
    }
}
