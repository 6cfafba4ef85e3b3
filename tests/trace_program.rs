//! `vrampool trace` and `--record`: what they write and print, and how they fail.
#![cfg(feature = "cli")]

use std::path::Path;
use std::process::{Command, Output};
use vrampool::trace::{Import, Trace};

type Row = serde_json::Map<String, serde_json::Value>;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrampool"));
    // Without it Mesa's drivers have something to say on stderr.
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    let Output { status, stdout, stderr } = command.args(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn conversions_there_and_back_keep_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = format!("{ROOT}/benches/traces/multistream.csv.gz");
    let trace = Trace::read(&own).expect("a trace");
    for (name, flags, format) in [
        ("a.pickle", &[][..], "pytorch"),
        ("b.pickle.gz", &[], "pytorch"),
        ("c.csv.gz", &[], "csv"),
        ("d.log", &["--to", "rmm"], "rmm"),
    ] {
        let output = path(folder.path(), name);
        let convert = ["trace", "convert", &own, &output];
        let (code, out, err) = run(&[&convert[..], flags].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        assert!(out.starts_with(&format!("{output}: 723 events as {format}\n")), "{out}");
        let back = Import::new().read(&output).expect("a trace");
        assert_eq!((back.events().len(), back.peak_requested()), (723, trace.peak_requested()));
        // And each of them is replayed, and fitted to.
        let (code, out, err) = run(&["replay", "--json", "--passes", "1", &output]);
        let row: Row = serde_json::from_str(&out).expect("a row");
        assert_eq!((code, row["peak_requested"].as_u64()), (Some(0), Some(trace.peak_requested())), "{err}");
        assert_eq!(run(&["fit", "--json", &output]).0, Some(0));
    }
}

#[test]
fn what_is_in_a_trace_is_shown_as_json_and_as_a_table() {
    let snapshot = format!("{ROOT}/tests/golden/snapshot.pickle");
    let (code, out, err) = run(&["trace", "show", "--json", &snapshot]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let expected = [
        r#"{"row":"trace","trace":"snapshot","events":7,"allocations":5,"frees":2,"never_freed":3,"streams":2,"distinct_sizes":5,"requested":3849,"peak_requested":3849,"largest":2049,"duration_us":17}"#,
        r#"{"row":"sizes","from":0,"to":0,"allocations":1,"bytes":0,"share":0.2}"#,
        r#"{"row":"sizes","from":64,"to":127,"allocations":1,"bytes":100,"share":0.2}"#,
        r#"{"row":"sizes","from":512,"to":1023,"allocations":2,"bytes":1700,"share":0.4}"#,
        r#"{"row":"sizes","from":2048,"to":4095,"allocations":1,"bytes":2049,"share":0.2}"#,
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    let (code, out, _) = run(&["trace", "show", &snapshot, "--device", "1"]);
    assert_eq!(code, Some(0));
    assert!(
        ["never freed", "peak requested", "2.0 MiB", "100.0 %", "█"].iter().all(|text| out.contains(text)),
        "{out}"
    );
    // A trace without events has no sizes.
    let folder = tempfile::tempdir().expect("a folder");
    let empty = path(folder.path(), "empty.csv");
    std::fs::write(&empty, "op,id,size,stream,t_us\n").expect("a file");
    assert_eq!(run(&["trace", "show", &empty]).0, Some(0));
    assert_eq!(run(&["trace", "show", "--json", &empty]).1.lines().count(), 1);
}

#[test]
fn what_goes_wrong_is_said_and_the_exit_status_is_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = path(folder.path(), "evil.pickle");
    std::fs::write(&evil, b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.").expect("a file");
    let snapshot = format!("{ROOT}/tests/golden/snapshot.pickle");
    let nowhere = path(folder.path(), "no/such/folder/out.csv");
    for (arguments, text) in [
        (&["trace", "show", "no/such/file"][..], "no/such/file: it cannot be opened"),
        (&["trace", "show", &evil], "byte 2: the pickle has instruction 0x63 (GLOBAL)"),
        (&["trace", "show", &snapshot, "--device", "7"], "nothing of device 7"),
        (&["trace", "show", &snapshot, "--from", "csv"], "is not the header"),
        (&["trace", "show", &snapshot, "--max-events", "3"], "raise `max_events`"),
        (&["trace", "convert", &snapshot, &nowhere], "no/such/folder/out.csv: the file cannot be created"),
        (&["replay", &snapshot, &snapshot, "--record", &nowhere], "a recording is of one trace"),
        (
            &["replay", &snapshot, "--passes", "1", "--record", &nowhere],
            "no/such/folder/out.csv: the file cannot be created",
        ),
    ] {
        let (code, _, err) = run(arguments);
        assert!(code == Some(1) && err.starts_with("error: ") && err.contains(text), "{arguments:?}: {err}");
    }
    for arguments in
        [&["trace"][..], &["trace", "convert", &snapshot], &["trace", "show", &snapshot, "--from", "json"]]
    {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn what_is_replayed_or_trained_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = format!("{ROOT}/benches/traces/resnet50.csv.gz");
    let trace = Trace::read(&own).expect("a trace");
    for (name, threads) in [("one.csv.gz", 1), ("two.pickle", 2)] {
        let output = path(folder.path(), name);
        let flags = ["--passes", "2", "--threads", &threads.to_string(), "--json"];
        let (code, out, err) = run(&[&["replay", &own, "--record", &output], &flags[..]].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        let recorded = Import::new().read(&output).expect("a trace");
        // With what the trace does not free, which the replay drops.
        let allocations =
            trace.events().iter().filter(|event| event.op == vrampool::trace::Op::Allocate).count();
        assert_eq!(recorded.events().len(), 2 * 2 * threads * allocations);
        assert_eq!(out.lines().count(), 2);
        if threads == 1 {
            assert_eq!(recorded.peak_requested(), trace.peak_requested());
        }
    }
    let output = path(folder.path(), "train.csv");
    let (code, _, err) = run(&["train", "--epochs", "1", "--batch-size", "200", "--record", &output]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(Import::new().read(&output).expect("a trace").events().len() > 100);
}
