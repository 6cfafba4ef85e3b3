//! Paths as text for messages.

use std::path::Path;

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
