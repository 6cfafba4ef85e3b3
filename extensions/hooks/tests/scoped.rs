//! Hooks that a thread enters and leaves.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use vrampool::backend::BackendError;
use vrampool::hooks::{Hook, HookEvent, Outcome};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};
use vrampool_hooks::Scoped;
use vrampool_test_support as _;

/// Counts requests, and what was announced and is not over.
#[derive(Debug)]
struct Counter {
    name: &'static str,
    requests: AtomicU64,
    open: Mutex<Vec<u64>>,
}

impl Counter {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, requests: AtomicU64::new(0), open: Mutex::default() })
    }

    fn begin(&self, event: &HookEvent<'_>) {
        assert_eq!(event.outcome, Outcome::Pending);
        self.open.lock().expect("no panic").push(event.id);
    }

    fn end(&self, event: &HookEvent<'_>) {
        assert_ne!(event.outcome, Outcome::Pending);
        assert_eq!(self.open.lock().expect("no panic").pop(), Some(event.id));
    }

    /// The requests, each of which is over, as is all else.
    fn requests(&self) -> u64 {
        assert!(self.open.lock().expect("no panic").is_empty());
        self.requests.load(Relaxed)
    }
}

impl Hook for Counter {
    fn name(&self) -> &str {
        self.name
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.requests.fetch_add(1, Relaxed);
        self.begin(event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.end(event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.begin(event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.end(event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.begin(event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.end(event);
    }
}

/// A thread's variables are destroyed one after the other: a destructor of the program's may need one that is
/// destroyed.
#[test]
fn a_hook_of_a_forgotten_scope_is_not_destroyed_as_its_thread_ends() {
    let hook = Counter::new("forgotten");
    let entered = Arc::clone(&hook);
    let thread = thread::spawn(|| std::mem::forget(Scoped::enter(entered).expect("a scope")));
    thread.join().expect("no panic");
    assert_eq!(Arc::strong_count(&hook), 2, "the forgotten one is left");
}

#[test]
fn a_scope_is_its_threads_own_and_ends_when_it_is_dropped() {
    let device = HostDevice::builder().memory_limit(64 << 20).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).hook(Scoped).build().expect("a pool");
    let step = || drop(pool.allocate(100, &stream).expect("memory"));
    let hooks = ["outer", "inner"].map(Counter::new);
    let enter = |which: usize| Scoped::enter(Arc::clone(&hooks[which])).expect("a scope");
    let requests = || hooks.each_ref().map(|hook| hook.requests());
    step();
    let outer = enter(0);
    let inner = enter(1);
    step();
    assert_eq!(requests(), [1, 1]);
    let error = Scoped::enter(Counter::new("outer")).expect_err("it is entered");
    assert!(
        matches!(error.backend(), Some(BackendError::InvalidArgument { argument: "hook", reason, .. }) if reason.contains("`outer`")),
        "{error}"
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            step();
            let _own = enter(0);
            step();
        });
    });
    assert_eq!(requests(), [2, 1], "the other thread's own alone");
    // Not in the order of a stack.
    drop(outer);
    step();
    assert_eq!(requests(), [2, 2]);
    let again = enter(0);
    step();
    drop((inner, again));
    step();
    assert_eq!(requests(), [3, 3]);
}
