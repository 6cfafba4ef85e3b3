//! Shared libraries that a test compiles from C.

use crate::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for libraries, which is removed with them when this is dropped.
#[derive(Debug)]
pub struct CLibraries(PathBuf);

impl CLibraries {
    /// `None`, and the test is skipped, where there is no compiler.
    ///
    /// # Panics
    ///
    /// If the folder cannot be created.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        if Command::new("cc").arg("--version").output().is_err() {
            skipped("there is no C compiler");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("vrampool-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Some(Self(folder))
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Compiles a file of the folder, linked with these libraries.
    ///
    /// # Errors
    ///
    /// The compiler's messages.
    ///
    /// # Panics
    ///
    /// If the compiler does not start.
    pub fn compile(&self, file: &str, source: &str, libraries: &[&str]) -> Result<PathBuf, String> {
        let (library, text) = (self.0.join(file), self.0.join("library.c"));
        fs::write(&text, source).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-w", "-Wl,--no-as-needed", "-o"]).arg(&library).arg(&text);
        let built = compiler.args(libraries).output().expect("it starts");
        match built.status.success() {
            true => Ok(library),
            false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
        }
    }
}

impl Drop for CLibraries {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
