//! A driver's pool calls hooks, which CuPy's does not.

use crate::first_device;
use std::sync::{Arc, Mutex};
use vrampool_cuda::{
    Amount, Backend, BackendError, CudaDevice, DriverPool, Hook, HookEvent, Memory, Outcome, PoolHandle,
};

/// A call: its name, the request's id, bytes asked for, rounded, the address, the outcome, the line that
/// asked.
type Call = (&'static str, u64, u64, u64, Option<u64>, Outcome, u32);

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Call>>);

impl Recorder {
    fn note(&self, call: &'static str, event: &HookEvent<'_>) {
        assert_eq!((event.pool, event.device.backend, event.site.file()), ("driver pool", "cuda", file!()));
        let line = event.site.line();
        let call =
            (call, event.id, event.requested_bytes, event.rounded_bytes, event.address, event.outcome, line);
        self.0.lock().expect("no panic").push(call);
    }

    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Hook for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.note("before request", event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.note("after request", event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.note("before allocation", event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.note("after allocation", event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.note("before free", event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.note("after free", event);
    }
}

fn hooked(device: &CudaDevice) -> (DriverPool, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let pool = DriverPool::new(device, PoolHandle::Created).expect("a pool");
    (pool.hook(Arc::clone(&recorder)).expect("its name is free"), recorder)
}

#[test]
fn a_drivers_pool_calls_hooks_for_requests_allocations_and_frees() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let (pool, recorder) = hooked(&device);
    let line = line!() + 1;
    let memory = pool.allocate_on(100, &stream).expect("memory");
    let address = memory.address();
    drop(memory);
    let calls = recorder.take();
    let id = calls.first().expect("a call").1;
    let call = |name, address, outcome| (name, id, 100, 512, address, outcome, line);
    let expected = [
        call("before request", None, Outcome::Pending),
        call("before allocation", None, Outcome::Pending),
        call("after allocation", address, Outcome::Done),
        call("after request", address, Outcome::Done),
        call("before free", address, Outcome::Pending),
        call("after free", address, Outcome::Done),
    ];
    assert_eq!(calls, expected);
    let within = stream.enter();
    drop(pool.clone().allocate(100).expect("memory of the current stream, by another handle"));
    drop(within);
    assert_eq!(recorder.take().len(), 6);
    // Freed in the order of another stream, which waits for the allocation.
    let other = device.create_stream().expect("a stream");
    let memory = pool.allocate_on(100, &stream).expect("memory");
    device.wait(&other, &device.record(&stream).expect("an event")).expect("a wait");
    device.free_on(memory, &other);
    assert_eq!(recorder.take().len(), 6);
    drop(pool.allocate_on(0, &stream).expect("no memory"));
    let names: Vec<_> = recorder.take().iter().map(|call| call.0).collect();
    assert_eq!(names, ["before request", "after request", "before free", "after free"]);
}

#[test]
fn a_request_that_fails_calls_hooks_and_names_are_unique() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let (pool, recorder) = hooked(&device);
    pool.set_limit(Amount::Bytes(512)).expect("a limit");
    assert!(pool.allocate_on(513, &stream).is_err());
    let outcomes: Vec<_> = recorder.take().iter().map(|call| (call.0, call.3, call.4, call.5)).collect();
    let before = ("before request", 1024, None, Outcome::Pending);
    assert_eq!(outcomes, [before, ("after request", 1024, None, Outcome::Failed)]);
    assert_eq!(pool.live_bytes(), 0);
    let error = pool.hook(Recorder::default()).expect_err("there is one");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "hook", .. }), "{error}");
}
