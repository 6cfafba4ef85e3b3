//! What the program says where a limit of the process leaves it no memory: what was asked for, and what to do.
#![cfg(target_os = "linux")]

use std::process::{Command, Output};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");

/// The program's error behind a command of the shell's.
fn error(limit: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_vrampool")]);
    let Output { status, stderr, .. } = command.args(arguments).output().expect("it starts");
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

#[test]
fn a_share_that_holds_no_run_is_named() {
    let solve = |arguments: &[&str]| error("true", &[&["solve", "--backend", "host"], arguments].concat());
    let error = solve(&["--reserve", "unlimited"]);
    assert!(error.contains("give a larger share, or a smaller reserve"), "{error}");
    let error = solve(&["--share", "1KiB", "--samples", "1000000", "--runs", "2"]);
    assert!(error.contains("give a larger share"), "{error}");
    let error = solve(&["--runs", "1000", "--plot", "/dev/full"]);
    assert!(error.contains("/dev/full: the file cannot be written: No space left on device"), "{error}");
}
