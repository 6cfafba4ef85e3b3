//! Traces in the formats of other programs: what is read, what is written, and what is refused.

mod convert;
mod origins;
mod pickles;

use std::collections::HashMap;
use std::io::Read;
use std::process::Command;
use vrampool_test_support::program;
use vrampool_trace::{Export, Format, Import, Op, Trace, TraceError, TraceEvent, TraceFault};

const HEADER: &str = "op,id,size,stream,t_us\n";
const FORMATS: [Format; 3] = [Format::Csv, Format::Rmm, Format::PyTorch];
const SNAPSHOT: &[u8] = include_bytes!("../golden/snapshot.pickle");
const RMM: &[u8] = include_bytes!("../golden/rmm.csv");

fn lines(events: &[TraceEvent]) -> Vec<String> {
    let line = |event: &TraceEvent| {
        let op = if event.op == Op::Allocate { 'a' } else { 'f' };
        format!("{op},{},{},{},{}", event.id, event.size, event.stream, event.t_us)
    };
    events.iter().map(line).collect()
}

fn written(trace: &Trace, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    Export::new(format).write(trace, &mut bytes).expect("memory takes everything");
    bytes
}

/// What of a trace other formats have: the order, sizes, which free is of which allocation, streams up to
/// their names, and times since the first event.
fn essence(trace: &Trace) -> Vec<String> {
    let (mut ids, mut streams) = (HashMap::new(), HashMap::new());
    let began = trace.events().first().map_or(0, |event| event.t_us);
    let events = trace.events().iter().map(|event| {
        let (next_id, next_stream) = (ids.len(), streams.len());
        let (id, size) = *ids.entry(event.id).or_insert((next_id, event.size));
        let stream = *streams.entry(event.stream).or_insert(next_stream);
        format!("{:?} {id} {size} {stream} {}", event.op, event.t_us - began)
    });
    events.collect()
}

fn refused(bytes: &[u8]) -> TraceError {
    Import::new().parse(bytes).expect_err("it is none")
}

#[test]
fn a_snapshot_is_its_history_and_what_was_there_before() {
    let expected = [
        // Freed in the history, and live at its end, without having been allocated in it.
        "a,0,700,0,0",
        "a,1,2049,0,0",
        "a,2,1000,0,0",
        "a,3,100,1,1",
        "f,2,1000,0,7",
        "f,0,700,0,9",
        "a,4,0,0,17",
    ];
    for import in [Import::new(), Import::new().device(0), Import::new().format(Format::PyTorch)] {
        let trace = import.parse(SNAPSHOT).expect("a snapshot");
        assert_eq!(lines(trace.events()), expected);
        assert_eq!(trace.peak_requested(), 3849);
    }
    let other = Import::new().device(1).parse(SNAPSHOT).expect("a device without a history");
    assert_eq!(lines(other.events()), ["a,0,2097152,0,0"]);
    let error = Import::new().device(2).parse(SNAPSHOT).expect_err("no such device");
    assert!(error.to_string().contains("no events of device 2; choose one of its 2 devices"), "{error}");
}

#[test]
fn a_log_of_rmm_has_failures_null_midnight_and_what_was_there_before() {
    let expected =
        ["a,0,4096,0,0", "a,1,1024,1,0", "a,2,2048,2,20", "f,1,1024,1,30", "a,3,512,0,40", "f,0,4096,0,50"];
    assert_eq!(lines(Import::new().parse(RMM).expect("a log").events()), expected);
    let windows = String::from_utf8_lossy(RMM).replace('\n', "\r\n");
    assert_eq!(lines(Import::new().parse(windows.as_bytes()).expect("a log").events()), expected);
    // Spark's logs have no header; those of older versions a colon in times; the user guide has seconds.
    let bare = "1,12:00:00:000001,allocate,0x1,8,1\n1,12:00:00:000003,deallocate,1,8,0x1\n";
    let bare = Import::new().format(Format::Rmm).parse(bare.as_bytes()).expect("a log");
    assert_eq!(lines(bare.events()), ["a,0,8,0,0", "f,0,8,0,2"]);
    let seconds =
        "1,1634567890.123456,allocate,0x1,8,0\n1,1634567890.2,free,0x1,8,0\n1,1634567891,free,0x2,8,0\n";
    let seconds = Import::new().format(Format::Rmm).parse(seconds.as_bytes()).expect("a log");
    assert_eq!(lines(seconds.events()), ["a,0,8,0,0", "a,1,8,0,0", "f,1,8,0,76544", "f,0,8,0,876544"]);
}

