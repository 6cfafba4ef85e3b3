//! Traces that contradict themselves: counted and shown, errors to a strict reader, and never an allocation
//! that nothing made.

use vrampool_trace::{Export, Format, Import, Op, Trace, TraceFault};

/// Whether it is a free, and the size.
fn events(trace: &Trace) -> Vec<(bool, u64)> {
    trace.events().iter().map(|event| (event.op == Op::Free, event.size)).collect()
}

/// Of logs, and of pickles in a protocol whose first bytes could be anything's.
fn import(bytes: &[u8]) -> Import {
    if bytes.starts_with(b"(") { Import::new().format(Format::PyTorch) } else { Import::new() }
}

/// Events, warnings with their counts, and the peak.
type Read = (Vec<(bool, u64)>, Vec<(String, u64)>, u64);

/// Reads it, and that a strict reader says the first warning as an error.
fn read(bytes: &[u8]) -> Read {
    let trace = import(bytes).parse(bytes).expect("a trace");
    if let [first, ..] = trace.warnings() {
        let error = import(bytes).strict(true).parse(bytes).expect_err("strict");
        assert!(
            matches!(error.fault, TraceFault::Contradiction(contradiction) if contradiction == first.contradiction),
            "{error}"
        );
        assert!(error.to_string().contains("or read the trace without `strict`"), "{error}");
        assert_eq!((error.line, error.device, error.event), (first.line, first.device, first.event));
        assert!(first.to_string().contains(&first.contradiction.to_string()));
    } else {
        assert!(import(bytes).strict(true).parse(bytes).is_ok());
    }
    let warnings = trace
        .warnings()
        .iter()
        .map(|warning| (format!("{:?}", warning.contradiction), warning.count))
        .collect();
    (events(&trace), warnings, trace.peak_requested())
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
    assert_eq!(warnings, [("FreedTwice { address: 16 }".into(), 2)]);
    let trace = Import::new().parse(&log(&lines)[..]).expect("a trace");
    let shown = trace.warnings()[0].to_string();
    assert!(
        shown.starts_with("line 4: 0x10 is freed a second time") && shown.ends_with("(2 times)"),
        "{shown}"
    );
}

#[test]
fn overlaps_other_sizes_and_times_that_go_back_are_reported() {
    let overlap = ["7,1,allocate,0x10,32,0", "7,2,allocate,0x20,32,0"];
    assert_eq!(read(&log(&overlap)).1, [("Overlap { address: 32, size: 32, other: 16 }".into(), 1)]);
    let above = ["7,1,allocate,0x20,32,0", "7,2,allocate,0x10,32,0"];
    assert_eq!(read(&log(&above)).1, [("Overlap { address: 16, size: 32, other: 32 }".into(), 1)]);
    // Not what is beside it, nor what was freed.
    let beside = ["7,1,allocate,0x10,16,0", "7,2,allocate,0x20,16,0", "7,3,free,0x10,16,0"];
    assert_eq!(read(&log(&[&beside[..], &["7,4,allocate,0x08,24,0"]].concat())).1, []);
    // With what was there before, which is known at its free.
    let before = ["7,1,allocate,0x10,32,0", "7,2,free,0x0c,8,0"];
    assert_eq!(read(&log(&before)).1, [("Overlap { address: 16, size: 32, other: 12 }".into(), 1)]);
    let size = ["7,1,allocate,0x10,32,0", "7,2,free,0x10,31,0"];
    let (events, warnings, _) = read(&log(&size));
    assert_eq!(events, [(false, 32), (true, 32)]);
    assert_eq!(warnings, [("OtherSize { address: 16, allocated: 32, freed: 31 }".into(), 1)]);
    let back = ["7,5,allocate,0x10,32,0", "7,4,free,0x10,32,0"];
    assert_eq!(read(&log(&back)).1, [("TimeGoesBack { by_us: 1000000 }".into(), 1)]);
}

/// The same in a file of this crate's format, of both versions.
#[test]
fn traces_of_our_own_are_held_to_the_same() {
    let read_lines = |lines: &str| {
        let (events, mut warnings, _) = read(format!("op,id,size,stream,t_us\n{lines}").as_bytes());
        assert_eq!(warnings.pop(), Some(("Uncounted".into(), 1)));
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
    assert_eq!(warnings, [("FreeOfOtherSize { id: 7, allocated: 32, freed: 31 }".into(), 1)]);
    let (_, warnings) = read_lines("a,0,32,0,5\na,1,32,0,3\nf,0,32,0,4\nf,1,0,0,1\n");
    let expected =
        [("TimeGoesBack { by_us: 2 }", 2), ("FreeOfOtherSize { id: 1, allocated: 32, freed: 0 }", 1)];
    assert_eq!(warnings, expected.map(|(warning, count)| (warning.to_owned(), count)));
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
    assert_eq!((events.len(), warnings, peak), (2, vec![("FreedTwice { address: 4096 }".into(), 1)], 64));
    let (_, warnings, _) = read(&snapshot(&more(event("alloc", 8192, 64, 2)), &[]));
    assert_eq!(warnings, [("TimeGoesBack { by_us: 4 }".into(), 1)]);
    let (events, warnings, _) = read(&snapshot(&more(event("allok", 8192, 64, 7)), &[]));
    assert_eq!((events.len(), warnings), (2, vec![("UnknownAction".into(), 1)]));
    let block = "((S'size'\nI512\nS'requested_size'\nI64\nS'state'\nS'active_allocated'\ndl";
    let (events, warnings, _) = read(&snapshot(&history, &[segment(block)]));
    assert_eq!((events.len(), warnings), (2, vec![("FreedAndLive { address: 4096 }".into(), 1)]));
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
        assert!(matches!(error.fault, TraceFault::DeviceOfNothing { device: 0, .. }), "{error}");
    }
}
