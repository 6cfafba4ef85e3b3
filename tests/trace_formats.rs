//! Traces in the formats of other programs: what is read, what is written, and what is refused.
#![cfg(feature = "trace")]

use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::process::Command;
use vrampool::trace::{
    Export, ExportError, Format, Import, Limits, Op, Trace, TraceError, TraceEvent, TraceFault,
};
use vrampool_test_support::program;

const HEADER: &str = "op,id,size,stream,t_us\n";
const FORMATS: [Format; 3] = [Format::Csv, Format::Rmm, Format::PyTorch];
const SNAPSHOT: &[u8] = include_bytes!("golden/snapshot.pickle");
const RMM: &[u8] = include_bytes!("golden/rmm.csv");

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
    assert!(matches!(error.fault, TraceFault::NoDevice { device: 2, devices: 2, .. }), "{error}");
    assert!(error.to_string().contains("choose one of its 2 devices"), "{error}");
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
        assert_eq!(error.field, Some(field), "{text:?}: {error}");
        assert_eq!(error.line, Some(text.lines().count() as u64), "{text:?}: {error}");
        assert!(error.to_string().contains(words), "{text:?}: {error}");
    }
}

#[test]
fn what_is_of_no_format_is_said_to_be_of_none() {
    for text in
        ["\n", "op,id\n", "Thread,Time\n", "{\"a\": 1}", "\u{80}\u{9}", "PK\u{3}\u{4}", "(x", "\u{1b}[2J"]
    {
        let error = refused(text.as_bytes());
        assert!(matches!(error.fault, TraceFault::Unknown { .. }), "{text:?}: {error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}

#[test]
fn nothing_in_a_pickle_is_run() {
    // `os.system("…")` in each way that there is, and what else is no plain data.
    let table: [(&[u8], &str); 12] = [
        (b"cos\nsystem\n(S'true'\ntR.", "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "STACK_GLOBAL"),
        (b"\x80\x02NNR.", "REDUCE"),
        (b"\x80\x02NNb.", "BUILD"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"\x80\x02(No.", "OBJ"),
        (b"\x80\x02NN\x81.", "NEWOBJ"),
        (b"\x80\x04NNN\x92.", "NEWOBJ_EX"),
        (b"\x80\x02NQ.", "PERSID"),
        (b"\x80\x02\x82\x01.", "EXT"),
        (b"\x80\x04\x8f.", "a set"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ];
    for (pickle, name) in table {
        let error = Import::new().format(Format::PyTorch).parse(pickle).expect_err(name);
        assert!(
            matches!(error.fault, TraceFault::Opcode { name: found, .. } if found == name),
            "{name}: {error}"
        );
        assert!(
            error.offset.is_some() && error.to_string().contains("pickles are never executed"),
            "{error}"
        );
    }
    let error = refused(b"\x80\x02NNR.");
    assert!(
        error.to_string().starts_with("trace, byte 4: the pickle has instruction 0x52 (REDUCE)"),
        "{error}"
    );
}

#[test]
fn damaged_pickles_are_refused_where_they_are_damaged() {
    let damaged: [&[u8]; 14] = [
        b"\x80\x02.",      // nothing to answer
        b"\x80\x02e.",     // items of no list
        b"\x80\x02(e.",    // likewise
        b"\x80\x02N(e.",   // to what is none
        b"\x80\x02Na.",    // likewise
        b"\x80\x02}(Nu.",  // a key without a value
        b"\x80\x02N(NNu.", // in what is no dictionary
        b"\x80\x02(s.",    // below a mark
        b"\x80\x02(00.",   // likewise
        b"\x80\x02h\x00.", // of an empty memo
        b"\x80\x02q\x00.", // nothing to remember
        b"\x80\x02gx\n.",  // no place
        b"\x80\x02\x86.",  // a pair of nothing
        b"\x80\x022.",     // twice nothing
    ];
    for pickle in damaged {
        let error = refused(pickle);
        assert!(matches!(error.fault, TraceFault::NotPickled), "{pickle:?}: {error}");
        assert!(error.offset.is_some_and(|offset| offset < pickle.len() as u64), "{pickle:?}: {error}");
    }
    let newer = Import::new().format(Format::PyTorch).parse(&b"\x80\x06."[..]).map_err(|error| error.fault);
    assert!(matches!(newer, Err(TraceFault::Protocol { protocol: 6, .. })), "{newer:?}");
    for end in 2..SNAPSHOT.len() {
        let error = refused(&SNAPSHOT[..end]);
        assert!(matches!(error.fault, TraceFault::CutOff { .. }), "{end}: {error}");
    }
}

#[test]
fn what_is_no_snapshot_is_said_to_be_none() {
    // In protocol 0, which can be read.
    let table = [
        ("(d.", "a dictionary with `device_traces`"),
        ("(dS'device_traces'\nI1\ns.", "`device_traces` is a list"),
        ("(dS'device_traces'\n(I1\nls.", "a device's trace is a list"),
        ("(dS'device_traces'\n((I1\nlls.", "an event is a dictionary"),
        ("(dS'device_traces'\n(((dlls.", "an event is a dictionary with an `action`"),
        ("(dS'device_traces'\n(((S'action'\nS'alloc'\ndlls.", "`addr` is a number"),
        ("(dS'device_traces'\n(((S'action'\nS'alloc'\nS'addr'\nNdlls.", "numbers of 64 bits"),
        (
            "(dS'device_traces'\n(((S'action'\nS'alloc'\nS'addr'\nI9\nS'size'\nI-1\ndlls.",
            "a size is not negative",
        ),
        ("(dS'segments'\n(I1\nls.", "are dictionaries"),
        ("(dS'segments'\n((dls.", "an `address` and `blocks`"),
        ("(dS'segments'\n((S'device'\nI-1\ndls.", "`device` is a number from 0"),
    ];
    for (pickle, words) in table {
        // With what else a snapshot has.
        let pickle = pickle.replacen("(dS'dev", "(dS'segments'\n(lsS'dev", 1).replacen(
            "(dS'seg",
            "(dS'device_traces'\n(lsS'seg",
            1,
        );
        let error = Import::new().format(Format::PyTorch).parse(pickle.as_bytes()).expect_err(&pickle);
        assert!(matches!(error.fault, TraceFault::Shape { .. }) || words == "a list", "{pickle}: {error}");
        assert!(error.to_string().contains(words), "{pickle}: {error}");
    }
    let addr = "S'action'\nS'alloc'\nS'addr'\nI9\nS'size'\nI1\nd";
    let twice = format!("(dS'segments'\n(lsS'device_traces'\n((({addr}({addr}lls.");
    let error = Import::new().format(Format::PyTorch).parse(twice.as_bytes()).expect_err("twice");
    assert!(matches!(error.fault, TraceFault::AddressLive { address: 9, .. }), "{error}");
    assert_eq!((error.device, error.event), (Some(0), Some(1)), "{error}");
    assert!(error.to_string().starts_with("trace, device 0, event 1: an allocation at 0x9"), "{error}");
}

#[test]
fn endless_and_exploding_pickles_are_read_no_further_than_the_limits() {
    let few = Import::new().format(Format::PyTorch).limits(Limits::default().max_events(1));
    // Marks, lists, dictionaries, lists in lists, one value twice over and over, and places in the memo, for
    // ever.
    for again in [&b"("[..], b"]", b"}", b"](", b"2", b"](h\x00e2a", b"\x94Nh\x00"] {
        let head = &b"\x80\x02]q\x00"[..];
        let again = Again { bytes: again, at: 0 };
        let error = few.parse(head.chain(again)).expect_err("endless");
        assert!(
            matches!(error.fault, TraceFault::TooMuchData { .. } | TraceFault::Exploding { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("bytes of memory"), "{error}");
    }
    // Text that says to be longer than anything.
    for head in [
        &b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x80\x02X\xff\xff\xff\xff",
        b"\x80\x02\x8b\xff\xff\xff\xff",
    ] {
        assert!(matches!(few.parse(head).expect_err("cut off").fault, TraceFault::CutOff { .. }));
    }
    // A list in itself, and so deep that whatever recurs does not come back.
    let circle = b"\x80\x02]q\x00(h\x00h\x00e.";
    assert!(few.parse(&circle[..]).is_err());
    let deep = [&b"\x80\x02"[..], &b"]".repeat(500_000), &b"a".repeat(499_999), b"."].concat();
    assert!(few.parse(&deep[..]).is_err());

    let error = Import::new().limits(Limits::default().max_events(6)).parse(SNAPSHOT).expect_err("7 events");
    assert!(matches!(error.fault, TraceFault::TooManyEvents { max: 6, .. }), "{error}");
    let error = Import::new().limits(Limits::default().max_events(5)).parse(RMM).expect_err("6 events");
    assert!(
        matches!(error.fault, TraceFault::TooManyEvents { max: 5, .. }) && error.line.is_some(),
        "{error}"
    );
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
fn gzip_and_names_of_files_tell_what_is_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = Import::new().parse(SNAPSHOT).expect("a snapshot");
    for format in FORMATS {
        for name in ["plain.x", "compressed.x.gz"] {
            let path = folder.path().join(name);
            Export::new(format).save(&trace, &path).expect("a file");
            let bytes = std::fs::read(&path).expect("a file");
            assert_eq!(bytes.starts_with(b"\x1f\x8b"), name.ends_with(".gz"));
            let back = Import::new().read(&path).expect("a trace");
            assert_eq!(
                (back.name(), back.events()),
                (name.split('.').next().expect("a name"), trace.events())
            );
            if name.ends_with(".gz") {
                let error = refused(&bytes[..bytes.len() / 2]);
                assert!(matches!(error.fault, TraceFault::CutOff { .. }), "{error}");
            }
        }
    }
    let error = Import::new().read(folder.path().join("none")).expect_err("no such file");
    assert!(matches!(error.fault, TraceFault::Open(_)), "{error}");
    let error = Export::new(Format::Csv).save(&trace, folder.path()).expect_err("a folder");
    assert!(matches!(error, ExportError::Output(_)), "{error}");
}

#[test]
fn what_has_no_addresses_is_written_as_csv_alone() {
    let text = format!("{HEADER}a,0,1000000000000000000,0,0\na,1,1000000000000000000,0,0\n");
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let csv = String::from_utf8(written(&trace, Format::Csv)).expect("text");
    assert_eq!(csv.lines().skip(1).take(2).collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
    for format in [Format::Rmm, Format::PyTorch] {
        let error = Export::new(format).write(&trace, Vec::new()).expect_err("too large");
        assert!(matches!(error, ExportError::TooLarge { event: 1, .. }), "{error}");
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
        assert_eq!(Import::new().read(&other).expect("a snapshot").events(), trace.events(), "{protocol}");
    }
}

/// A trace of whatever numbers say: each frees something live, or allocates.
fn trace_of(choices: &[(u8, u32, u8, u16)]) -> Trace {
    let (mut live, mut next, mut time, mut text) = (Vec::new(), 0, 0, HEADER.to_owned());
    for &(choice, size, stream, later) in choices {
        time += u64::from(later);
        if choice % 2 == 1 && !live.is_empty() {
            let id: u64 = live.swap_remove(usize::from(choice) % live.len());
            text += &format!("f,{id},77,{stream},{time}\n");
            continue;
        }
        next += 3;
        live.push(next);
        text += &format!("a,{next},{size},{stream},{time}\n");
    }
    Trace::parse(text.as_bytes()).expect("a trace")
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

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(choices: Vec<(u8, u32, u8, u16)>) {
        let trace = trace_of(&choices);
        for format in FORMATS {
            let back = Import::new().parse(&written(&trace, format)[..]);
            let back = back.map_err(|error| TestCaseError::fail(format!("{format}: {error}")))?;
            prop_assert_eq!(essence(&back), essence(&trace), "{}", format);
            prop_assert_eq!(back.peak_requested(), trace.peak_requested());
            if format == Format::Csv {
                prop_assert_eq!(back.events(), trace.events());
            }
            // And once more, which changes nothing.
            let again = Import::new().parse(&written(&back, format)[..]);
            let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(again.events(), back.events());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let few = Import::new().limits(Limits::default().max_events(1000));
        let _ = few.parse(&bytes[..]);
        for format in FORMATS {
            let _ = few.format(format).parse(&bytes[..]);
        }
        let _ = few.parse(&[b"\x80\x04", &bytes[..]].concat()[..]);
        let _ = few.parse(&[b"Thread,Time,Action,Pointer,Size,Stream\n", &bytes[..]].concat()[..]);
    }

    #[test]
    fn instructions_in_any_order_never_panic(
        places in prop::collection::vec((0..39usize, any::<u8>()), 0..400),
    ) {
        const PLAIN: &[u8; 39] = b"(012NIJKMFSUX]eal)t\x85\x86\x87}dsughjpqr\x94\x8a\x88\x8c.}]";
        let bytes: Vec<u8> = places.iter().flat_map(|&(place, byte)| [PLAIN[place], byte]).collect();
        let few = Import::new().format(Format::PyTorch).limits(Limits::default().max_events(1000));
        let _ = few.parse(&bytes[..]);
        let alone: Vec<u8> = places.iter().map(|&(place, _)| PLAIN[place]).collect();
        let _ = few.parse(&alone[..]);
    }

    #[test]
    fn changed_files_never_panic_and_errors_say_where(
        place: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 0..6), gone in 0..6usize,
    ) {
        let own = written(&Import::new().parse(SNAPSHOT).expect("a snapshot"), Format::PyTorch);
        for valid in [SNAPSHOT, &own, RMM] {
            let at = place.index(valid.len());
            let mut changed = valid.to_vec();
            changed.splice(at..(at + gone).min(valid.len()), bytes.iter().copied());
            if let Err(error) = Import::new().limits(Limits::default().max_events(1000)).parse(&changed[..]) {
                prop_assert!(!error.to_string().is_empty());
                prop_assert!(error.offset.is_none_or(|offset| offset <= changed.len() as u64));
                prop_assert!(error.line.is_none_or(|line| line <= changed.len() as u64));
            }
        }
    }
}
