//! `vrampool replay --compare`: what it recommends, and what it says that a trace does not show.

use serde_json::Value;
use std::collections::HashMap;
#[cfg(target_os = "linux")]
use vrampool_test_support::interrupted;
use vrampool_test_support::{command, outcome};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn trace(name: &str) -> String {
    format!("{ROOT}/benches/traces/{name}.csv.gz")
}

fn program(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    outcome(
        command(env!("CARGO_BIN_EXE_vrampool")).envs(variables.iter().copied()).arg("replay").args(arguments),
    )
}

fn rows(json: &str) -> Vec<HashMap<String, Value>> {
    json.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn number(row: &HashMap<String, Value>, key: &str) -> u64 {
    row[key].as_u64().expect(key)
}

/// The least peak of each trace that `benches/size_classes.sh` found.
fn least_before(name: &str) -> u64 {
    let results = std::fs::read_to_string(format!("{ROOT}/benches/results/host/size_classes.jsonl"));
    let mut peaks = HashMap::new();
    for row in rows(&results.expect("results")).iter().filter(|row| row["trace"] == name) {
        let peak = peaks.entry(row["choice"].to_string()).or_insert(0);
        *peak = number(row, "peak_reserved").max(*peak);
    }
    peaks.into_values().min().expect("a choice")
}

#[test]
fn the_best_holds_at_most_two_percent_more_than_everything_tried() {
    for name in ["resnet50", "gpt2", "serve_mixed", "multistream"] {
        // The others take minutes without optimisations.
        let source: &[&str] = if name == "serve_mixed" { &["--source", "virtual"] } else { &[] };
        let (code, out, err) = program(&[&["--compare", "--json", &trace(name)], source].concat(), &[]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        let rows = rows(&out);
        let combined = |row: &&HashMap<String, Value>| row["size_classes"] != "half-fitted";
        let tried: Vec<_> = rows.iter().filter(combined).collect();
        let sources = if source.is_empty() { 4 } else { 1 };
        assert_eq!(tried.len(), sources * 6, "three sources, and an arena that keeps nothing: {out}");
        let least = tried.iter().map(|row| number(row, "peak_reserved")).min().expect("rows");
        let best: Vec<_> = rows.iter().filter(|row| row["best"] == true).collect();
        assert_eq!(best.len(), 1, "{out}");
        let best = number(best[0], "peak_reserved") as f64;
        for least in [least, least_before(name)] {
            assert!(best <= 1.02 * least as f64, "{name}: {best} of {least}");
        }
    }
}

#[test]
fn the_settings_of_the_best_hold_what_was_measured() {
    for (options, settings) in [
        (&[][..], &["Source::Virtual", "SizeClasses::Tight", "source=\"virtual\""][..]),
        (&["--source", "direct", "--size-classes", "exact"], &["SizeClasses::EXACT", "source=\"direct\""]),
        (
            &["--source", "arena"],
            &[".limit(1 << 30).max_cached_bytes(0)", "limit=\"1GiB\", max_cached_bytes=0"],
        ),
        (&["--source", "direct"], &["fitted::load(\"multistream.classes\")?", "First: vrampool fit"]),
    ] {
        let file = trace("multistream");
        let arguments = [&["--compare", &file], options].concat();
        let (code, out, err) = program(&arguments, &[]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(settings.iter().all(|setting| out.contains(setting)), "{options:?}: {out}");
        assert!(out.contains("as recorded"), "the figures of the peer: {out}");
        let (_, environment) = out.split_once("Environment:\n").expect("the environment");
        if environment.contains("fitted:") {
            continue;
        }
        let variables: Vec<_> =
            environment.lines().map(|line| line.trim().split_once('=').expect(line)).collect();
        let (_, again, err) = program(&[&file, "--json"], &variables);
        let peak = rows(&again).iter().map(|row| number(row, "peak_reserved")).max();
        let (_, compared, _) = program(&[&arguments[..], &["--json"]].concat(), &[]);
        let best = rows(&compared).into_iter().find(|row| row["best"] == true).expect("the best");
        assert_eq!(peak, Some(number(&best, "peak_reserved")), "{variables:?}: {err}");
    }
}

#[test]
fn unseen_sizes_are_said_to_be_unknown() {
    let (_, varied, _) = program(&["--compare", &trace("gpt2")], &[]);
    let words = varied.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["of the requests have sizes that its first half does not have", "half-fitted"] {
        assert!(words.contains(text), "{text}: {varied}");
    }
    let (_, repeated, _) = program(&["--compare", &trace("resnet50")], &[]);
    assert!(!repeated.contains("half"), "{repeated}");
    assert!(repeated.contains("Unknown: other programs, and times"), "{repeated}");
}

#[test]
fn a_choice_that_fails_is_named_and_the_others_are_compared() {
    let file = trace("multistream");
    let (code, out, err) = program(&["--compare", "--json", "--limit", "400MiB", &file], &[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("virtual, fixed: ") && err.contains("raise `limit`"), "{err}");
    assert!(rows(&out).len() > 5, "{out}");
    let (code, out, err) = program(&["--compare", "--limit", "1MiB", &file], &[]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.ends_with("error: multistream: no source serves it with these flags\n"), "{err}");
    assert_eq!(program(&["--compare", "--touch", &file], &[]).0, Some(2));
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
