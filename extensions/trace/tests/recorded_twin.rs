//! A pool that is recorded beside one that is not, whatever threads and streams do to both: the same hits,
//! bytes, peaks and places. And the recording is what was done.

use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::stats::{AllocationTimes, DriverTimes, LastFailures};
use vrampool::{Backend, Buffer, Placement, Pool, SizeClasses, Source};
use vrampool_test_support::close_gate;
use vrampool_trace::{Op, Recorder};

const THREADS: usize = 3;
const STREAMS: usize = 3;

type Stream = <HostDevice as Backend>::Stream;

#[derive(Debug, Clone)]
enum Step {
    Allocate { thread: usize, bytes: u64, stream: usize, how: u8 },
    Free { thread: usize, which: usize },
    Use { which: usize, stream: usize, how: u8 },
    Trim { thread: usize, mebibytes: u64 },
    ResetPeaks { thread: usize },
    // The thread ends, and another comes.
    End { thread: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1..900u64, 1..5000u64, 1..60_000u64, 1..300_000u64, 1..3_000_000u64];
    // Half of them the newest, as programs mostly do.
    let which = prop_oneof![Just(usize::MAX), any::<usize>()];
    let (thread, stream) = (0..THREADS, 0..STREAMS);
    let step = prop_oneof![
        18 => (thread.clone(), bytes, stream.clone(), 0..10u8)
            .prop_map(|(thread, bytes, stream, how)| Step::Allocate { thread, bytes, stream, how }),
        16 => (thread.clone(), which.clone()).prop_map(|(thread, which)| Step::Free { thread, which }),
        2 => (which, stream, 0..3u8).prop_map(|(which, stream, how)| Step::Use { which, stream, how }),
        1 => (thread.clone(), 0..3u64).prop_map(|(thread, mebibytes)| Step::Trim { thread, mebibytes }),
        1 => thread.clone().prop_map(|thread| Step::ResetPeaks { thread }),
        1 => thread.prop_map(|thread| Step::End { thread }),
    ];
    prop::collection::vec(step, 0..400)
}

/// A thread that does one thing after the other; the caller goes on when it is done.
struct Worker {
    orders: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn spawn() -> Self {
        let (orders, to_do) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let thread = thread::spawn(move || to_do.into_iter().for_each(|order| order()));
        Self { orders: Some(orders), thread: Some(thread) }
    }

    fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        let order = Box::new(move || drop(answer.send(act())));
        self.orders.as_ref().expect("not ended").send(order).expect("it listens");
        answered.recv().expect("it answers")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.thread.take().expect("not ended").join().expect("no panic");
    }
}

/// One of the two pools, with threads of its own.
struct Side {
    pool: Pool<HostDevice>,
    streams: Arc<Vec<Stream>>,
    workers: Vec<Worker>,
}

impl Side {
    fn new(pool: Pool<HostDevice>) -> Self {
        let streams = (0..STREAMS).map(|_| pool.device().create_stream().expect("a stream")).collect();
        let workers = (0..THREADS).map(|_| Worker::spawn()).collect();
        Self { pool, streams: Arc::new(streams), workers }
    }

    fn allocate(&self, thread: usize, bytes: u64, stream: usize, how: u8) -> Option<Buffer<HostDevice>> {
        let (pool, streams) = (self.pool.clone(), Arc::clone(&self.streams));
        let allocated = self.workers[thread].run(move || match how {
            0 => pool.allocate_kind(bytes, Placement::HostVisible, &streams[stream]),
            1 => pool.allocate_zeroed(bytes, &streams[stream]),
            _ => pool.allocate(bytes, &streams[stream]),
        });
        allocated.ok()
    }

    /// Keeps all streams busy, so that nothing depends on how far the device gets meanwhile.
    fn close_gates(&self) -> Vec<mpsc::Sender<()>> {
        self.streams.iter().map(close_gate).collect()
    }

    /// What follows is not to depend on how far the device is.
    fn synchronize(&self) {
        self.streams.iter().for_each(|stream| self.pool.device().synchronize(stream).expect("no fault"));
    }

    fn stats(&self) -> String {
        let mut stats = self.pool.stats();
        // Times differ.
        (stats.mapping.time, stats.driver) = (Duration::ZERO, DriverTimes::default());
        stats.allocation = AllocationTimes::default();
        stats.last_failure = LastFailures::default();
        format!("{stats:?}")
    }
}

