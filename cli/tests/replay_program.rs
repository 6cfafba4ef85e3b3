//! `vrampool replay`: what it prints, and how it fails.

use std::process::Command;
use vrampool_test_support::{command, failed, outcome, rows};

const KEYS: [&str; 15] = [
    "trace",
    "backend",
    "size_classes",
    "pass",
    "ops",
    "ns_per_op",
    "peak_requested",
    "peak_live",
    "peak_held",
    "peak_reserved",
    "peak_needed",
    "hit_rate",
    "bucket_hit_rate",
    "driver_calls",
    "reuse_waits",
];

fn replay(arguments: &[&str]) -> Command {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.arg("replay").arg(path).args(arguments);
    command
}

#[test]
fn json_is_a_line_a_pass_with_exactly_these_keys() {
    let flags = ["--json", "--passes", "3", "--size-classes", "geometric", "--max-cached-bytes", "unlimited"];
    let (mut passes, mut expected) = (Vec::new(), KEYS);
    expected.sort_unstable();
    for row in rows(&mut replay(&flags)) {
        let mut keys: Vec<_> = row.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);
        let words = ["trace", "backend", "size_classes"].map(|key| row[key].as_str().expect(key));
        assert_eq!((words, row["ops"].as_u64()), (["multistream", "host", "geometric"], Some(723)));
        passes.push(row["pass"].as_str().expect("a word").to_owned());
    }
    assert_eq!(passes, ["cold", "warm", "warm"]);
}

#[test]
fn touched_memory_stays_as_it_was_written_and_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.csv");
    let mut csv = String::from("op,id,size,stream,t_us\n");
    for id in 0..200u32 {
        csv += &format!("a,{id},{},{},0\n", id * 7 % 900, id % 3);
        // Freed by its own stream, by another one, or never.
        if id % 4 > 0 {
            csv += &format!("f,{id},{},{},0\n", id * 7 % 900, id % 2);
        }
    }
    let trace = vrampool_trace::Trace::parse(csv.as_bytes()).expect("a trace");
    vrampool_trace::Export::new(vrampool_trace::Format::Csv).save(&trace, &path).expect("a file");
    for source in ["direct", "arena", "virtual"] {
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        command.arg("replay").arg(&path);
        let rows = rows(command.args(["--json", "--touch", "--source", source, "--limit", "64MiB"]));
        assert!(rows.len() == 2 && rows.iter().all(|row| row["corrupt_bytes"] == 0), "{source}: {rows:?}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_of_exit_status_1() {
    let err = failed(&mut replay(&["--backend", "cuda:4096"]), 1);
    assert!(err.starts_with("error: no device `cuda:4096`: "), "{err}");
    assert!(err.contains("host (host memory)"), "it lists available devices: {err}");
    let is_absent = err.contains("cuda is not available: ");
    assert!(is_absent || err.contains("names none"), "{err}");
    assert!(!err.contains("feature `cuda`"), "it is built in: {err}");
}

#[test]
fn without_json_it_is_a_table() {
    let (code, out, _) = outcome(&mut replay(&["--limit", "unlimited"]));
    assert_eq!(code, Some(0));
    assert!(
        ["reserved/requested", "reserved/needed", "multistream", "cold", "warm", "MiB", "723"]
            .iter()
            .all(|text| out.contains(text)),
        "{out}"
    );
}

#[test]
fn errors_are_reported_and_the_exit_status_is_1() {
    let (code, out, err) = outcome(&mut replay(&["no/such/file", "--json"]));
    assert_eq!((code, out.lines().count()), (Some(1), 2), "the file before it was replayed");
    assert!(err.starts_with("error: no/such/file: the file cannot be opened"), "{err}");
    for (arguments, text) in [
        (["--limit", "100MiB"], "raise `limit`"),
        (["--device-memory", "100MiB"], "choose size classes that round up less"),
        (["--max-events", "10"], "raise `max_events`"),
    ] {
        let err = failed(&mut replay(&arguments), 1);
        assert!(err.contains("multistream") && err.contains(text), "{arguments:?}: {err}");
    }
    for arguments in [["--passes", "0"], ["--limit", "-1"], ["--size-classes", "round"]] {
        failed(&mut replay(&arguments), 2);
    }
}
