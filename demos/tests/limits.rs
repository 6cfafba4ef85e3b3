//! Errors of the program if a limit of the process leaves it no memory: the request, and the action to take.
#![cfg(target_os = "linux")]

use std::process::{Command, Output};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");

/// Runs the program after a command of the shell.
fn output(limit: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_vrampool-demos")]);
    command.args(arguments).output().expect("it starts")
}

/// The program's error behind a command of the shell's.
fn error(limit: &str, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = output(limit, arguments);
    let error = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(1), "{error}");
    for bare in ["failed with code", "Drawing backend error", "require 0 bytes", "panicked"] {
        assert!(!error.contains(bare), "{error}");
    }
    error
}

#[test]
fn a_limit_on_the_address_space_is_named() {
    for source in ["virtual", "arena"] {
        let arguments = ["replay", TRACE, "--backend", "host", "--source", source, "--limit", "1TiB"];
        let error = error("ulimit -v 400000", &arguments);
        assert!(error.contains("out of memory") && error.contains("bytes were requested"), "{error}");
        assert!(error.contains("--limit") && error.contains("ulimit -v"), "{error}");
    }
    let error = error("ulimit -v 400000", &["replay", TRACE, "--backend", "host", "--source", "direct"]);
    assert!(error.contains("multistream, event ") && error.contains("the pool holds"), "{error}");
}

/// Whatever of its work the limit meets: an array, a chunk, a block of staging, rows that are gathered, or a
/// thread's start. Two at once, because threads get in each other's way then.
#[test]
fn a_solver_without_memory_ends_with_an_error() {
    let failures = |option: &str, first: u64| {
        (first..120).step_by(4).filter(|&mebibytes| fails_to_solve(option, mebibytes)).count()
    };
    let failures = std::thread::scope(|scope| {
        let half = scope.spawn(|| failures("-d", 22));
        failures("-v", 40).min(half.join().expect("it ends"))
    });
    assert!(failures > 0, "no limit was too small");
}

/// Whether a solver fails that has so many MiB of addresses (`-v`), or of data (`-d`).
fn fails_to_solve(option: &str, mebibytes: u64) -> bool {
    let limit = format!("ulimit {option} {}", mebibytes << 10);
    if !output(&limit, &["--version"]).status.success() {
        // Neither the kernel nor the loader starts the program with so little.
        return false;
    }
    let arguments = ["solve", "--backend", "host", "--runs", "1000000", "--samples", "8", "--steps", "1"];
    let Output { status, stderr, .. } = output(&limit, &arguments);
    let error = String::from_utf8(stderr).expect("UTF-8");
    assert!(matches!(status.code(), Some(0 | 1)), "{limit}: {status}\n{error}");
    if status.success() {
        return false;
    }
    let is_reported = ["out of memory", "Resource temporarily unavailable", "bytes of host memory"]
        .iter()
        .any(|what| error.contains(what));
    assert!(is_reported && !error.contains("panicked"), "{limit}: {error}");
    true
}