fn follow(steps: &[Step], classes: SizeClasses, source: Source, kept: usize) {
    let recorder = Recorder::with_events(1 << 16);
    let builder = || {
        let device = HostDevice::builder().memory_limit(1 << 40).build();
        let builder = Pool::builder(&device).name("twin").size_classes(classes.clone()).source(source);
        builder.limit(2 << 30).max_cached_bytes(8 << 20).max_buffers_per_bucket(kept as u64)
    };
    let mut sides =
        [builder(), builder().hook(recorder.hook())].map(|side| Side::new(side.build().expect("a pool")));
    let mut live: Vec<(u64, [Buffer<HostDevice>; 2])> = Vec::new();
    let mut done: HashMap<(bool, u64), usize> = HashMap::new();
    for step in steps {
        sides.iter().for_each(Side::synchronize);
        // A trim may wait for the device.
        let is_gated = !matches!(step, Step::Trim { .. });
        let gates: Vec<_> = sides.iter().filter(|_| is_gated).map(Side::close_gates).collect();
        let place = |which: usize| if which == usize::MAX { live.len() - 1 } else { which % live.len() };
        match *step {
            Step::Allocate { thread, bytes, stream, how } => {
                let [plain, recorded] =
                    sides.each_ref().map(|side| side.allocate(thread, bytes, stream, how));
                assert_eq!(plain.is_some(), recorded.is_some());
                if let Some(both) = plain.zip(recorded) {
                    assert_eq!(
                        (both.0.capacity(), vrampool::internal::parts(&both.0)),
                        (both.1.capacity(), vrampool::internal::parts(&both.1))
                    );
                    live.push((bytes, both.into()));
                    *done.entry((false, bytes)).or_default() += 1;
                }
            }
            Step::Free { thread, which } if !live.is_empty() => {
                let (bytes, [plain, recorded]) = live.swap_remove(place(which));
                sides[0].workers[thread].run(|| drop(plain));
                sides[1].workers[thread].run(|| drop(recorded));
                *done.entry((true, bytes)).or_default() += 1;
            }
            Step::Use { which, stream, how } if !live.is_empty() => {
                let place = place(which);
                for (side, buffer) in sides.iter().zip(&mut live[place].1) {
                    let stream = &side.streams[stream];
                    match how {
                        0 => drop(buffer.on_mut(stream).expect("no fault")),
                        1 => drop(buffer.on(stream).expect("no fault")),
                        _ => buffer.record_stream(stream).expect("no fault"),
                    }
                }
            }
            Step::Free { .. } | Step::Use { .. } => {}
            Step::Trim { thread, mebibytes } => {
                let [plain, recorded] = sides.each_ref().map(|side| {
                    let pool = side.pool.clone();
                    side.workers[thread].run(move || pool.trim_to(mebibytes << 20).expect("a trim"))
                });
                assert_eq!(plain, recorded);
            }
            Step::ResetPeaks { thread } => sides.iter().for_each(|side| {
                let pool = side.pool.clone();
                side.workers[thread].run(move || pool.reset_peaks());
            }),
            Step::End { thread } => sides.iter_mut().for_each(|side| side.workers[thread] = Worker::spawn()),
        }
        // A marker that the step recorded is in flight until the device gets to it.
        drop(gates);
        sides.iter().for_each(Side::synchronize);
        assert_eq!(sides[0].stats(), sides[1].stats());
    }
    let mut recorded: HashMap<(bool, u64), usize> = HashMap::new();
    for event in recorder.trace("twin").expect("a trace").events() {
        *recorded.entry((event.op == Op::Free, event.size)).or_default() += 1;
    }
    assert_eq!(recorded, done);
    assert_eq!(recorder.dropped(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_pool_that_is_recorded_does_as_one_that_is_not(
        steps in steps(),
        classes in prop::sample::select(vec![
            SizeClasses::Fixed,
            SizeClasses::PowerOfTwo,
            SizeClasses::GEOMETRIC,
            SizeClasses::EXACT,
            SizeClasses::Tight,
        ]),
        source in prop::sample::select(vec![Source::Direct, Source::Arena, Source::Virtual]),
        kept in prop::sample::select(vec![2, 16, 100]),
    ) {
        follow(&steps, classes, source, kept);
    }
}