#[test]
fn what_rmm_does_not_write_is_refused_by_line_and_field() {
    let table = [
        ("1,2,3", "Thread", "a line of the six fields"),
        ("1,0,free,0x1,1,0,7", "Thread", "six fields"),
        ("", "Thread", "six fields"),
        ("1,0,malloc,0x1,1,0", "Action", "`malloc` is not `allocate`, `free` or `allocate failure`"),
        ("1,noon,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,24:00:00.0,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,1:2:3:4:5,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,23:5.59.999995,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,23.5.59.999995,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,12:34,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,99999999999999999999.0,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,18446744073709551615.0,free,0x1,1,0", "Time", "12:34:56.123456"),
        ("1,0,free,0xg,1,0", "Pointer", "whole number"),
        ("1,0,free,0x11112222333344445,1,0", "Pointer", "whole number"),
        ("1,0,free,0x1,+1,0", "Size", "whole number"),
        ("1,0,free,0x1,-1,0", "Size", "whole number"),
        ("1,0,free,0x1,1,\u{1b}[2J", "Stream", "\\x1b[2J"),
        ("1,0,allocate,0x1,1,0\n1,0,allocate,0x1,1,0", "Pointer", "an allocation at 0x1 is already live"),
    ];
    for (text, field, words) in table {
        let text = format!("Thread,Time,Action,Pointer,Size,Stream\n{text}\n");
        let error = refused(text.as_bytes());
        assert_eq!(error.place.field, Some(field), "{text:?}: {error}");
        assert_eq!(error.place.line, Some(text.lines().count() as u64), "{text:?}: {error}");
        assert!(error.to_string().contains(words), "{text:?}: {error}");
    }
}

