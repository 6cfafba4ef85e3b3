//! Traces: what is read, and what is refused with which words.

use flate2::{Compression, write::GzEncoder};
use std::io::{self, Read, Write};
use std::path::Path;
use vrampool_trace::{Import, Op, Trace, TraceError, TraceFault};

const HEADER: &str = "op,id,size,stream,t_us\n";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

fn error_of(events: &str) -> TraceError {
    let end = if events.ends_with('\n') { "" } else { "\n" };
    Trace::parse(format!("{HEADER}{events}{end}").as_bytes()).expect_err(events)
}

#[test]
fn what_makes_no_sense_is_refused_by_line_field_and_remedy() {
    let long = format!("a,1,1,0,{}", "0".repeat(Trace::MAX_LINE_BYTES));
    let table: [(&str, u64, Option<&str>, &str); 26] = [
        ("x,1,1,0,0", 2, Some("op"), "write `a` for an allocation or `f` for a free"),
        ("A,1,1,0,0", 2, Some("op"), "write `a`"),
        (",1,1,0,0", 2, Some("op"), "`` is not an operation"),
        ("\n", 2, Some("op"), "write `a`"),
        ("a", 2, Some("id"), "missing; write the five fields"),
        ("a,1", 2, Some("size"), "missing"),
        ("a,1,1", 2, Some("stream"), "missing"),
        ("a,1,1,0", 2, Some("t_us"), "missing"),
        ("a,1,1,0,0,7", 2, Some("t_us"), "more fields follow the last one; write only the five fields"),
        ("a,,1,0,0", 2, Some("id"), "`` is not a number; write a whole number"),
        ("a,1,1k,0,0", 2, Some("size"), "`1k` is not a number"),
        ("a,1,+1,0,0", 2, Some("size"), "`+1` is not a number"),
        ("a,1, 1,0,0", 2, Some("size"), "` 1` is not a number"),
        ("a,1,1,0,1.5", 2, Some("t_us"), "`1.5` is not a number"),
        ("a,1,1,\u{1b}[31m,0", 2, Some("stream"), "`\\x1b[31m` is not a number"),
        ("a,1,-1,0,0", 2, Some("size"), "`-1` is negative; write a whole number"),
        ("a,1,1,-3,0", 2, Some("stream"), "`-3` is negative"),
        ("a,1,18446744073709551616,0,0", 2, Some("size"), "too large; write a whole number"),
        ("a,99999999999999999999999,1,0,0", 2, Some("id"), "too large"),
        ("a,1,1,0,0\na,1,1,0,0", 3, Some("id"), "1 is live since line 2; free it first"),
        ("f,1,1,0,0\na,1,1,0,0", 2, Some("id"), "1 was never allocated; record from the start"),
        (
            "a,1,1,0,0\nf,1,1,0,0\nf,1,1,0,0",
            4,
            Some("id"),
            "already freed in line 3; an allocation is freed once",
        ),
        (
            "a,1,5,0,0\nf,1,5,0,0\na,1,5,0,0",
            4,
            Some("id"),
            "freed in line 3; give each allocation an id of its own",
        ),
        ("a,1,18446744073709551615,0,0\na,2,1,0,0", 3, Some("size"), "exceed 2^64 - 1; check the sizes"),
        ("a,1,1,0,0\r\r\n", 2, Some("t_us"), "`0\\r` is not a number"),
        (&long, 2, None, "longer than 256 bytes; write the five fields"),
    ];
    for (events, line, field, text) in table {
        let error = error_of(events);
        assert_eq!((error.place.line, error.place.field), (Some(line), field), "{events:?}: {error}");
        let shown = error.to_string();
        assert!(
            shown.starts_with(&format!("trace, line {line}")) && shown.contains(text),
            "{events:?}: {shown}"
        );
        assert!(field.is_none_or(|field| shown.contains(&format!("field `{field}`"))), "{shown}");
    }
}

#[test]
fn the_first_line_is_the_header() {
    for text in ["\n", "a,0,1,0,0\n", "op,id,size,stream\n", "OP,ID,SIZE,STREAM,T_US\n", "\0\u{ff}\n"] {
        let error = Trace::parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.place.line, Some(1), "{error}");
        assert!(error.to_string().contains("the first line must be `op,id,size,stream,t_us,v2`"), "{error}");
    }
    let error = Trace::parse(io::empty()).expect_err("nothing");
    assert!(matches!(error.fault, TraceFault::CutOff(_)), "{error}");
    let empty = Trace::parse(HEADER.as_bytes()).expect("a trace without events");
    assert_eq!((empty.events().len(), empty.peak_requested()), (0, 0));
}

