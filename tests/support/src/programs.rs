//! The program that a test runs.

use std::process::{Command, Output};

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
    texts(command.output().expect("the program starts"))
}

/// Runs it, and interrupts it once it listens for signals. Returns what [`outcome`] does.
///
/// # Panics
///
/// As [`outcome`]; also on a system that does not list the signals that a process listens for.
#[cfg(target_os = "linux")]
pub fn interrupted(command: &mut Command) -> (Option<i32>, String, String) {
    use std::process::Stdio;
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t").map(str::to_owned));
        u64::from_str_radix(&caught.expect("signals"), 16).expect("a mask") & 1 << 1 > 0
    };
    while !listens() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill").success());
    texts(child.wait_with_output().expect("it ends"))
}

fn texts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}
