//! Traces that contradict themselves: counted and shown, errors to a strict reader, and never an allocation
//! that nothing made.

use vrampool_trace::{Contradiction, Export, Format, Import, Op, Trace, TraceFault, TraceWarning};

/// Whether it is a free, and the size.
fn events(trace: &Trace) -> Vec<(bool, u64)> {
    trace.events().iter().map(|event| (event.op == Op::Free, event.size)).collect()
}

/// Of logs, and of pickles in a protocol whose first bytes could be anything's.
fn import(bytes: &[u8]) -> Import {
    if bytes.starts_with(b"(") { Import::new().format(Format::PyTorch) } else { Import::new() }
}

/// Events, warnings with their texts and counts, and the peak.
type Read = (Vec<(bool, u64)>, Vec<Warning>, u64);

type Warning = (Contradiction, String, u64);

/// Whether the warnings are of these kinds, with texts that begin so, and with these counts.
fn assert_warnings(warnings: &[Warning], expected: &[(Contradiction, &str, u64)]) {
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for ((kind, text, count), of) in warnings.iter().zip(expected) {
        assert!((*kind, *count) == (of.0, of.2) && text.starts_with(of.1), "{warnings:?}, not {expected:?}");
    }
}

/// Reads it, and that a strict reader says the first warning as an error.
fn read(bytes: &[u8]) -> Read {
    let trace = import(bytes).parse(bytes).expect("a trace");
    if let [first, ..] = trace.warnings() {
        let error = import(bytes).strict(true).parse(bytes).expect_err("strict");
        assert!(
            matches!(&error.fault, TraceFault::Contradiction(kind, text) if (*kind, text) == (first.contradiction, &first.text)),
            "{error}"
        );
        assert!(error.to_string().contains("or read the trace without `strict`"), "{error}");
        assert_eq!(error.place, first.place);
        assert!(first.to_string().contains(&*first.text));
    } else {
        assert!(import(bytes).strict(true).parse(bytes).is_ok());
    }
    let of = |warning: &TraceWarning| (warning.contradiction, warning.text.to_string(), warning.count);
    (events(&trace), trace.warnings().iter().map(of).collect(), trace.peak_requested())
}

fn log(lines: &[&str]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("Thread,Time,Action,Pointer,Size,Stream\n{lines}").into()
}

#[test]
fn a_log_of_rmm_that_makes_sense_has_no_warnings() {
    let lines = [
        "7,1,allocate,0x10,16,0",
        "8,0.9,allocate,0x20,16,0",
        "7,2,free,0x10,16,0",
        "7,2,allocate,0x10,8,0",
        "7,3,free,0x40,8,0",
    ];
    assert_eq!(read(&log(&lines)).1, []);
}

#[test]
fn a_double_free_is_no_allocation() {
    let gib = 1u64 << 30;
    let lines = [
        "7,1,allocate,0x10,1073741824,0",
        "7,2,free,0x10,1073741824,0",
        "7,3,free,0x10,1073741824,0",
        "7,4,free,0x10,1073741824,0",
    ];
    let (events, warnings, peak) = read(&log(&lines));
    assert_eq!((events, peak), (vec![(false, gib), (true, gib)], gib));
    assert_warnings(&warnings, &[(Contradiction::FreedTwice, "0x10 is freed a second time", 2)]);
    let trace = Import::new().parse(&log(&lines)[..]).expect("a trace");
    let shown = trace.warnings()[0].to_string();
    assert!(
        shown.starts_with("line 4: 0x10 is freed a second time") && shown.ends_with("(2 times)"),
        "{shown}"
    );
}

