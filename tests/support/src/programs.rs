//! The programs that a test runs; one of them is the test's own.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The variable of a process that [`test_again`] starts. The library warns of those that begin as its own.
const INSIDE: &str = "TEST_OF_VRAMPOOL";

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

/// Runs it. Returns what it prints.
///
/// # Panics
///
/// If it fails, or writes to standard error.
pub fn printed(command: &mut Command) -> String {
    let (code, out, errors) = outcome(command);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{command:?}");
    out
}

/// As [`printed`], of a program that prints lines of JSON.
///
/// # Panics
///
/// As [`printed`]; also if a line is other than JSON.
pub fn rows(command: &mut Command) -> Vec<Value> {
    printed(command).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Runs it. Returns its error.
///
/// # Panics
///
/// If it ends with another exit code, prints anything, or panics.
pub fn failed(command: &mut Command, code: i32) -> String {
    let (found, out, errors) = outcome(command);
    assert_eq!((found, out.as_str()), (Some(code), ""), "{command:?}: {errors}");
    assert!(!errors.contains("panicked"), "{command:?}: {errors}");
    errors
}

/// Whether [`test_again`] started this process.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A separate process that runs the test of this name in this program, even an ignored one.
///
/// # Panics
///
/// If this program has no path.
#[must_use]
pub fn test_again(test: &str) -> Command {
    of_test(Command::new(this_program()), test)
}

/// As [`test_again`], after commands of the shell's, such as `ulimit`.
///
/// # Panics
///
/// If this program has no path.
#[must_use]
pub fn test_behind(commands: &str, test: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{commands} && exec \"$@\""), "sh"]).arg(this_program());
    of_test(command, test)
}

/// Instructions that this program takes with these arguments, by valgrind; `None` where there is no valgrind.
#[must_use]
pub fn instructions(arguments: &[String]) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this_program())
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("its own path")
}

fn of_test(mut command: Command, test: &str) -> Command {
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(INSIDE, "1");
    command
}

/// Runs a command of [`test_again`]. Returns what it prints.
///
/// # Panics
///
/// If the test does not pass.
pub fn passed(command: &mut Command) -> String {
    let (code, text, errors) = outcome(command);
    // A signal has no code.
    assert!(code == Some(0) && text.contains("1 passed"), "{command:?}: {code:?}\n{text}{errors}");
    text
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
