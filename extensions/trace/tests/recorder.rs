//! Recordings: what is in one is what the pool served, in an order in which it can have been.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use vrampool::backend::Stream as _;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Placement, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support as _;
use vrampool_trace::{
    Contradiction, Export, Format, Import, Op, Recorder, Replay, Trace, TraceEvent, TraceFault,
};

fn builder() -> PoolBuilder<HostDevice> {
    Pool::builder(&HostDevice::builder().memory_limit(1 << 40).build())
}

fn shape(events: &[TraceEvent]) -> Vec<(Op, u64, u64, u64)> {
    events.iter().map(|event| (event.op, event.id, event.size, event.stream)).collect()
}

fn trace_of(recorder: &Recorder) -> Trace {
    recorder.trace("recorded").expect("a trace")
}

#[test]
fn every_way_of_a_request_and_of_a_buffer_back_is_recorded() {
    // Tight and exact classes share lanes; others have one each. Above 1 MiB no magazine keeps anything.
    for classes in [SizeClasses::Fixed, SizeClasses::GEOMETRIC, SizeClasses::EXACT, SizeClasses::Tight] {
        for source in [Source::Direct, Source::Arena, Source::Virtual] {
            let recorder = Recorder::new();
            let builder = builder().size_classes(classes.clone()).source(source).limit(1 << 30);
            let pool = builder.hook(recorder.hook()).build().expect("a pool");
            let [one, other] = [(); 2].map(|()| pool.device().create_stream().expect("a stream"));
            let mut expected = Vec::new();
            let mut id = 0;
            for round in 0..3 {
                for bytes in [0, 1, 1000, 4096, 100_000, 8 << 20] {
                    let stream = if round == 1 { &other } else { &one };
                    let number = u64::from(round == 1);
                    let kept = pool.allocate(bytes, stream).expect("memory");
                    let pinned = pool.allocate_kind(bytes, Placement::HostVisible, stream).expect("memory");
                    let zeroed = pool.allocate_zeroed(bytes, stream).expect("memory");
                    let mut allocations =
                        [id, id + 1, id + 2].map(|id| (Op::Allocate, id, bytes, number)).to_vec();
                    expected.append(&mut allocations);
                    drop(pinned);
                    expected.push((Op::Free, id + 1, bytes, number));
                    drop(kept);
                    expected.push((Op::Free, id, bytes, number));
                    drop(zeroed);
                    expected.push((Op::Free, id + 2, bytes, number));
                    id += 3;
                }
            }
            assert!(pool.allocate(u64::MAX, &one).is_err(), "no event");
            let trace = trace_of(&recorder);
            assert_eq!(shape(trace.events()), expected, "{classes} {source}");
            assert!(trace.events().is_sorted_by_key(|event| event.t_us));
            assert_eq!(trace.peak_requested(), pool.stats().peak.requested_bytes);
            assert_eq!((recorder.events(), recorder.dropped()), (expected.len() as u64, 0));
        }
    }
}

#[test]
fn an_allocation_has_the_child_and_the_line_that_requested_it() {
    let recorder = Recorder::new();
    let pool = builder().name("root").hook(recorder.hook()).build().expect("a pool");
    let stream = pool.device().create_stream().expect("a stream");
    // More lines and children than a thread keeps at hand.
    let children: Vec<_> =
        (0..40).map(|of| pool.child(format!("child-{of}")).build().expect("a child")).collect();
    let line = line!() + 3;
    for _ in 0..2 {
        for of in children.iter().chain([&pool]) {
            drop(of.allocate(1000, &stream).expect("memory"));
        }
        thread::scope(|scope| drop(scope.spawn(|| drop(pool.allocate(10, &stream).expect("memory")))));
    }
    let number = recorder.note_allocation(10, stream.id(), "");
    recorder.note_free(number, stream.id());
    let trace = trace_of(&recorder);
    let allocations = trace.events().iter().filter(|event| event.op == Op::Allocate);
    let origins: HashSet<_> = allocations.clone().map(|event| trace.origin(event)).collect();
    assert_eq!(
        (origins.len(), trace.origins().len()),
        (43, 42),
        "40 children, 2 lines of the root, and unknown"
    );
    for event in allocations {
        let origin = trace.origin(event);
        let of = if origin.pool == "root" { line..line + 4 } else { line..line + 1 };
        let at = of.clone().any(|line| origin.site.contains(&format!("recorder.rs:{line}:")));
        assert!(at || origin.pool.is_empty() && origin.site.is_empty(), "{origin:?} is not in {of:?}");
    }
}

