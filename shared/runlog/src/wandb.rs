//! The history of a run as W&B writes it beside an offline run: one object a step, with `_step`, `_timestamp` and
//! `_runtime` (seconds).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Point;

/// JSON lines by step; a value that JSON has no number for is text, as there.
#[must_use]
pub fn history(points: &[Point]) -> String {
    let seconds = |p: &Point| p.at.timestamp_micros() as f64 / 1e6;
    let start = points.iter().map(seconds).fold(f64::INFINITY, f64::min);
    let mut steps: BTreeMap<u32, Vec<&Point>> = BTreeMap::new();
    for point in points {
        steps.entry(point.step).or_default().push(point);
    }
    let mut text = String::new();
    for (step, points) in steps {
        let last = points.iter().map(|p| seconds(p)).fold(f64::NEG_INFINITY, f64::max);
        let mut line: Map<String, Value> = points.iter().map(|p| (p.name.clone(), number(p.value))).collect();
        line.insert("_step".into(), json!(step));
        line.insert("_timestamp".into(), json!(last));
        line.insert("_runtime".into(), json!(last - start));
        text.push_str(&Value::from(line).to_string());
        text.push('\n');
    }
    text
}

fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("NaN")
    } else {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    }
}
