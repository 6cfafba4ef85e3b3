//! Fitted classes as tables.

use super::row::{Class, Rule};
use crate::table::{human, or_none, percent, table};

/// One line a class, and whether it was learned.
pub(crate) fn of_classes(classes: &[Class]) -> String {
    let columns = ["class", "", "sizes", "requests", "share", "live at once", "held", "padding"];
    let rows = classes.iter().map(|class| {
        [
            human(class.class),
            if class.learned { String::new() } else { "general".into() },
            class.sizes.to_string(),
            class.requests.to_string(),
            percent(class.share),
            class.peak_buffers.to_string(),
            or_none(class.held, human),
            or_none(class.padding, percent),
        ]
    });
    table(Some(columns), 1..2, rows)
}

/// One line a rule.
pub(crate) fn of_rules(rules: &[Rule]) -> String {
    let columns = ["rule", "classes", "padding", "of all", "held", "held/requested"];
    let rows = rules.iter().map(|rule| {
        [
            rule.size_classes.clone(),
            rule.classes.to_string(),
            human(rule.padding_bytes),
            or_none(rule.padding, percent),
            or_none(rule.held, human),
            or_none(rule.held_over_requested, |ratio| format!("{ratio:.2}")),
        ]
    });
    table(Some(columns), 0..1, rows)
}
