//! Recordings of the C ABI against a naive twin: pools that are recorded from one moment to another, by
//! threads that each used another recorder last.

mod calls;

use calls::{allocate, free, ok};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::{fs, iter, ptr, thread};
use vrampool_c::boundary::Out;
use vrampool_c::*;
use vrampool_trace::{Op, Trace};

const POOLS: usize = 2;
const THREADS: usize = 3;

/// More than happen, and what each thread takes room for ahead.
const EVENTS: u64 = 4000;

#[derive(Debug, Clone)]
enum Step {
    Allocate { pool: usize, thread: usize },
    Free { which: usize, thread: usize },
    Start { pool: usize },
    Look { pool: usize },
    Stop { pool: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (pool, thread) = (0..POOLS, 0..THREADS);
    let step = prop_oneof![
        8 => (pool.clone(), thread.clone()).prop_map(|(pool, thread)| Step::Allocate { pool, thread }),
        7 => (any::<usize>(), thread).prop_map(|(which, thread)| Step::Free { which, thread }),
        2 => pool.clone().prop_map(|pool| Step::Start { pool }),
        1 => pool.clone().prop_map(|pool| Step::Look { pool }),
        1 => pool.prop_map(|pool| Step::Stop { pool }),
    ];
    prop::collection::vec(step, 0..200)
}

/// An event by its size, of which no two allocations have the same.
type Events = BTreeSet<(u64, bool)>;

/// What a pool should have recorded since its last start, the number of that, and whether it goes on.
#[derive(Default)]
struct Twin {
    started: u64,
    events: Option<Events>,
}

/// A thread that runs calls of others, which wait for them.
struct Worker(mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl Worker {
    fn spawn<'a>(scope: &'a thread::Scope<'a, '_>) -> Self {
        let (sender, orders) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        scope.spawn(move || orders.into_iter().for_each(|order| order()));
        Self(sender)
    }

    fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        self.0.send(Box::new(move || drop(answer.send(act())))).expect("it listens");
        answered.recv().expect("it answers")
    }
}

/// The events of a trace, which is freed.
fn events_of(trace: u64) -> Events {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let file = format!("recording-{}-{}.csv", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let name = CString::new(path.to_str().expect("a name")).expect("no 0");
    let csv = CString::new("csv").expect("no 0");
    let saved = vrampool_trace_save(trace, name.as_c_str().into(), csv.as_c_str().into());
    ok(saved);
    ok(vrampool_trace_free(trace));
    let read = Trace::read(&path).expect("a trace");
    fs::remove_file(&path).expect("it is there");
    let events: Events = read.events().iter().map(|event| (event.size, event.op == Op::Free)).collect();
    assert_eq!(events.len(), read.events().len(), "each once");
    events
}

fn follow(steps: &[Step]) {
    let pools: Vec<u64> =
        iter::repeat_with(|| calls::pool(c"device=host; host_capacity=1GiB")).take(POOLS).collect();
    let mut twins: [Twin; POOLS] = Default::default();
    // Address, size, pool, and the start under which it was recorded.
    let mut live: Vec<(u64, u64, usize, Option<u64>)> = Vec::new();
    let mut bytes = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = iter::repeat_with(|| Worker::spawn(scope)).take(THREADS).collect();
        for step in steps {
            match *step {
                Step::Allocate { pool, thread } => {
                    bytes += 1;
                    let (number, size) = (pools[pool], bytes);
                    let address = workers[thread].run(move || allocate(number, size, ptr::null_mut()) as u64);
                    let twin = &mut twins[pool];
                    let under = twin.events.as_mut().map(|events| {
                        events.insert((bytes, false));
                        twin.started
                    });
                    live.push((address, bytes, pool, under));
                }
                Step::Free { which, thread } if !live.is_empty() => {
                    let (address, bytes, pool, under) = live.swap_remove(which % live.len());
                    workers[thread].run(move || free(address as *mut c_void));
                    let twin = &mut twins[pool];
                    if let Some(events) = twin.events.as_mut().filter(|_| under == Some(twin.started)) {
                        events.insert((bytes, true));
                    }
                }
                Step::Free { .. } => {}
                Step::Start { pool } => {
                    let status = vrampool_record_start(pools[pool], EVENTS);
                    let twin = &mut twins[pool];
                    assert_eq!(status == Status::OK, twin.events.is_none());
                    if status == Status::OK {
                        *twin = Twin { started: twin.started + 1, events: Some(Events::new()) };
                    }
                }
                Step::Look { pool } => {
                    let (mut trace, mut dropped) = (0, 0);
                    let status =
                        vrampool_record_look(pools[pool], Out::from(&mut trace), Out::from(&mut dropped));
                    let recorded = (status == Status::OK).then(|| events_of(trace));
                    assert_eq!((recorded.as_ref(), dropped), (twins[pool].events.as_ref(), 0));
                }
                Step::Stop { pool } => {
                    let (mut trace, mut dropped) = (0, 0);
                    let status =
                        vrampool_record_stop(pools[pool], Out::from(&mut trace), Out::from(&mut dropped));
                    let recorded = (status == Status::OK).then(|| events_of(trace));
                    assert_eq!((recorded, dropped), (twins[pool].events.take(), 0));
                }
            }
        }
    });
    live.iter().for_each(|&(address, ..)| free(address as *mut c_void));
    pools.iter().for_each(|&pool| ok(vrampool_destroy(pool)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_recorded_is_what_was_served_meanwhile_and_came_back(steps in steps()) {
        follow(&steps);
    }
}
