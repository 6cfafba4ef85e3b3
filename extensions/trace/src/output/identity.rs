//! Paths: whether two of them are one file, and how they are shown.

use std::fs;
use std::path::Path;

/// Whether two paths name the same existing file.
pub(super) fn are_same(one: &Path, two: &Path) -> bool {
    let same_path = || Some(fs::canonicalize(one).ok()? == fs::canonicalize(two).ok()?);
    same_inode(one, two).or_else(same_path).unwrap_or(false)
}

/// By the numbers that the file system gives files; `None` where it gives none, or a file does not exist.
#[cfg(unix)]
fn same_inode(one: &Path, two: &Path) -> Option<bool> {
    use std::os::unix::fs::MetadataExt;
    let (one, two) = (fs::metadata(one).ok()?, fs::metadata(two).ok()?);
    Some((one.dev(), one.ino()) == (two.dev(), two.ino()))
}

#[cfg(not(unix))]
fn same_inode(_: &Path, _: &Path) -> Option<bool> {
    None
}

/// A path for a message, with control characters escaped: a file's name has no effect on a terminal.
///
/// ```
/// assert_eq!(vrampool_trace::output::shown("a\u{1b}[2Jé.csv"), "a\\u{1b}[2Jé.csv");
/// ```
#[must_use]
pub fn shown(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for character in path.as_ref().to_string_lossy().chars() {
        match character.is_control() {
            true => text.extend(character.escape_debug()),
            false => text.push(character),
        }
    }
    text
}