#[test]
fn what_is_of_no_format_is_said_to_be_of_none() {
    for text in
        ["\n", "op,id\n", "Thread,Time\n", "{\"a\": 1}", "\u{80}\u{9}", "PK\u{3}\u{4}", "(x", "\u{1b}[2J"]
    {
        let error = refused(text.as_bytes());
        assert!(error.to_string().contains("begins no trace"), "{text:?}: {error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}

#[test]
fn endless_and_exploding_pickles_are_read_no_further_than_the_limits() {
    let few = Import::new().format(Format::PyTorch).max_events(1);
    // Marks, lists, dictionaries, lists in lists, one value twice over and over, and places in the memo, for
    // ever.
    for again in [&b"("[..], b"]", b"}", b"](", b"2", b"](h\x00e2a", b"\x94Nh\x00"] {
        let head = &b"\x80\x02]q\x00"[..];
        let again = Again { bytes: again, at: 0 };
        let error = few.parse(head.chain(again)).expect_err("endless");
        assert!(matches!(error.fault, TraceFault::TooMuchData(_) | TraceFault::Exploding { .. }), "{error}");
        assert!(error.to_string().contains("bytes of memory"), "{error}");
    }
    // Text that says to be longer than anything.
    for head in [
        &b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x80\x02X\xff\xff\xff\xff",
        b"\x80\x02\x8b\xff\xff\xff\xff",
    ] {
        assert!(matches!(few.parse(head).expect_err("cut off").fault, TraceFault::CutOff(_)));
    }
    // A list in itself, and so deep that whatever recurs does not come back.
    let circle = b"\x80\x02]q\x00(h\x00h\x00e.";
    assert!(few.parse(&circle[..]).is_err());
    let deep = [&b"\x80\x02"[..], &b"]".repeat(500_000), &b"a".repeat(499_999), b"."].concat();
    assert!(few.parse(&deep[..]).is_err());

    let error = Import::new().max_events(6).parse(SNAPSHOT).expect_err("7 events");
    assert!(matches!(error.fault, TraceFault::TooManyEvents(6)), "{error}");
    let error = Import::new().max_events(5).parse(RMM).expect_err("6 events");
    assert!(matches!(error.fault, TraceFault::TooManyEvents(5)) && error.place.line.is_some(), "{error}");
}

/// The same bytes for ever.
struct Again {
    bytes: &'static [u8],
    at: usize,
}

impl Read for Again {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        for byte in bytes.iter_mut() {
            *byte = self.bytes[self.at % self.bytes.len()];
            self.at += 1;
        }
        Ok(bytes.len())
    }
}

#[test]
fn gzip_and_names_of_files_determine_compression() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = Import::new().parse(SNAPSHOT).expect("a snapshot");
    for format in FORMATS {
        for name in ["plain.x", "compressed.x.gz"] {
            let path = folder.path().join(name);
            Export::new(format).save(&trace, &path).expect("a file");
            let bytes = std::fs::read(&path).expect("a file");
            assert_eq!(bytes.starts_with(b"\x1f\x8b"), name.ends_with(".gz"));
            let back = Import::new().read(&path).expect("a trace");
            assert_eq!(back.name(), name.split('.').next().expect("a name"));
            assert_eq!(lines(back.events()), lines(trace.events()));
        }
    }
    let error = Import::new().read(folder.path().join("none")).expect_err("no such file");
    assert!(matches!(error.fault, TraceFault::Open(_)), "{error}");
    let error = Export::new(Format::Csv).save(&trace, folder.path()).expect_err("a folder");
    assert!(matches!(error.fault, TraceFault::Folder), "{error}");
}

#[test]
fn what_has_no_addresses_is_written_as_csv_alone() {
    let text = format!("{HEADER}a,0,1000000000000000000,0,0\na,1,1000000000000000000,0,0\n");
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let csv = String::from_utf8(written(&trace, Format::Csv)).expect("text");
    assert_eq!(csv.lines().skip(1).take(2).collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
    for format in [Format::Rmm, Format::PyTorch] {
        let error = Export::new(format).write(&trace, Vec::new()).expect_err("too large");
        assert!(error.to_string().contains("event 1: no addresses are left"), "{error}");
    }
}

#[test]
fn python_reads_the_snapshots_that_are_written() {
    let Some(python) = program("python3") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot.pickle");
    let trace = Import::new().parse(SNAPSHOT).expect("a snapshot");
    Export::new(Format::PyTorch).save(&trace, &path).expect("a file");
    let program = r#"
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
(history,) = snapshot["device_traces"]
live = {}
for event in history:
    assert event["frames"] == [] and event["time_us"] >= 0
    if event["action"] == "alloc":
        assert all(a + max(s, 1) <= event["addr"] or event["addr"] + max(event["size"], 1) <= a for a, s in live.items())
        live[event["addr"]] = event["size"]
    elif event["action"] == "free_completed":
        assert live.pop(event["addr"]) == event["size"]
(segment,) = snapshot["segments"]
blocks = segment["blocks"]
assert sum(block["size"] for block in blocks) == segment["total_size"]
assert {b["address"]: b["requested_size"] for b in blocks if b["state"] == "active_allocated"} == live
assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False
assert snapshot["allocator_settings"]["max_split_size"] == -1
print([event["action"] for event in history])
for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    pickle.dump(snapshot, open(f"{sys.argv[1]}.{protocol}", "wb"), protocol=protocol)
"#;
    let output = Command::new(python).args(["-c", program]).arg(&path).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (allocate, free) = ("'alloc'", "'free_requested', 'free_completed'");
    let actions =
        ["'segment_alloc'", allocate, allocate, allocate, allocate, free, free, allocate].join(", ");
    assert_eq!(text(&output.stdout).trim(), format!("[{actions}]"));
    for protocol in 0..=5 {
        let other = folder.path().join(format!("snapshot.pickle.{protocol}"));
        let back = Import::new().read(&other).expect("a snapshot");
        assert_eq!(lines(back.events()), lines(trace.events()), "{protocol}");
    }
}
