//! Fitted classes as a table.

use super::row::Class;
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
