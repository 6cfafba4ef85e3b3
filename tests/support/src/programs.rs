//! The program that a test runs.

use std::process::Command;

/// A command of this program. Without the variable Mesa's drivers write to standard error.
#[must_use]
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command
}

/// Runs it. Returns its exit code, standard output and standard error.
///
/// # Panics
///
/// If it does not start, or prints other than UTF-8.
pub fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}
