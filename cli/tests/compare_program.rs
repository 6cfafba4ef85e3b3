//! `vrampool replay --compare`: what it recommends, and what it says that a trace does not show.

use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;
#[cfg(target_os = "linux")]
use vrampool_test_support::interrupted;
use vrampool_test_support::{command, failed, outcome, printed, rows};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn trace(name: &str) -> String {
    format!("{ROOT}/benches/traces/{name}.csv.gz")
}

fn replay(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.arg("replay").args(arguments);
    command
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().expect(key)
}

/// The least peak of each trace that `benches/size_classes.sh` found.
fn least_before(name: &str) -> u64 {
    let results = std::fs::read_to_string(format!("{ROOT}/benches/results/host/size_classes.jsonl"));
    let mut peaks = HashMap::new();
    for line in results.expect("results").lines() {
        let row: Value = serde_json::from_str(line).expect(line);
        if row["trace"] != name {
            continue;
        }
        let peak = peaks.entry(row["choice"].to_string()).or_insert(0);
        *peak = number(&row, "peak_reserved").max(*peak);
    }
    peaks.into_values().min().expect("a choice")
}

#[test]
fn the_best_holds_at_most_two_percent_more_than_everything_tried() {
    for name in ["resnet50", "gpt2", "serve_mixed", "multistream"] {
        // The others take minutes without optimisations.
        let source: &[&str] = if name == "serve_mixed" { &["--source", "virtual"] } else { &[] };
        let rows = rows(&mut replay(&[&["--compare", "--json", &trace(name)], source].concat()));
        let combined = |row: &&Value| row["size_classes"] != "half-fitted";
        let tried: Vec<_> = rows.iter().filter(combined).collect();
        let sources = if source.is_empty() { 4 } else { 1 };
        assert_eq!(tried.len(), sources * 6, "three sources, and an arena that keeps nothing: {rows:?}");
        let least = tried.iter().map(|row| number(row, "peak_reserved")).min().expect("rows");
        let best: Vec<_> = rows.iter().filter(|row| row["best"] == true).collect();
        assert_eq!(best.len(), 1, "{rows:?}");
        let best = number(best[0], "peak_reserved") as f64;
        for least in [least, least_before(name)] {
            assert!(best <= 1.02 * least as f64, "{name}: {best} of {least}");
        }
    }
}

#[test]
fn the_settings_of_the_best_hold_what_was_measured() {
    for (options, settings) in [
        (&[][..], "source=virtual\n    size_classes=tight\n"),
        (&["--source", "direct", "--size-classes", "exact"], "source=direct\n    size_classes=exact\n"),
        (
            &["--source", "arena"],
            "source=arena\n    size_classes=geometric\n    limit=1GiB\n    max_cached_bytes=0\n",
        ),
        (&["--source", "direct"], "source=direct\n    size_classes=fitted:multistream.classes\n"),
    ] {
        let file = trace("multistream");
        let arguments = [&["--compare", &file], options].concat();
        let out = printed(&mut replay(&arguments));
        assert!(out.ends_with(&format!(":\n    {settings}")), "{options:?}: {out}");
        assert!(out.contains("as recorded"), "the figures of the peer: {out}");
        if settings.contains("fitted:") {
            assert!(out.contains("First: vrampool fit"), "{out}");
            continue;
        }
        let mut again = replay(&[&file, "--json"]);
        for (name, text) in settings.lines().map(|line| line.trim().split_once('=').expect(line)) {
            again.env(format!("VRAMPOOL_{}", name.to_uppercase()), text);
        }
        let peak = rows(&mut again).iter().map(|row| number(row, "peak_reserved")).max();
        let compared = rows(replay(&arguments).arg("--json"));
        let best = compared.iter().find(|row| row["best"] == true).expect("the best");
        assert_eq!(peak, Some(number(best, "peak_reserved")), "{settings}");
    }
}

#[test]
fn unseen_sizes_are_said_to_be_unknown() {
    let varied = printed(&mut replay(&["--compare", &trace("gpt2")]));
    let words = varied.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["of the requests have sizes that its first half does not have", "half-fitted"] {
        assert!(words.contains(text), "{text}: {varied}");
    }
    let repeated = printed(&mut replay(&["--compare", &trace("resnet50")]));
    assert!(!repeated.contains("half"), "{repeated}");
    assert!(repeated.contains("Unknown: other programs, and times"), "{repeated}");
}

#[test]
fn a_choice_that_fails_is_named_and_the_others_are_compared() {
    let file = trace("multistream");
    let (code, out, err) = outcome(&mut replay(&["--compare", "--json", "--limit", "400MiB", &file]));
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("virtual, fixed: ") && err.contains("raise `limit`"), "{err}");
    assert!(out.lines().count() > 5, "{out}");
    let err = failed(&mut replay(&["--compare", "--limit", "1MiB", &file]), 1);
    assert!(err.ends_with("error: multistream: no source serves it with these flags\n"), "{err}");
    failed(&mut replay(&["--compare", "--touch", &file]), 2);
}

/// An interrupt that comes while the program runs; without Linux nothing shows when it listens.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_program_prints_what_it_has() {
    let file = trace("multistream");
    for (arguments, header) in [
        (&["replay", "--passes", "1000000", &file][..], "trace        pass"),
        (&["replay", "--passes", "1000000", "--json", &file], "{\"trace\":\"multistream\""),
        (&["replay", "--compare", "--passes", "1000000", &file], ""),
        (&["bench", "--quick"], "benchmark"),
    ] {
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        let (code, out, err) = interrupted(command.args(arguments));
        assert_eq!(code, Some(130), "{arguments:?}: {err}");
        assert!(err.contains("error: interrupted; what is printed is complete"), "{arguments:?}: {err}");
        assert!(out.contains(header), "{arguments:?}: {out}");
    }
}
