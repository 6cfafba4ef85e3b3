//! `vrampool trace` and `--record`: what they write and print, and how they fail.

use std::path::Path;
use std::process::Command;
use vrampool::backend::{Backend, Stream};
use vrampool::host::HostDevice;
use vrampool_test_support::{command, failed, outcome, printed, rows};
use vrampool_trace::{Export, Format, Import, Recorder, Trace};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn vrampool(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(&mut vrampool(arguments))
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
        ("b.pkl.GZ", &[], "pytorch"),
        ("c.Csv.Gz", &[], "csv"),
        ("d.log", &["--to", "rmm"], "rmm"),
        ("e.PICKLE", &[], "pytorch"),
    ] {
        let output = path(folder.path(), name);
        let convert = ["trace", "convert", &own, &output];
        let out = printed(&mut vrampool(&[&convert[..], flags].concat()));
        assert!(out.starts_with(&format!("{output}: 723 events as {format}\n")), "{out}");
        let is_compressed = std::fs::read(&output).expect("a file").starts_with(b"\x1f\x8b");
        assert_eq!(is_compressed, name.to_lowercase().ends_with(".gz"));
        let back = Import::new().read(&output).expect("a trace");
        assert_eq!(back.name(), &name[..1]);
        assert_eq!((back.events().len(), back.peak_requested()), (723, trace.peak_requested()));
        // And each of them is replayed, and fitted to.
        let passes = rows(&mut vrampool(&["replay", "--json", "--passes", "1", &output]));
        assert_eq!(passes[0]["peak_requested"], trace.peak_requested());
        printed(&mut vrampool(&["fit", "--json", &output]));
    }
}

#[test]
fn a_recording_that_dropped_allocations_is_not_shown_as_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, log] = ["short.csv", "short.log"].map(|name| path(folder.path(), name));
    let stream = HostDevice::new().create_stream().expect("a stream").id();
    let recorder = Recorder::with_events(10);
    (0..500).for_each(|_| recorder.note_free(recorder.note_allocation(1000, stream, ""), stream));
    Export::new(Format::Csv).save(&recorder.trace("short").expect("a trace"), &file).expect("written");
    let convert = ["trace", "convert", "--to", "rmm", &file, &log];
    for command in [&["trace", "show", &file][..], &["fit", &file], &["replay", &file], &convert] {
        let (code, out, err) = run(command);
        assert_eq!(code, Some(0), "{command:?}: {err}");
        assert!(err.contains("the recording lacks 495 allocations"), "{command:?}: {err}");
        assert!(command != convert || out.contains("not kept: 495 allocations"), "{out}");
        assert_ne!(run(&[command, &["--strict"]].concat()).0, Some(0), "{command:?}");
    }
}

