//! What somebody may have meant by a name that does not exist.

/// The nearest of `known`, when it is near enough to have been meant.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let limit = (name.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|k| (distance(&lower, &k.to_lowercase()), k))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Adds the nearest known name to a message of serde about an unknown field or variant; others stay as they are.
#[must_use]
pub fn with_hint(message: &str) -> String {
    let is_about_a_name =
        ["unknown field `", "unknown variant `"].iter().any(|start| message.contains(start));
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (is_about_a_name, quoted.next()) {
        (true, Some(name)) => match nearest(name, quoted) {
            Some(meant) => format!("{message}; did you mean `{meant}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

/// Letters to add, remove or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut left_above = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1).min(row[j] + 1).min(left_above + usize::from(x != *y));
            left_above = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_training_key_is_refused_with_the_nearest_one() {
        let wrong = serde_json::from_str::<crate::run::TrainingSpec>(r#"{"max_step": 3}"#);
        let message = with_hint(&wrong.expect_err("the key does not exist").to_string());
        assert!(message.ends_with("did you mean `max_steps`?"), "{message}");
        let wrong = serde_json::from_str::<crate::run::TrainingSpec>(r#"{"optim": {"weight-decay": 3}}"#);
        let message = with_hint(&wrong.expect_err("the key does not exist").to_string());
        assert!(message.ends_with("did you mean `weight_decay`?"), "{message}");
    }

    #[test]
    fn a_name_far_from_all_others_gets_no_hint() {
        assert_eq!(with_hint("unknown field `zebra`, expected `lr`"), "unknown field `zebra`, expected `lr`");
        assert_eq!(with_hint("missing field `a`"), "missing field `a`");
    }
}
