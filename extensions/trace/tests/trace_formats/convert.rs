//! Conversions: what is written reads back equal, or it is said what does not.

use super::{FORMATS, HEADER, essence};
use proptest::prelude::*;
use vrampool_trace::output::Output;
use vrampool_trace::{Export, Format, Import, Losses, Trace, TraceEvent};

/// Any numbers: streams of 64 bits, and days between events.
fn wide_trace(choices: &[(u8, u32, u64, u64)]) -> Trace {
    let (mut live, mut next, mut time, mut text) = (Vec::new(), 0u64, 0u64, HEADER.to_owned());
    for &(choice, size, stream, later) in choices {
        time += later >> (choice % 40 + 18);
        let stream = if choice < 40 { stream } else { stream % 3 };
        if choice % 2 == 1 && !live.is_empty() {
            let (id, size): (u64, u32) = live.swap_remove(usize::from(choice) % live.len());
            text += &format!("f,{id},{size},{stream},{time}\n");
            continue;
        }
        live.push((next, size));
        text += &format!("a,{next},{size},{stream},{time}\n");
        next += 1;
    }
    Trace::parse(text.as_bytes()).expect("a trace")
}

proptest! {
    #[test]
    fn what_is_converted_reads_back_equal_but_for_what_is_said(choices: Vec<(u8, u32, u64, u64)>) {
        let trace = wide_trace(&choices);
        let folder = tempfile::tempdir().expect("a folder");
        for format in FORMATS {
            let path = folder.path().join("out");
            let output = Output::create(&path).expect("a folder");
            let losses = Export::new(format).convert(&trace, output);
            let losses = losses.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let back = Import::new().read(&path).expect("it is a trace");
            let pairs = || trace.events().iter().zip(back.events());
            let count = |is_lost: &dyn Fn(&TraceEvent, &TraceEvent) -> bool| {
                pairs().filter(|(one, two)| is_lost(one, two)).count() as u64
            };
            prop_assert_eq!(losses.streams, count(&|one, two| one.stream != two.stream));
            prop_assert_eq!(losses.ids, 0);
            prop_assert_eq!(losses.free_sizes, 0);
            prop_assert_eq!(losses.times, 0, "{}", format);
            prop_assert!(pairs().all(|(one, two)| one.t_us == two.t_us + losses.start_us));
            prop_assert_eq!(essence(&back), essence(&trace), "{}", format);
            prop_assert!(back.warnings().is_empty(), "{}: {:?}", format, back.warnings());
            if losses == Losses::default() {
                prop_assert_eq!(back.events(), trace.events());
            }
            if format == Format::Csv {
                prop_assert_eq!(losses, Losses::default());
            }
        }
    }
}

#[test]
fn what_is_lost_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("{HEADER}a,7,8,5,100\nf,7,1,6,90\n");
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    for format in [Format::Rmm, Format::PyTorch] {
        let output = Output::create(folder.path().join("out")).expect("a folder");
        let losses = Export::new(format).convert(&trace, output).expect("it fits");
        let found = [losses.ids, losses.streams, losses.start_us, losses.times, losses.free_sizes];
        assert_eq!(found, [2, 2, 100, 1, 1], "{format}: {losses}");
        assert_eq!(losses.to_string().lines().filter(|line| line.starts_with("not kept: ")).count(), 5);
    }
}

/// Three devices: one has a history, one only a segment, one both.
#[test]
fn other_devices_of_a_snapshot_are_listed() {
    let event = |address| {
        format!("(S'action'\nS'alloc'\nS'addr'\nI{address}\nS'size'\nI8\nS'stream'\nI0\nS'time_us'\nI5\nd")
    };
    let segment = |device, address| {
        format!("(S'device'\nI{device}\nS'address'\nI{address}\nS'stream'\nI0\nS'blocks'\n(ld")
    };
    let histories = [format!("{}{}", event(1024), event(2048)), String::new(), event(4096)];
    let traces: String = histories.iter().map(|events| format!("({events}l")).collect();
    let segments = format!("({}{}{}l", segment(1, 8192), segment(2, 16384), segment(2, 32768));
    let snapshot = format!("(S'device_traces'\n({traces}lS'segments'\n{segments}d.");
    let folder = tempfile::tempdir().expect("a folder");
    for (device, first, events, segments) in [(0, 1, 1, 3), (1, 0, 3, 2), (2, 0, 2, 1)] {
        let trace = Import::new()
            .format(Format::PyTorch)
            .device(device)
            .parse(snapshot.as_bytes())
            .expect("a snapshot");
        let output = Output::create(folder.path().join("out.csv")).expect("a folder");
        let losses = Export::new(Format::Csv).convert(&trace, output).expect("it fits");
        let others = losses.other_devices;
        assert_eq!((others.first, others.events, others.segments), (first, events, segments), "{device}");
        let expected = format!(
            "not kept: {events} events and {segments} segments of other devices, from device {first} on"
        );
        assert!(losses.to_string().starts_with(&expected), "{losses}");
    }
}