#[test]
fn overlaps_other_sizes_and_times_that_go_back_are_reported() {
    let overlaps = |lines: &[&str], text: &str| {
        assert_warnings(&read(&log(lines)).1, &[(Contradiction::Overlap, text, 1)]);
    };
    let overlap = ["7,1,allocate,0x10,32,0", "7,2,allocate,0x20,32,0"];
    overlaps(&overlap, "the 32 bytes at 0x20 overlap a live allocation at 0x10");
    let above = ["7,1,allocate,0x20,32,0", "7,2,allocate,0x10,32,0"];
    overlaps(&above, "the 32 bytes at 0x10 overlap a live allocation at 0x20");
    // Not what is beside it, nor what was freed.
    let beside = ["7,1,allocate,0x10,16,0", "7,2,allocate,0x20,16,0", "7,3,free,0x10,16,0"];
    assert_eq!(read(&log(&[&beside[..], &["7,4,allocate,0x08,24,0"]].concat())).1, []);
    // With what was there before, which is known at its free.
    let before = ["7,1,allocate,0x10,32,0", "7,2,free,0x0c,8,0"];
    overlaps(&before, "the 32 bytes at 0x10 overlap a live allocation at 0xc");
    let size = ["7,1,allocate,0x10,32,0", "7,2,free,0x10,31,0"];
    let (events, warnings, _) = read(&log(&size));
    assert_eq!(events, [(false, 32), (true, 32)]);
    let other_size = "the free of 0x10 has 31 bytes, but its allocation 32";
    assert_warnings(&warnings, &[(Contradiction::OtherSize, other_size, 1)]);
    let back = ["7,5,allocate,0x10,32,0", "7,4,free,0x10,32,0"];
    let goes_back = (Contradiction::TimeGoesBack, "the time is 1000000 µs before", 1);
    assert_warnings(&read(&log(&back)).1, &[goes_back]);
}

/// The same in a file of this crate's format, of both versions.
#[test]
fn traces_of_our_own_are_held_to_the_same() {
    let read_lines = |lines: &str| {
        let (events, mut warnings, _) = read(format!("op,id,size,stream,t_us\n{lines}").as_bytes());
        let uncounted = (Contradiction::Uncounted, "the file has no last line", 1);
        assert_warnings(&warnings.split_off(warnings.len() - 1), &[uncounted]);
        let mut written = Vec::new();
        let trace = Trace::parse(format!("op,id,size,stream,t_us\n{lines}").as_bytes()).expect("a trace");
        Export::new(Format::Csv).write(&trace, &mut written).expect("written");
        assert_eq!(read(&written).1, warnings, "of the newer version");
        (events, warnings)
    };
    let good = read_lines("a,0,32,0,5\na,1,8,0,5\nf,0,32,0,7\n");
    assert_eq!(good, (vec![(false, 32), (false, 8), (true, 32)], vec![]));
    let (events, warnings) = read_lines("a,7,32,0,5\nf,7,31,0,6\n");
    assert_eq!(events, [(false, 32), (true, 31)]);
    let other_size = "the free of allocation 7 has 31 bytes, but its allocation 32";
    assert_warnings(&warnings, &[(Contradiction::OtherSize, other_size, 1)]);
    let (_, warnings) = read_lines("a,0,32,0,5\na,1,32,0,3\nf,0,32,0,4\nf,1,0,0,1\n");
    let goes_back = (Contradiction::TimeGoesBack, "the time is 2 µs before", 2);
    let other_size =
        (Contradiction::OtherSize, "the free of allocation 1 has 0 bytes, but its allocation 32", 1);
    assert_warnings(&warnings, &[goes_back, other_size]);
    let trace = Trace::parse(&b"op,id,size,stream,t_us\na,0,32,0,5\nf,0,31,0,6\n"[..]).expect("a trace");
    assert!(trace.warnings()[0].to_string().starts_with("line 3: the free of allocation 0 has 31 bytes"));
}

/// Protocol 0, which can be read.
fn event(action: &str, address: u64, size: u64, time: u64) -> String {
    format!(
        "(S'action'\nS'{action}'\nS'addr'\nI{address}\nS'size'\nI{size}\nS'stream'\nI0\nS'time_us'\nI{time}\nd"
    )
}

