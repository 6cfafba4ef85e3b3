//! The program's output fits narrow and wide terminals, pipes and plain ASCII; standard input is a file like others.

use std::fs::File;
use std::process::{Command, Stdio};
use vrampool_test_support::outcome;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
const COLUMNS: [usize; 3] = [80, 100, 140];
const LOCALES: [&str; 2] = ["C", "C.UTF-8"];

fn command(arguments: &[&str]) -> Command {
    let mut command = vrampool_test_support::command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn printed(mut command: Command) -> String {
    let (code, out, err) = outcome(&mut command);
    assert_eq!(code, Some(0), "{command:?}: {err}");
    out
}

/// Calls `check` with what a command prints into a pipe, and the columns of the terminal.
fn in_every_terminal(arguments: &[&str], check: impl Fn(&str, usize)) {
    for columns in COLUMNS {
        for locale in LOCALES {
            let mut command = command(arguments);
            command.env("COLUMNS", columns.to_string()).env("LC_ALL", locale).env("LANG", locale);
            let text = printed(command);
            assert!(text.is_ascii(), "{arguments:?}, {locale}: {text}");
            check(&text, columns);
        }
    }
}

fn assert_fits(arguments: &[&str], text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.len() <= columns, "{arguments:?}: {} of {columns} columns: {line}", line.len());
    }
}

#[test]
fn help_is_wrapped_at_words() {
    let pages = [
        "",
        "top",
        "replay",
        "trace",
        "trace show",
        "trace convert",
        "trace plot",
        "fit",
        "bench",
        "devices",
        "man",
    ];
    for page in pages.into_iter().chain(["completions"]) {
        for flag in ["-h", "--help"] {
            let arguments: Vec<_> = page.split_whitespace().chain([flag]).collect();
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let widest = printed({
                let mut command = command(&arguments);
                command.env("COLUMNS", "1000");
                command
            });
            in_every_terminal(&arguments, |text, columns| {
                assert_fits(&arguments, text, columns);
                assert_eq!(words(text), words(&widest), "{arguments:?}: a word is broken");
            });
        }
    }
}

#[test]
fn tables_have_at_most_80_columns() {
    let gpt2 = TRACE.replace("multistream", "gpt2");
    let serving = TRACE.replace("multistream", "serve_mixed");
    for arguments in [
        &["replay", TRACE, &gpt2][..],
        &["replay", TRACE, "--compare"],
        &["trace", "show", TRACE],
        &["trace", "show", &serving],
        &["fit", &gpt2],
        &["bench", "--quick"],
        &["bench", "--quick", "--only", "sleep", "--sleep-gib", "1"],
    ] {
        let text = printed(command(arguments));
        assert_fits(arguments, &text, 80);
        assert!(text.is_ascii() && !text.contains("req."), "{text}");
    }
    in_every_terminal(&["devices"], |text, _| {
        // Then the reasons why devices are missing, as the drivers have them.
        let (table, _) = text.split_once("\n\n").expect("a table");
        assert_fits(&["devices"], table, 80);
    });
    in_every_terminal(&["trace", "show", TRACE], |text, _| assert_fits(&["trace", "show"], text, 80));
}

#[test]
fn a_dash_is_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let classes = folder.path().join("some.classes");
    let classes = classes.to_str().expect("UTF-8");
    printed(command(&["fit", TRACE, "--output", classes]));
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
        let out = printed(from(file));
        assert!(
            out.contains("stdin") || out.contains("multistream") || out.contains(page),
            "{arguments:?}: {out}"
        );
        let output = from("/dev/null").output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?} needs its input");
    }
}

#[test]
fn completions_offer_values() {
    for shell in ["bash", "fish", "zsh"] {
        let script = printed(command(&["completions", shell]));
        for value in ["virtual", "power-of-two", "opencl"] {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
}
