//! What a test needs and a machine may lack.

use std::path::PathBuf;

/// Where a program is. A test without it is skipped with a line that says so, and fails where
/// `VRAMPOOL_REQUIRE`, a list separated by commas, names it.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|required| required == name),
            "VRAMPOOL_REQUIRE names {name}, and it is not here"
        );
        eprintln!("skipped: {name} is not installed");
    }
    found
}
