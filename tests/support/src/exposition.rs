//! Prometheus's text formats, as Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the samples of a text: series and value.
///
/// # Panics
///
/// If it has a line that is no sample.
#[must_use]
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Checks that the samples of each metric stand together, under one head.
///
/// # Panics
///
/// If they do not.
pub fn assert_metrics_together(text: &str) {
    let (mut heads, mut current) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            current = head.split(' ').next().expect("a name").to_owned();
            assert!(heads.insert(current.clone()), "{current} twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&current), "{line} is not of {current}");
        }
    }
}
