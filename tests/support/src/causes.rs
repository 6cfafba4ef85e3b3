//! Errors and their causes.

use std::error::Error;

/// Checks that no error of the chain includes the text of the next one.
///
/// # Panics
///
/// If one does.
pub fn assert_causes_once(error: &(dyn Error + 'static)) {
    let mut error = error;
    while let Some(cause) = error.source() {
        let (text, cause_text) = (error.to_string(), cause.to_string());
        assert!(!text.contains(&cause_text), "`{text}` includes its source `{cause_text}`");
        error = cause;
    }
}
