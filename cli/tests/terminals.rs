//! The program's output fits narrow and wide terminals, pipes and plain ASCII; standard input is a file like others.

use std::fs::File;
use std::process::{Command, Stdio};
use vrampool_test_support::{assert_help_fits, assert_tables_fit, outcome};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
const PROGRAM: &str = env!("CARGO_BIN_EXE_vrampool");

fn command(arguments: &[&str]) -> Command {
    let mut command = vrampool_test_support::command(PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What it prints. Replays also warn of a build without optimisations.
fn printed(command: &mut Command) -> String {
    let (code, out, err) = outcome(command);
    assert_eq!(code, Some(0), "{command:?}: {err}");
    out
}

#[test]
fn help_is_wrapped_at_words() {
    // Of 8 commands, 3 of `trace`, and the program.
    assert!(assert_help_fits(PROGRAM) >= 2 * 12);
}

#[test]
fn tables_have_at_most_80_columns() {
    let gpt2 = TRACE.replace("multistream", "gpt2");
    let serving = TRACE.replace("multistream", "serve_mixed");
    for arguments in [
        &["replay", TRACE, &gpt2][..],
        &["replay", TRACE, "--compare", "--source", "arena"],
        &["trace", "show", TRACE],
        &["trace", "show", &serving],
        &["fit", TRACE],
    ] {
        assert_tables_fit(PROGRAM, arguments, |_| false);
    }
    // Then the reasons why devices are missing, as the drivers have them.
    let reasons = printed(&mut command(&["devices"]));
    let (_, reasons) = reasons.split_once("\n\n").expect("a table");
    assert_tables_fit(PROGRAM, &["devices"], |line| reasons.lines().any(|reason| reason == line));
    // They take a while.
    for arguments in [
        &["replay", TRACE, "--compare"][..],
        &["fit", &gpt2],
        &["bench", "--quick"],
        &["bench", "--quick", "--only", "sleep", "--sleep-gib", "1"],
    ] {
        let text = printed(&mut command(arguments));
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
    }
}

#[test]
fn a_dash_is_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let classes = folder.path().join("some.classes");
    let classes = classes.to_str().expect("UTF-8");
    printed(&mut command(&["fit", TRACE, "--output", classes]));
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("UTF-8");
    for (file, arguments) in [
        (TRACE, &["replay", "-"][..]),
        (TRACE, &["replay", "--compare", "-"]),
        (TRACE, &["replay", "--source", "virtual", "--initial", "peak:-", TRACE]),
        (TRACE, &["fit", "-"]),
        (TRACE, &["trace", "show", "-"]),
        (TRACE, &["trace", "plot", "-", "-o", page]),
        (classes, &["replay", TRACE, "--size-classes", "fitted:-"]),
    ] {
        let from = |file: &str| {
            let mut command = command(arguments);
            command.stdin(File::open(file).expect(file));
            command
        };
        let out = printed(&mut from(file));
        assert!(
            out.contains("stdin") || out.contains("multistream") || out.contains(page),
            "{arguments:?}: {out}"
        );
        let output = from("/dev/null").output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?} needs its input");
    }
}
