//! Fitted classes as tables.

use super::row::{Class, Rule};
use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};

/// One line a class, and whether it was learned.
pub(crate) fn of_classes(classes: &[Class]) -> Table {
    let columns = ["class", "", "sizes", "requests", "share", "live at once", "held", "padding"];
    let rows = classes.iter().map(|class| {
        [
            class.class.to_string(),
            if class.learned { String::new() } else { "general".into() },
            class.sizes.to_string(),
            class.requests.to_string(),
            percent(Some(class.share)),
            class.peak_buffers.to_string(),
            human(class.held),
            percent(class.padding),
        ]
    });
    table(columns, rows, 1..2)
}

/// One line a rule.
pub(crate) fn of_rules(rules: &[Rule]) -> Table {
    let columns = ["rule", "classes", "padding", "padding/req.", "held", "held/req."];
    let rows = rules.iter().map(|rule| {
        [
            rule.size_classes.clone(),
            rule.classes.to_string(),
            human(Some(rule.padding_bytes)),
            percent(rule.padding),
            human(rule.held),
            rule.held_over_requested.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ]
    });
    table(columns, rows, 0..1)
}

/// Those of the columns `words` on the left, the rest on the right.
fn table<const N: usize>(
    columns: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    words: std::ops::Range<usize>,
) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(columns).add_rows(rows);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(place, _)| !words.contains(place)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn human(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), |bytes| ByteSize(bytes).to_string())
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}
