//! `vrampool bench`: what it prints, and how it fails. How fast anything is, is not asked.

use serde_json::Value;
use std::process::Command;
use vrampool_test_support::{command, failed, printed};

const KEYS: [&str; 8] = ["allocator", "bench", "case", "ns_max", "ns_mean", "ns_median", "ns_min", "threads"];

const NAMES: [&str; 9] = [
    "cuarena_1",
    "cuarena_2",
    "cuarena_3",
    "cuarena_4",
    "cuarena_5",
    "cuarena_6",
    "hit_pair",
    "pair",
    "sleep",
];

/// A run with too few samples to mean anything.
fn bench(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(["bench", "--quick"]).args(arguments);
    command
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    vrampool_test_support::rows(bench(arguments).arg("--json"))
}

/// The benchmark, the case and the allocator.
fn labels(rows: &[Value]) -> Vec<[String; 3]> {
    let label = |row: &Value, key| row[key].as_str().expect(key).to_owned();
    rows.iter().map(|row| ["bench", "case", "allocator"].map(|key| label(row, key))).collect()
}

#[test]
fn each_line_has_exactly_these_keys_and_figures_in_order() {
    let rows = rows(&[]);
    for row in &rows {
        let mut keys: Vec<_> = row.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, KEYS);
        let figures = ["ns_min", "ns_median", "ns_max"].map(|key| row[key].as_f64().expect(key));
        assert!(figures[0] > 0.0 && figures.is_sorted(), "{row:?}");
        let mean = row["ns_mean"].as_f64().expect("a number");
        assert!(figures[0] <= mean * 1.000_001 && mean <= figures[2] * 1.000_001, "{row:?}");
        let threads = row["threads"].as_u64().expect("a number");
        assert!(threads == 1 || row["bench"] == "hit_pair", "{row:?}");
    }

    let mut expected: Vec<[&str; 3]> = Vec::new();
    for (bench, case) in [
        ("cuarena_1", "8 MiB"),
        ("cuarena_2", "512 x 1 KiB"),
        ("cuarena_3", "4 x 1 MiB"),
        ("cuarena_4", "1 MiB to 128 MiB"),
    ] {
        expected.extend(["driver", "arena", "pool"].map(|allocator| [bench, case, allocator]));
    }
    expected.extend(["driver", "arena"].map(|allocator| ["cuarena_5", "compact 4 x 32 MiB", allocator]));
    expected.push(["cuarena_5", "allocate 64 MiB", "arena"]);
    for case in [
        "stable 256 B",
        "dynamic 256 B",
        "stable 256 KiB",
        "dynamic 256 KiB",
        "stable 2 MiB",
        "dynamic 2 MiB",
    ] {
        expected.push(["cuarena_6", case, "arena"]);
    }
    // As many threads as there are cores.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = || [1, 2, 4, 8, 16].into_iter().filter(|&threads| threads <= cores);
    for case in ["4 KiB", "4 KiB and 64 KiB", "8 MiB"] {
        expected.extend(threads().map(|_| ["hit_pair", case, "pool"]));
    }
    expected.extend(threads().skip(1).map(|_| ["hit_pair", "4 KiB, 32 handed over", "pool"]));
    for case in ["4 KiB", "64 KiB", "1 MiB"] {
        expected.extend(["driver", "arena", "hit", "miss"].map(|allocator| ["pair", case, allocator]));
    }
    assert_eq!(labels(&rows), expected);
}

#[test]
fn only_takes_names_repeated_or_with_commas_and_runs_each_once() {
    for arguments in [
        &["--only", "cuarena_6", "--only", "cuarena_1"][..],
        &["--only", "cuarena_6,cuarena_1", "--backend", "host"],
        &["--only", "cuarena_1,cuarena_6,cuarena_1"],
    ] {
        let mut names: Vec<_> = labels(&rows(arguments)).into_iter().map(|[bench, ..]| bench).collect();
        assert_eq!(names.len(), 3 + 6, "{arguments:?}");
        names.dedup();
        assert_eq!(names, ["cuarena_1", "cuarena_6"], "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_sleeps_and_wakes_goes_to_the_device_and_comes_back_whole() {
    let rows = rows(&["--only", "sleep"]);
    assert_eq!(rows.len(), 2);
    for (row, case) in rows.iter().zip(["pinned", "discard"]) {
        let number = |key: &str| row[key].as_f64().expect(key);
        assert_eq!((row["bench"].as_str(), row["case"].as_str()), (Some("sleep"), Some(case)));
        assert!(number("bytes") > 0.0 && number("released_share") >= 0.99, "{row:?}");
        assert!(number("sleep_seconds") > 0.0 && number("wake_seconds") > 0.0, "{row:?}");
        assert_eq!(row["wrong_bytes"].as_u64(), (case == "pinned").then_some(0), "{row:?}");
    }
    assert!(rows[0]["wake_gb_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    let out = printed(&mut bench(&["--only", "sleep"]));
    assert!(out.contains("released") && out.contains("pinned"), "{out}");
}

#[test]
fn without_json_it_is_a_table() {
    let out = printed(&mut bench(&["--only", "cuarena_3"]));
    let words = ["benchmark", "ns median", "cuarena_3", "4 x 1 MiB", "driver", "arena", "pool"];
    assert!(words.iter().all(|text| out.contains(text)), "{out}");
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
    let error = failed(&mut bench(&["--json", "--only", "cuarena_1,cuarena_7"]), 2);
    assert!(error.contains("cuarena_7") && NAMES.iter().all(|name| error.contains(name)), "{error}");
    let error = failed(&mut bench(&["--backend", "abacus"]), 2);
    assert!(error.contains("known are auto, cuda"), "{error}");
    for name in ["host:1", "cuda 0", ""] {
        failed(&mut bench(&["--backend", name]), 2);
    }
}
