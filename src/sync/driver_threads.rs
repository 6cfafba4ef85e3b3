//! Threads that call the driver where the caller must not: for a request with a deadline, which a call may outlast, and
//! for a thread that ends.
//!
//! A thread is started when all others are busy, at most [`MOST`] of them, and ends after [`REST`] without work.

use crate::sync::{GlobalCondvar, GlobalMutex, Instant};
use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vrampool_backend::spi::start_thread;

/// The most threads at a time.
const MOST: usize = 32;

/// Time without work after which a thread ends.
const REST: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

struct DriverThreads {
    /// Oldest first.
    work: VecDeque<Work>,
    idle: usize,
    count: usize,
}

static THREADS: GlobalMutex<DriverThreads> =
    GlobalMutex::new(DriverThreads { work: VecDeque::new(), idle: 0, count: 0 });

thread_local! {
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of them. They keep no magazines.
pub(crate) fn is_one() -> bool {
    IS_ONE.get()
}

/// Signalled when there is work.
static ADDED: GlobalCondvar = GlobalCondvar::new();

/// The state of a [call](call).
enum Call<W, T> {
    Waiting(W),
    Running,
    Done(thread::Result<T>),
    /// The caller does not wait any more.
    Abandoned,
}

/// Returns the result of `work`, which is done on another thread, or `None` if it takes longer than until `end`. A
/// result that comes later is dropped there, and work that has not begun until then is dropped here. If no thread can be
/// started, this thread does the work.
pub(crate) fn call<W, T>(end: Instant, work: W) -> Option<T>
where
    W: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let call = Arc::new((GlobalMutex::new(Call::Waiting(work)), GlobalCondvar::new()));
    let refused = add({
        let call = Arc::clone(&call);
        Box::new(move || {
            let Call::Waiting(work) = advance(&call.0, Call::Running) else { return };
            let done = catch_unwind(AssertUnwindSafe(work));
            drop(advance(&call.0, Call::Done(done)));
            call.1.notify_all();
        })
    });
    refused.into_iter().for_each(|work| work());
    let mut state = call.0.lock();
    // Where no thread can be started, as in a page, it is done, and the lock's clock panics there.
    if !matches!(*state, Call::Done(_)) {
        let left = end.saturating_duration_since(Instant::now());
        call.1.wait_while_for(&mut state, |state| !matches!(state, Call::Done(_)), left);
    }
    let last = mem::replace(&mut *state, Call::Abandoned);
    drop(state);
    match last {
        Call::Done(Ok(result)) => Some(result),
        Call::Done(Err(panic)) => resume_unwind(panic),
        Call::Waiting(_) | Call::Running | Call::Abandoned => None,
    }
}

/// Sets the state of a call, and returns the one before. If the caller does not wait any more, returns `next`: it is
/// dropped without the lock.
fn advance<W, T>(state: &GlobalMutex<Call<W, T>>, next: Call<W, T>) -> Call<W, T> {
    let mut state = state.lock();
    match *state {
        Call::Abandoned => next,
        _ => mem::replace(&mut *state, next),
    }
}

/// Has a thread do `work`. Returns it if none can be started.
pub(crate) fn add(work: Work) -> Option<Work> {
    let mut threads = THREADS.lock();
    if threads.idle <= threads.work.len() && threads.count < MOST && start() {
        threads.count += 1;
    }
    if threads.count == 0 {
        return Some(work);
    }
    threads.work.push_back(work);
    drop(threads);
    ADDED.notify_one();
    None
}

/// Starts a thread. Returns whether it runs. A model runs its own threads only.
fn start() -> bool {
    let builder = thread::Builder::new().name("vrampool driver".into());
    // A start may need local variables of this thread, which may be destroyed already.
    let start = || start_thread(|| builder.spawn(run)).is_ok();
    !cfg!(model) && catch_unwind(AssertUnwindSafe(start)).unwrap_or(false)
}

fn run() {
    IS_ONE.set(true);
    let mut threads = THREADS.lock();
    loop {
        if let Some(work) = threads.work.pop_front() {
            drop(threads);
            // The panic of a destructor is printed.
            let _ = catch_unwind(AssertUnwindSafe(work));
            threads = THREADS.lock();
            continue;
        }
        threads.idle += 1;
        let has_rested = ADDED.wait_for(&mut threads, REST).timed_out();
        threads.idle -= 1;
        if has_rested && threads.work.is_empty() {
            threads.count -= 1;
            return;
        }
    }
}
