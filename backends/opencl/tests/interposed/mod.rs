//! A library that is loaded before the real one, and replaces some calls.

use std::path::PathBuf;
use std::process::Command;
use vrampool_test_support::{passed, test_again};

/// A folder with the library.
pub(crate) struct Interposed {
    folder: PathBuf,
}

impl Interposed {
    /// Compiles `source`. `None`, and a line that says so, where that cannot be done here.
    pub(crate) fn build(name: &str, source: &str) -> Option<Self> {
        if Command::new("cc").arg("--version").output().is_err() {
            vrampool_test_support::skipped("there is no C compiler");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("vrampool-opencl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let library = Self { folder };
        let file = library.folder.join("library.c");
        std::fs::write(&file, source).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-w", "-Wl,--no-as-needed", "-o"]).arg(library.path()).arg(&file);
        let built = compiler.args(["-l:libOpenCL.so.1", "-ldl"]).output().expect("it starts");
        if !built.status.success() {
            // The linker does not know where the real library is.
            vrampool_test_support::skipped(format_args!("{}", String::from_utf8_lossy(&built.stderr)));
            return None;
        }
        Some(library)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("libOpenCL.so")
    }

    /// Runs an ignored test of this program in a process that has the library, and returns what it prints.
    pub(crate) fn run(&self, test: &str, variable: Option<&str>) -> String {
        let variable = variable.map(|variable| (variable, "1"));
        passed(test_again(test).env("OPENCL_DYLIB_PATH", self.path()).envs(variable))
    }
}

impl Drop for Interposed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
