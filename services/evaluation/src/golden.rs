//! Golden statistics for the tests.

use serde_json::Value;

pub(crate) fn json(file: &str) -> Value {
    testkit::golden_json(&format!("finetune/e_stats/{file}")).expect("golden data")
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

/// Both sides of a data set.
pub(crate) fn pair(name: &str) -> (Vec<f64>, Vec<f64>) {
    let data = &json("wilcoxon.json")["data"][name];
    (numbers(&data["x"]), numbers(&data["y"]))
}

pub(crate) fn differences(name: &str) -> Vec<f64> {
    let (x, y) = pair(name);
    x.iter().zip(&y).map(|(x, y)| y - x).collect()
}

#[track_caller]
pub(crate) fn close(what: &str, got: f64, want: &Value, tolerance: f64) {
    let want = want.as_f64().expect("a number");
    assert!((got - want).abs() <= tolerance, "{what}: got {got}, want {want}");
}
