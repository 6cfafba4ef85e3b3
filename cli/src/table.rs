//! Tables, bytes and shares as the program prints them.

use bytesize::ByteSize;
use std::ops::Range;

/// Between two columns.
const GAP: &str = "  ";

/// The end of a cell that is shortened.
const CUT: &str = "...";

/// The columns of the narrowest terminal.
const MOST: usize = 80;

/// A table as text, within 80 columns: cells of the widest column of words are shortened as necessary. The columns
/// `words` are aligned on the left, the others on the right. Without a header the line below it is missing, too.
#[must_use]
pub fn table<const N: usize>(
    header: Option<[&str; N]>,
    words: Range<usize>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table_within(MOST, header, words, rows)
}

/// As [`table`], within so many columns.
pub(crate) fn table_within<const N: usize>(
    most: usize,
    header: Option<[&str; N]>,
    words: Range<usize>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut lines: Vec<_> = header.into_iter().map(|header| header.map(String::from)).collect();
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(width);
    let excess = (widths.iter().sum::<usize>() + GAP.len() * (N - 1)).saturating_sub(most);
    let widest = words.clone().max_by_key(|column| widths[*column]).unwrap_or_default();
    if excess > 0 && widths[widest] > excess + CUT.len() {
        widths[widest] -= excess;
        for line in &mut lines {
            if line[widest].chars().count() > widths[widest] {
                let kept = line[widest].chars().take(widths[widest] - CUT.len());
                line[widest] = kept.collect::<String>() + CUT;
            }
        }
    }
    let mut texts: Vec<_> = lines
        .iter()
        .map(|line| {
            let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                if words.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        })
        .collect();
    if header.is_some() {
        texts.insert(1, "-".repeat(widths.iter().sum::<usize>() + GAP.len() * (N - 1)));
    }
    texts.join("\n")
}

/// Bytes in the largest unit that leaves at least one.
#[must_use]
pub fn human(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// A share from 0 to 1.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The ratio of two figures, if the second is not 0.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A figure, or `-` without one.
pub(crate) fn or_none<T>(figure: Option<T>, text: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "-".into(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_under_their_header() {
        let rows = [["é".into(), "1".into()], ["ab".into(), "1234567".into()]];
        let text = table(Some(["name", "bytes"]), 0..1, rows);
        assert_eq!(text, "name    bytes\n-------------\né           1\nab    1234567");
        assert_eq!(table(None, 0..1, [["a".into(), "12".into()]]), "a  12");
        let long = table(None, 0..1, [["é".repeat(100), "1234567".into()], ["a".into(), "1".into()]]);
        let lines: Vec<_> = long.lines().map(|line| line.chars().count()).collect();
        assert_eq!((lines, long.contains("é...  1234567")), (vec![80, 80], true), "{long}");
    }
}
