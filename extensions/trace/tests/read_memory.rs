//! The memory and the processor time that reading takes: within what the documentation says, and what the
//! file's length allows.
#![cfg(unix)]

use flate2::{Compression, write::GzEncoder};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vrampool_trace::{Export, Format, Import, Trace, TraceError, TraceFault, fitted};

/// Bytes that are allocated, and the most that were.
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grow(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes as u64, Relaxed) + bytes as u64, Relaxed);
}

// SAFETY: all is the system's; beside it numbers are counted, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
    // Growing is a new allocation and a copy: both count while it goes on.
}

const MIB: u64 = 1 << 20;

/// The most processor time for a MiB: without optimisation, many times what it takes with it.
const MOST_TIME: Duration = Duration::from_secs(10);

/// The most bytes that reading took beside what there was. Checks the time.
fn peak(import: Import, bytes: &[u8]) -> (u64, Result<Trace, TraceError>) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let outcome = in_time(bytes.len(), || import.parse(bytes));
    (PEAK.load(Relaxed) - before, outcome)
}

/// Processor time of this thread, which is the same on a busy machine.
fn own_time() -> Duration {
    // SAFETY: all zeros are a time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one time, which lives here.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reading so many bytes takes no more time than they may. Of what is compressed a thousandth is left at most.
fn in_time<T>(bytes: usize, read: impl FnOnce() -> T) -> T {
    let before = own_time();
    let outcome = read();
    let took = own_time() - before;
    let most = MOST_TIME * (bytes as u64 / MIB) as u32 + MOST_TIME;
    assert!(took <= most, "{took:?} for {bytes} bytes");
    outcome
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// As many of them as make so many bytes.
fn again(bytes: &[u8], length: u64) -> Vec<u8> {
    bytes.repeat(length as usize / bytes.len())
}

/// Pickles that take much and mean little, of about so many bytes.
fn hostile_pickles(length: u64) -> Vec<(&'static str, Vec<u8>)> {
    let pickle = |head: &[u8], body: Vec<u8>| [b"\x80\x02", head, &body].concat();
    // An event with a key over and over, and that event over and over.
    let keys = [
        &b"}q\x00(X\x06\x00\x00\x00actionq\x01X\x05\x00\x00\x00allocq\x02"[..],
        &again(b"h\x01h\x02", length / 2),
        b"u0",
    ]
    .concat();
    let twice = [
        &keys[..],
        b"}(X\x0d\x00\x00\x00device_traces](](",
        &again(b"h\x00", length / 2),
        b"eeX\x08\x00\x00\x00segments]u.",
    ]
    .concat();
    // A segment with many blocks, over and over.
    let block = b"}q\x00(X\x04\x00\x00\x00sizeK\x00u0";
    let segment = b"}q\x01(X\x07\x00\x00\x00addressK\x00X\x06\x00\x00\x00blocks](";
    let segments =
        [&block[..], segment, &again(b"h\x00", length / 2), b"eu0](", &again(b"h\x01", length / 2), b"e."]
            .concat();
    // A list of frames, each with a name; and names that differ.
    let frames = |names: Vec<u8>| {
        let keys = b"X\x04\x00\x00\x00nameq\x000X\x06\x00\x00\x00framesq\x010}h\x01](";
        pickle(keys, [names, b"es.".to_vec()].concat())
    };
    let names = (0..length as u32 / 13)
        .flat_map(|n| [b"}h\x00X\x04\x00\x00\x00", &n.to_le_bytes()[..], b"s"].concat());
    vec![
        ("frames", frames(again(b"}h\x00X\x01\x00\x00\x00as", length))),
        ("frames of other names", frames(names.collect())),
        ("marks", pickle(b"", again(b"(", length))),
        ("nothings", pickle(b"", again(b"N", length))),
        ("lists", pickle(b"", again(b"]", length))),
        ("dictionaries", pickle(b"", again(b"}", length))),
        ("lists in lists", pickle(b"]", again(b"]a](", length))),
        ("one list that grows", pickle(b"](", again(b"N", length))),
        ("places in the memo", pickle(b"N", again(b"\x94", length))),
        (
            "scattered places",
            pickle(
                b"N",
                (0..length as u32 / 5)
                    .flat_map(|n| [&b"r"[..], &n.wrapping_mul(7919).to_le_bytes()].concat())
                    .collect(),
            ),
        ),
        ("large numbers", pickle(b"", again(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", length))),
        ("two in a list", pickle(b"N", again(b"2\x86", length))),
        ("one key over and over", pickle(b"", twice)),
        ("one list of blocks over and over", pickle(b"", segments)),
    ]
}

/// One test, since others would count too.
#[test]
fn reading_keeps_to_its_bounds() {
    let pytorch = Import::new().format(Format::PyTorch);
    for (name, pickle) in hostile_pickles(MIB) {
        for (import, bytes) in [(pytorch, &pickle), (pytorch, &gzip(&pickle))] {
            let (peak, outcome) = peak(import, bytes);
            assert!(peak <= MIB + 32 * pickle.len() as u64, "{name}: {peak} bytes of {}", pickle.len());
            assert!(outcome.is_err(), "{name}");
        }
    }
    for (name, pickle) in hostile_pickles(12 * MIB) {
        let few = pytorch.max_events(1000);
        let (peak, outcome) = peak(few, &gzip(&pickle));
        assert!(peak <= 64 * MIB + 512 * 1000, "{name}: {peak} bytes");
        let error = outcome.expect_err(name);
        assert!(!matches!(error.fault, TraceFault::OutOfMemory(_)), "{name}: {error}");
    }
    texts_keep_to_their_bounds();
    hostile_texts_are_read_in_time();
    real_traces_are_well_within_the_bounds();
}

fn texts_keep_to_their_bounds() {
    let csv: String = (0..80_000).map(|id| format!("a,{id},1,0,0\n")).collect();
    let csv = format!("op,id,size,stream,t_us\n{csv}");
    let log: String = (0..60_000).map(|id| format!(",0,free,{id},1,0\n")).collect();
    let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{log}");
    for (name, text, per_event) in [("csv", csv, 160), ("rmm", log, 256)] {
        assert!(text.len() as u64 <= MIB + MIB / 8, "{name}: {} bytes", text.len());
        let (peak, outcome) = peak(Import::new(), text.as_bytes());
        let events = outcome.expect(name).events().len() as u64;
        assert!(peak <= MIB + 16 * text.len() as u64, "{name}: {peak} bytes of {}", text.len());
        assert!(peak <= MIB + per_event * events, "{name}: {peak} bytes for {events} events");
    }
}

/// Texts that are long and mean little, as each format and as a file of classes.
fn hostile_texts_are_read_in_time() {
    let csv = |line: &str| [b"op,id,size,stream,t_us\n", &again(line.as_bytes(), MIB)[..]].concat();
    let rmm =
        |line: &str| [b"Thread,Time,Action,Pointer,Size,Stream\n", &again(line.as_bytes(), MIB)[..]].concat();
    let classes = |line: &str| [b"vrampool fitted classes 1\n", &again(line.as_bytes(), MIB)[..]].concat();
    let texts = [
        csv("a,1,1,0,0\n"),
        csv("a,1,1,0,0\nf,1,1,0,0\n"),
        csv("f,7,1,0,0\n"),
        csv(","),
        csv("\n"),
        rmm(",0,allocate,1,1,0\n"),
        rmm(",0,allocate,1,1,0\n,0,free,1,1,0\n"),
        rmm(","),
        classes("512\n"),
        classes("#"),
        classes("# \n"),
        classes("\n"),
        classes("9"),
        again(b"\n", MIB),
        again(b"{", MIB),
        again(b"[[", MIB),
    ];
    for text in &texts {
        for format in [Format::Csv, Format::Rmm, Format::PyTorch] {
            let (peak, _) = peak(Import::new().format(format), text);
            assert!(peak <= 20 * text.len() as u64 + MIB, "{peak} bytes of {}", text.len());
        }
        let _ = peak(Import::new(), text);
        let _ = in_time(text.len(), || fitted::parse(&text[..]));
    }
}

/// And the smallest events there are.
fn real_traces_are_well_within_the_bounds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/traces");
    let small: String = (0..100_000).map(|id| format!("a,{id},1,0,0\n")).collect();
    let small = Trace::parse(format!("op,id,size,stream,t_us\n{small}").as_bytes()).expect("a trace");
    let real = Trace::read(format!("{folder}/gpt2.csv.gz")).expect("a trace");
    for trace in [small, real] {
        let mut snapshot = Vec::new();
        Export::new(Format::PyTorch).write(&trace, &mut snapshot).expect("memory takes everything");
        let (peak, outcome) = peak(Import::new(), &snapshot);
        assert_eq!(outcome.expect("a trace").events().len(), trace.events().len());
        assert!(peak <= 14 * snapshot.len() as u64, "{peak} bytes of {}", snapshot.len());
        assert!(
            peak <= 512 * trace.events().len() as u64,
            "{peak} bytes for {} events",
            trace.events().len()
        );
    }
}