#[test]
fn a_file_has_the_number_of_allocations_that_its_recording_dropped() {
    let recorder = Recorder::with_events(100);
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let stream = pool.device().create_stream().expect("a stream");
    (0..500).for_each(|_| drop(pool.allocate(1000, &stream).expect("memory")));
    let trace = trace_of(&recorder);
    assert_eq!((trace.events().len(), recorder.dropped(), trace.dropped()), (100, 450, 450));
    let mut file = Vec::new();
    Export::new(Format::Csv).write(&trace, &mut file).expect("written");
    let back = Trace::parse(&*file).expect("a trace");
    assert_eq!((back.events(), back.dropped(), back.summary().dropped), (trace.events(), 450, 450));
    assert_eq!(back.warnings(), trace.warnings());
    assert!(back.warnings()[0].to_string().contains("450 allocations"), "{:?}", back.warnings());
    let error = Import::new().strict(true).parse(&*file).expect_err("strict");
    assert!(matches!(error.fault, TraceFault::Contradiction(Contradiction::Dropped, _)));
}

#[test]
fn a_recorded_run_replays_to_the_same_peak() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/traces/resnet50.csv.gz");
    let trace = Trace::read(path).expect("a trace");
    let recorder = Recorder::new();
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let passes = Replay::new(&trace).run(&pool).expect("a replay");
    let recorded = trace_of(&recorder);
    assert_eq!(recorded.peak_requested(), trace.peak_requested());
    // What is not freed in the trace the replay drops at its end.
    assert_eq!(shape(recorded.events())[..trace.events().len()], shape_of_a_file(&trace));
    let again = Replay::new(&recorded).run(&builder().build().expect("a pool")).expect("a replay");
    assert_eq!(again[0].peak_requested_bytes, passes[0].peak_requested_bytes);
}

/// With ids in the order of allocation, and each free's own size.
fn shape_of_a_file(trace: &Trace) -> Vec<(Op, u64, u64, u64)> {
    let mut ids = HashMap::new();
    let events = trace.events().iter().map(|event| {
        let next = ids.len() as u64;
        let (id, size) = *ids.entry(event.id).or_insert((next, event.size));
        (event.op, id, size, event.stream)
    });
    events.collect()
}

#[test]
fn what_threads_hand_to_each_other_is_freed_behind_its_allocation() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5000;
    let recorder = Recorder::new();
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let streams: Vec<_> = (0..THREADS).map(|_| pool.device().create_stream().expect("a stream")).collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for (thread, receiver) in (0..THREADS).zip(receivers) {
            let next = senders[(thread as usize + 1) % THREADS as usize].clone();
            let (pool, stream, start) = (&pool, &streams[thread as usize], &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..EACH {
                    // The size identifies the thread and the round.
                    let buffer = pool.allocate(thread * EACH + round, stream).expect("memory");
                    match round % 3 {
                        0 => drop(buffer),
                        // Or frees it itself, when the other has ended.
                        _ => drop(next.send(buffer)),
                    }
                    receiver.try_iter().take(2).for_each(drop);
                }
            });
        }
        drop(senders);
    });
    assert_eq!(recorder.dropped(), 0);
    // That it is a trace says that no free is before its allocation, and none is of another.
    let trace = trace_of(&recorder);
    let count = |op| trace.events().iter().filter(|event| event.op == op).count() as u64;
    assert_eq!((count(Op::Allocate), count(Op::Free)), (THREADS * EACH, THREADS * EACH));
    // Each thread's allocations are in its order.
    let mut last: HashMap<u64, u64> = HashMap::new();
    for event in trace.events().iter().filter(|event| event.op == Op::Allocate) {
        let (thread, round) = (event.size / EACH, event.size % EACH);
        let before = last.insert(thread, round);
        assert!(before.is_none_or(|before| before + 1 == round) && (before.is_some() || round == 0));
    }
    assert_eq!(trace.events().iter().map(|event| event.stream).collect::<HashSet<_>>().len() as u64, THREADS);
}

#[test]
fn a_recording_is_read_while_it_goes_on_and_is_always_one_that_can_have_been() {
    let recorder = Recorder::new();
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let done = AtomicBool::new(false);
    let exchanged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2u64)
            .map(|thread| {
                let (pool, exchanged, done) = (&pool, &exchanged, &done);
                scope.spawn(move || {
                    let stream = pool.device().create_stream().expect("a stream");
                    for round in 0..20_000 {
                        let buffer = pool.allocate(thread + round, &stream).expect("memory");
                        let other = match exchanged.lock() {
                            Ok(mut all) if all.len() > 20 => Some(std::mem::replace(&mut all[0], buffer)),
                            Ok(mut all) => {
                                all.push(buffer);
                                None
                            }
                            Err(_) => None,
                        };
                        drop(other);
                    }
                    done.store(true, Ordering::Relaxed);
                })
            })
            .collect();
        let mut seen = 0;
        while !done.load(Ordering::Relaxed) {
            let count = trace_of(&recorder).events().len();
            assert!(count + 64 >= seen, "{count} after {seen}");
            seen = count;
        }
        workers.into_iter().for_each(|worker| worker.join().expect("it did not panic"));
    });
    exchanged.lock().expect("no panic").clear();
    assert_eq!(trace_of(&recorder).events().len(), 80_000);
}