fn list(items: &[String]) -> String {
    format!("({}l", items.concat())
}

fn snapshot(history: &[String], segments: &[String]) -> Vec<u8> {
    format!("(S'device_traces'\n({}lS'segments'\n{}d.", list(history), list(segments)).into()
}

fn segment(blocks: &str) -> String {
    format!("(S'device'\nI0\nS'address'\nI4096\nS'blocks'\n{blocks}d")
}

#[test]
fn snapshots_are_held_to_the_same() {
    let history = [event("alloc", 4096, 64, 5), event("free_requested", 4096, 64, 6)];
    assert_eq!(read(&snapshot(&history, &[])), (vec![(false, 64), (true, 64)], vec![], 64));
    let more = |event: String| [history.to_vec(), vec![event]].concat();
    let (events, warnings, peak) = read(&snapshot(&more(event("free_requested", 4096, 64, 7)), &[]));
    assert_eq!((events.len(), peak), (2, 64));
    assert_warnings(&warnings, &[(Contradiction::FreedTwice, "0x1000 is freed a second time", 1)]);
    let (_, warnings, _) = read(&snapshot(&more(event("alloc", 8192, 64, 2)), &[]));
    assert_warnings(&warnings, &[(Contradiction::TimeGoesBack, "the time is 4 µs before", 1)]);
    let (events, warnings, _) = read(&snapshot(&more(event("allok", 8192, 64, 7)), &[]));
    assert_eq!(events.len(), 2);
    assert_warnings(&warnings, &[(Contradiction::UnknownAction, "the event has an unknown `action`", 1)]);
    let block = "((S'size'\nI512\nS'requested_size'\nI64\nS'state'\nS'active_allocated'\ndl";
    let (events, warnings, _) = read(&snapshot(&history, &[segment(block)]));
    assert_eq!(events.len(), 2);
    let both = (Contradiction::FreedAndLive, "the block at 0x1000 is live in the segments", 1);
    assert_warnings(&warnings, &[both]);
    assert_eq!(read(&snapshot(&[], &[segment(block)])).0, [(false, 64)]);
    let unknown = snapshot(&more(event("allok", 8192, 64, 7)), &[]);
    let trace = import(&unknown).parse(&unknown[..]).expect("a trace");
    assert!(trace.warnings()[0].to_string().starts_with("device 0, event 2: the event has an unknown"));
}

#[test]
fn a_damaged_snapshot_is_not_one_without_events() {
    for damaged in ["device_tracet", "segmenta"] {
        let whole = String::from_utf8(snapshot(&[event("alloc", 4096, 64, 5)], &[])).expect("text");
        let damaged = whole.replace(&damaged[..damaged.len() - 1], "x");
        let error = import(b"(").parse(damaged.as_bytes()).expect_err("damaged");
        assert!(error.to_string().contains("a dictionary with `device_traces` and `segments`"), "{error}");
    }
}

#[test]
fn what_the_memo_names_is_kept() {
    let first = list(&[event("alloc", 4096, 64, 5)]);
    let second = list(&[event("alloc", 4096, 1000, 5)]);
    let shared = format!("(S'rank0'\n{first}p0\nS'device_traces'\n(g0\n{second}lS'segments'\n(ld.");
    for import in [import(b"("), import(b"(").device(0)] {
        assert_eq!(events(&import.parse(shared.as_bytes()).expect("a snapshot")), [(false, 64)]);
    }
    let second = import(b"(").device(1).parse(shared.as_bytes()).expect("a snapshot");
    assert_eq!(events(&second), [(false, 1000)]);
}

#[test]
fn a_device_of_a_file_without_devices_is_an_error() {
    for file in [&b"op,id,size,stream,t_us\n"[..], &log(&[])] {
        let error = Import::new().device(0).parse(file).expect_err("no devices");
        assert!(error.to_string().contains("device 0 is chosen"), "{error}");
    }
}
