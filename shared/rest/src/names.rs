//! Names of resources: they become file names and path segments.

use crate::Problem;
use domain::run::FieldFault;

const LONGEST: usize = 100;

/// What is wrong with a name.
fn fault(name: &str) -> Option<String> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let good = plain && starts && name.len() <= LONGEST;
    (!good).then(|| {
        let shown: String = name.chars().take(LONGEST).collect();
        format!("must be 1 to {LONGEST} of A-Z a-z 0-9 . _ - and start with a letter or digit, not {shown:?}")
    })
}

/// Checks a name together with the faults of the rest of the body.
pub fn check(name: &str, mut others: Vec<FieldFault>) -> Result<(), Problem> {
    if let Some(detail) = fault(name) {
        others.insert(0, FieldFault { pointer: "/name".into(), detail });
    }
    if others.is_empty() { Ok(()) } else { Err(Problem::fields(others)) }
}

/// Prefixes the pointers of a nested specification.
pub fn below(prefix: &str, faults: Vec<FieldFault>) -> Vec<FieldFault> {
    faults
        .into_iter()
        .map(|f| FieldFault { pointer: format!("{prefix}{}", f.pointer), detail: f.detail })
        .collect()
}

/// Turns "there is no such row" for a reference in the body into a fault of that field.
pub fn reference<T>(pointer: &str, found: store::Result<T>) -> Result<T, Problem> {
    found.map_err(|error| match error {
        store::StoreError::NotFound { noun, key } => {
            let shown: String = key.chars().take(80).collect();
            Problem::field(pointer, format!("there is no {noun} {shown:?}"))
        }
        other => other.into(),
    })
}

/// A dataset named in the body: it must exist (422) and be published (409).
pub fn published(
    pointer: &str,
    found: store::Result<store::datasets::Dataset>,
) -> Result<store::datasets::Dataset, Problem> {
    let dataset = reference(pointer, found)?;
    if dataset.published_at.is_none() {
        let detail = format!("dataset {} is not published yet", dataset.id);
        return Err(Problem::new(domain::ErrorCode::Conflict, detail));
    }
    Ok(dataset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_folder_are_refused() {
        for good in ["a", "demo-2", "A.b_c", &"x".repeat(100)] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a\\b", "a b", "ä", "a\0", &"x".repeat(101)] {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }
}