#[test]
fn what_has_no_room_is_left_out_whole_and_counted() {
    for (events, recorded) in [(0, 0), (1, 0), (2, 1), (9, 4), (600, 300), (3000, 1500)] {
        let recorder = Recorder::with_events(events);
        let pool = builder().hook(recorder.hook()).build().expect("a pool");
        let stream = pool.device().create_stream().expect("a stream");
        let mut held: Vec<_> = (0..2000).map(|_| pool.allocate(10, &stream).expect("memory")).collect();
        assert_eq!((recorder.events(), recorder.dropped()), (recorded, 2000 - recorded), "{events}");
        // Frees of what is in it, wherever they happen, and of nothing else.
        let half = held.split_off(1000);
        thread::scope(|scope| drop(scope.spawn(move || drop(half))));
        drop(held);
        assert_eq!((recorder.events(), recorder.dropped()), (2 * recorded, 2000 - recorded));
        let trace = trace_of(&recorder);
        assert_eq!((trace.events().len() as u64, trace.peak_requested()), (2 * recorded, 10 * recorded));
    }
    // A thread that ends returns the room that it did not use.
    let recorder = Recorder::with_events(600);
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let stream = pool.device().create_stream().expect("a stream");
    for _ in 0..300 {
        let (pool, stream) = (&pool, &stream);
        let record = || drop(pool.allocate(10, stream).expect("memory"));
        thread::scope(|scope| scope.spawn(record).join().expect("it did not panic"));
    }
    assert_eq!((recorder.events(), recorder.dropped()), (600, 0));
}

#[test]
fn pools_share_a_recorder_threads_have_several_and_pools_without_are_not_in_it() {
    let [one, other] = [(); 2].map(|()| Recorder::new());
    let pools = [&one, &one, &other].map(|recorder| builder().hook(recorder.hook()).build().expect("a pool"));
    let silent = builder().build().expect("a pool");
    for round in 0..100 {
        for (pool, bytes) in pools.iter().chain([&silent]).zip([1, 2, 3, 4]) {
            let stream = pool.device().create_stream().expect("a stream");
            drop(pool.allocate(bytes * 100 + round % 2, &stream).expect("memory"));
        }
    }
    let sizes = |recorder: &Recorder| {
        trace_of(recorder).events().iter().map(|event| event.size / 100).collect::<HashSet<_>>()
    };
    assert_eq!((sizes(&one), sizes(&other)), (HashSet::from([1, 2]), HashSet::from([3])));
    assert_eq!((one.events(), other.events()), (400, 200));
    let two = builder().hook(one.hook()).hook(other.hook()).build().map(drop).expect_err("a pool has one");
    assert!(two.to_string().contains("recorder"), "{two}");
}

#[test]
fn buffers_outlive_their_pool_and_its_recorder_s_handles() {
    let recorder = Recorder::new();
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    let stream = pool.device().create_stream().expect("a stream");
    let buffer = pool.allocate(10, &stream).expect("memory");
    drop(pool);
    drop(buffer);
    assert_eq!(recorder.events(), 2);
    let pool = builder().hook(recorder.hook()).build().expect("a pool");
    drop(recorder);
    let stream = pool.device().create_stream().expect("a stream");
    assert!(pool.allocate(10, &stream).is_ok());
}

#[test]
fn what_a_thread_does_while_it_ends_is_recorded() {
    struct AtEnd(Option<(Buffer<HostDevice>, Pool<HostDevice>)>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some((buffer, pool)) = self.0.take() {
                let stream = buffer.stream().clone();
                drop(buffer);
                drop(pool.allocate(222, &stream).expect("memory"));
            }
        }
    }
    thread_local! {
        static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
    }
    // Known to the thread before its first request, it goes after what the thread records with; known later,
    // before that.
    for is_known in [false, true] {
        let recorder = Recorder::new();
        let pool = builder().hook(recorder.hook()).build().expect("a pool");
        let stream = pool.device().create_stream().expect("a stream");
        let worker = thread::spawn(move || {
            if is_known {
                AT_END.with(|last| last.borrow_mut().0 = None);
            }
            let buffer = pool.allocate(111, &stream).expect("memory");
            AT_END.with(|last| last.borrow_mut().0 = Some((buffer, pool)));
        });
        worker.join().expect("no panic");
        let events: Vec<_> =
            trace_of(&recorder).events().iter().map(|event| (event.op, event.size)).collect();
        let expected = [(Op::Allocate, 111), (Op::Free, 111), (Op::Allocate, 222), (Op::Free, 222)];
        assert_eq!((events.as_slice(), recorder.dropped()), (&expected[..], 0), "{is_known}");
    }
}

#[test]
fn recorders_by_turns_take_no_more_room_than_one_after_the_other() {
    let recorders = [(); 3].map(|()| Recorder::with_events(1200));
    let pools = recorders.each_ref().map(|recorder| builder().hook(recorder.hook()).build().expect("a pool"));
    let streams = pools.each_ref().map(|pool| pool.device().create_stream().expect("a stream"));
    for _ in 0..600 {
        pools.iter().zip(&streams).for_each(|(pool, stream)| drop(pool.allocate(1, stream).expect("memory")));
    }
    let counts = recorders.map(|recorder| (recorder.events(), recorder.dropped()));
    assert_eq!(counts, [(1200, 0); 3]);
}