#[test]
fn the_contents_of_a_trace_are_shown_as_json_and_as_a_table() {
    let snapshot = format!("{ROOT}/extensions/trace/tests/golden/snapshot.pickle");
    let out = printed(&mut vrampool(&["trace", "show", "--json", &snapshot]));
    let expected = [
        r#"{"row":"trace","trace":"snapshot","events":7,"allocations":5,"frees":2,"never_freed":3,"dropped":0,"streams":2,"distinct_sizes":5,"requested":3849,"peak_requested":3849,"largest":2049,"duration_us":17}"#,
        r#"{"row":"sizes","from":0,"to":0,"allocations":1,"bytes":0,"share":0.2}"#,
        r#"{"row":"sizes","from":64,"to":127,"allocations":1,"bytes":100,"share":0.2}"#,
        r#"{"row":"sizes","from":512,"to":1023,"allocations":2,"bytes":1700,"share":0.4}"#,
        r#"{"row":"sizes","from":2048,"to":4095,"allocations":1,"bytes":2049,"share":0.2}"#,
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    let out = printed(&mut vrampool(&["trace", "show", &snapshot, "--device", "1"]));
    assert!(
        ["never freed", "peak requested", "2.0 MiB", "100.0 %", "####"].iter().all(|text| out.contains(text)),
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
fn errors_are_reported_and_the_exit_status_is_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = path(folder.path(), "evil.pickle");
    std::fs::write(&evil, b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.").expect("a file");
    let snapshot = format!("{ROOT}/extensions/trace/tests/golden/snapshot.pickle");
    let nowhere = path(folder.path(), "no/such/folder/out.csv");
    for (arguments, text) in [
        (&["trace", "show", "no/such/file"][..], "no/such/file: the file cannot be opened"),
        (&["trace", "show", &evil], "byte 2: the pickle has instruction 0x63 (GLOBAL)"),
        (&["trace", "show", &snapshot, "--device", "7"], "no events of device 7"),
        (&["trace", "show", &snapshot, "--from", "csv"], "is not the header"),
        (&["trace", "show", &snapshot, "--max-events", "3"], "raise `max_events`"),
        (&["trace", "convert", &snapshot, &nowhere], "no/such/folder/out.csv: the file cannot be created"),
        (&["replay", &snapshot, &snapshot, "--record", &nowhere], "a recording covers one trace"),
        (
            &["replay", &snapshot, "--passes", "1", "--record", &nowhere],
            "no/such/folder/out.csv: the file cannot be created",
        ),
    ] {
        let err = failed(&mut vrampool(arguments), 1);
        assert!(err.starts_with("error: ") && err.contains(text), "{arguments:?}: {err}");
    }
    for arguments in
        [&["trace"][..], &["trace", "convert", &snapshot], &["trace", "show", &snapshot, "--from", "json"]]
    {
        failed(&mut vrampool(arguments), 2);
    }
}

#[test]
fn a_replay_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = format!("{ROOT}/benches/traces/resnet50.csv.gz");
    let trace = Trace::read(&own).expect("a trace");
    for name in ["one.csv.gz", "two.pickle"] {
        let output = path(folder.path(), name);
        let flags = ["--passes", "2", "--json"];
        let passes = rows(&mut vrampool(&[&["replay", &own, "--record", &output], &flags[..]].concat()));
        let recorded = Import::new().read(&output).expect("a trace");
        // With what the trace does not free, which the replay drops.
        let allocations =
            trace.events().iter().filter(|event| event.op == vrampool_trace::Op::Allocate).count();
        assert_eq!(recorded.events().len(), 2 * 2 * allocations);
        assert_eq!(passes.len(), 2);
        assert_eq!(recorded.peak_requested(), trace.peak_requested());
    }
}

#[test]
fn a_closed_pipe_ends_the_program_without_a_message() {
    let trace = format!("{ROOT}/benches/traces/multistream.csv.gz");
    for arguments in [
        &["devices"][..],
        &["trace", "show", &trace],
        &["trace", "show", "--json", &trace],
        &["fit", "--json", &trace],
        &["replay", "--json", &trace],
        &["replay", &trace],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = vrampool(arguments).stdout(writer).stderr(std::process::Stdio::piped()).output();
        let output = output.expect("it starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = path(folder.path(), "a\u{1b}[2J.csv");
    for (text, code) in [("op,id,size,stream,t_us\na,0,1,0,0\n", 0), ("x\n", 1)] {
        std::fs::write(&evil, text).expect("a file");
        for arguments in [
            &["trace", "show", &evil][..],
            &["fit", &evil],
            &["replay", &evil],
            &["trace", "convert", &evil, &format!("{evil}.pickle")],
        ] {
            let (found, out, err) = run(arguments);
            assert_eq!(found, Some(code), "{err}");
            assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{out:?} {err:?}");
            assert!(err.contains("a\\u{1b}[2J.csv"), "{err}");
        }
    }
}

#[test]
fn warnings_are_shown_and_strict_makes_them_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = path(folder.path(), "old.csv");
    std::fs::write(&old, "op,id,size,stream,t_us\na,5,1,9,3\n").expect("a file");
    let new = path(folder.path(), "new.pickle");
    for arguments in
        [&["trace", "show", &old][..], &["fit", &old], &["replay", &old], &["trace", "convert", &old, &new]]
    {
        let (code, _, err) = run(arguments);
        assert!(
            code == Some(0) && err.starts_with(&format!("warning: {old}: the file has no last line")),
            "{err}"
        );
        let err = failed(&mut vrampool(&[arguments, &["--strict"]].concat()), 1);
        assert!(err.starts_with(&format!("error: {old}: the file has no last line")), "{err}");
    }
    let (_, out, _) = run(&["trace", "convert", &old, &new]);
    assert!(
        out.lines().skip(1).all(|line| line.starts_with("not kept: ")) && out.lines().count() == 4,
        "{out}"
    );
    let classes = path(folder.path(), "old.classes");
    std::fs::write(&classes, "vrampool fitted classes 1\n512\n").expect("a file");
    let (code, _, err) = run(&["replay", &new, "--size-classes", &format!("fitted:{classes}")]);
    assert!(
        code == Some(0) && err.starts_with(&format!("warning: {classes}: the file has no last line")),
        "{err}"
    );
}

#[test]
fn standard_output_without_room_is_named() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let trace = format!("{ROOT}/benches/traces/multistream.csv.gz");
    let output = vrampool(&["trace", "show", &trace]).stdout(full).output().expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && err.starts_with("error: standard output: "), "{err}");
    // A device has no previous content, and is written to.
    let err = failed(&mut vrampool(&["trace", "convert", &trace, "/dev/full"]), 1);
    assert!(err.starts_with("error: /dev/full: the file cannot be written"), "{err}");
    printed(&mut vrampool(&["trace", "convert", &trace, "/dev/null"]));
}
