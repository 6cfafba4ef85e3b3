//! Real programs' allocations, every buffer written and verified on its stream: nothing is ever spoilt.

#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../../tests/devices/there.rs"]
mod there;

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use there::There;
use vrampool::{Backend, Pool, SizeClasses, Source};
use vrampool_trace::{Op, Replay, Trace};

const MIB: u64 = 1 << 20;
const HEADER: &str = "op,id,size,stream,t_us\n";

/// Buffers of up to so many bytes, each used on one stream after the other, and freed by another than it came
/// on.
fn wandering(most_bytes: u64) -> Trace {
    let mut csv = String::from(HEADER);
    for id in 0..2000u64 {
        csv += &format!("a,{id},{},{},0\n", (id * 7919) % most_bytes, id % 5);
        if id >= 20 {
            csv += &format!("f,{},0,{},0\n", id - 20, (id / 3) % 5);
        }
    }
    Trace::parse(csv.as_bytes()).expect("a trace")
}

#[test]
fn a_trace_of_several_streams_and_threads_spoils_nothing() {
    there::on_each(|there| {
        let trace = wandering(if there.is_fast() { 300_000 } else { 5_000 });
        for source in there.sources() {
            let pool = Pool::builder(&there.device).source(source).limit(256 * MIB).build().expect("a pool");
            let replay = || {
                let mut passes = 0;
                let replay = Replay::new(&trace).passes(2).run_touching(&pool, &there.kernels, |pass| {
                    assert_eq!(pass.corrupt_bytes, Some(0), "{}, {source}: {pass:?}", there.name);
                    passes += 1;
                    ControlFlow::Continue(())
                });
                replay.expect("a replay");
                assert_eq!(passes, 2, "{source}");
            };
            thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(replay))));
            assert_eq!(pool.stats().live_buffers, 0, "{source}");
        }
    });
}

/// Of how many events, and how many bytes in all, a device that shares the host's memory gets a part.
const EVENTS: usize = 10_000;
const BYTES: u64 = 32 * MIB;

/// The trace as it is on a device with memory of its own; elsewhere its beginning with sizes divided, so that
/// it is soon over.
fn suited(trace: Trace, there: &There) -> Option<Trace> {
    if there.is_fast() {
        let properties = there.device.properties();
        let free = there.device.memory_info().map_or(properties.total_bytes, |info| info.free_bytes);
        return (trace.peak_requested() <= free / 3).then_some(trace);
    }
    let events = &trace.events()[..trace.events().len().min(EVENTS)];
    let divisor = events.iter().map(|event| event.size).sum::<u64>().div_ceil(BYTES);
    let mut csv = String::from(HEADER);
    for event in events {
        let op = if event.op == Op::Allocate { 'a' } else { 'f' };
        csv += &format!("{op},{},{},{},0\n", event.id, event.size / divisor, event.stream);
    }
    Some(Trace::parse(csv.as_bytes()).expect("a trace"))
}

#[test]
fn recorded_programs_spoil_nothing() {
    there::on_each(|there| {
        for name in ["multistream", "resnet50", "gpt2", "serve_mixed"] {
            // At run time, because the program may have been built elsewhere.
            let folders = ["../../benches/traces", "benches/traces"].map(Path::new);
            let Some(folder) = folders.into_iter().find(|folder| folder.exists()) else {
                vrampool_test_support::skipped("benches/traces is not here");
                return;
            };
            let path = folder.join(format!("{name}.csv.gz"));
            let Some(trace) = suited(Trace::read(&path).expect("a trace"), there) else {
                vrampool_test_support::skipped(format_args!("{name} is too large for {}", there.name));
                continue;
            };
            for (source, classes) in
                [(Source::Direct, SizeClasses::Fixed), (Source::Driver, SizeClasses::GEOMETRIC)]
            {
                if !there.sources().contains(&source) {
                    continue;
                }
                let builder = Pool::builder(&there.device).source(source).size_classes(classes);
                Replay::new(&trace)
                    .run_touching(&builder.build().expect("a pool"), &there.kernels, |pass| {
                        assert_eq!(pass.corrupt_bytes, Some(0), "{}, {name}, {source}", there.name);
                        ControlFlow::Continue(())
                    })
                    .expect("a replay");
            }
        }
    });
}