#[test]
fn line_ends_compression_and_small_reads_change_nothing() {
    /// One byte at a time.
    struct Slow<R>(R);
    impl<R: Read> Read for Slow<R> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let end = bytes.len().min(1);
            self.0.read(&mut bytes[..end])
        }
    }
    let text = format!("{HEADER}a,1,10,0,0\na,2,0,7,1\nf,1,10,0,2\na,3,5,0,2\n");
    let plain = Trace::parse(text.as_bytes()).expect("a valid trace");
    assert_eq!(plain.events().iter().map(|event| event.op).filter(|&op| op == Op::Allocate).count(), 3);
    let windows = text.replace('\n', "\r\n");
    let mut halves = gzip(&text.as_bytes()[..40]);
    halves.extend(gzip(&text.as_bytes()[40..]));
    for bytes in [text.as_bytes(), windows.as_bytes(), &gzip(windows.as_bytes()), &halves] {
        for trace in [Trace::parse(bytes), Trace::parse(Slow(bytes))] {
            assert_eq!(trace.expect("the same trace").events(), plain.events());
        }
    }
}

#[test]
fn endless_input_is_read_no_further_than_the_limits() {
    let error = Trace::parse(io::repeat(b'a')).expect_err("one endless line");
    assert!(matches!(error.fault, TraceFault::LineTooLong), "{error}");
    let error = Trace::parse(HEADER.as_bytes().chain(io::repeat(b'\0'))).expect_err("one endless line");
    assert!(matches!(error.fault, TraceFault::LineTooLong) && error.place.line == Some(2), "{error}");

    let bomb = gzip(&vec![b'7'; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    assert!(matches!(Trace::parse(&bomb[..]).expect_err("a bomb").fault, TraceFault::LineTooLong));

    /// `a,0,0,0,0`, `a,1,0,0,0` and so on, for ever.
    struct Endless {
        next: u64,
        line: Vec<u8>,
    }
    impl Read for Endless {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.line.is_empty() {
                self.line = format!("a,{},0,0,0\n", self.next).into_bytes();
                self.next += 1;
            }
            let end = bytes.len().min(self.line.len());
            bytes[..end].copy_from_slice(&self.line[..end]);
            self.line.drain(..end);
            Ok(end)
        }
    }
    let endless = Endless { next: 0, line: Vec::new() };
    let endless = HEADER.as_bytes().chain(endless);
    let error = Import::new().max_events(10_000).parse(endless).expect_err("endless");
    assert!(matches!(error.fault, TraceFault::TooManyEvents(10_000)), "{error}");
    assert_eq!(error.place.line, Some(10_002));
    assert!(error.to_string().contains("raise `max_events`"), "{error}");
}

#[test]
fn as_many_streams_as_there_can_be_and_no_more() {
    let events = |count: usize| -> String {
        (0..count).map(|n| format!("a,{n},1,{},0\n", u64::MAX - n as u64)).collect()
    };
    let text = format!("{HEADER}{}", events(Trace::MAX_STREAMS));
    assert_eq!(Trace::parse(text.as_bytes()).expect("not too many").events().len(), Trace::MAX_STREAMS);
    let error = error_of(&events(Trace::MAX_STREAMS + 1));
    assert!(
        matches!(error.fault, TraceFault::TooManyStreams(_)) && error.place.field == Some("stream"),
        "{error}"
    );
    assert!(error.to_string().contains("exceeds the maximum of 1024 streams"), "{error}");
}

#[test]
fn the_recorded_traces_are_what_their_notes_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces");
    for name in ["resnet50", "gpt2", "serve_mixed", "multistream"] {
        let notes = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("notes");
        let note = |key: &str| -> u64 {
            let (_, rest) = notes.split_once(&format!("\"{key}\": ")).expect(key);
            rest.split(',').next().and_then(|number| number.parse().ok()).expect(key)
        };
        let trace = Trace::read(folder.join(format!("{name}.csv.gz"))).expect(name);
        let count = |op| trace.events().iter().filter(|event| event.op == op).count() as u64;
        assert_eq!(trace.name(), name);
        assert_eq!(trace.peak_requested(), note("peak_requested"), "{name}");
        assert_eq!((count(Op::Allocate), count(Op::Free)), (note("allocs"), note("frees")), "{name}");
    }
}
