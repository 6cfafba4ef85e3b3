//! Where a pool may live: rows of the guide's page that other suites do not test.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Pool};
use vrampool_test_support::{AuditDevice, is_inside, outcome, test_again, until};

type Static = (Pool<HostDevice>, HostStream, Mutex<Vec<Buffer<HostDevice>>>);

/// With live buffers, by threads that are never joined, and with the destructors that run at an exit.
#[test]
fn a_static_pool_serves_until_the_process_ends() {
    static POOL: OnceLock<Static> = OnceLock::new();
    if !is_inside() {
        let (code, _, errors) = outcome(&mut test_again("a_static_pool_serves_until_the_process_ends"));
        return assert_eq!(code, Some(0), "{errors}");
    }
    let (pool, stream, live) = POOL.get_or_init(|| {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        (Pool::new(&device).expect("a pool"), stream, Mutex::default())
    });
    let allocate = move || pool.allocate(1 << 20, stream).expect("memory");
    live.lock().expect("no panic").extend([allocate(), allocate()]);
    let _ = thread::spawn(move || (0..u64::MAX).for_each(|_| drop(allocate())));
    until(|| pool.stats().served.total() >= 100);
    std::process::exit(0);
}

#[test]
fn a_handle_in_a_variable_of_a_thread_calls_no_driver() {
    thread_local! {
        static HANDLE: RefCell<Option<Pool<AuditDevice<HostDevice>>>> = const { RefCell::new(None) };
    }
    let device = AuditDevice::new(HostDevice::new());
    let freed_by: Arc<Mutex<Vec<_>>> = Arc::default();
    let seen = Arc::clone(&freed_by);
    device.on_drop(move || seen.lock().expect("no panic").push(thread::current().id()));
    let pool = Pool::new(&device).expect("a pool");
    let worker = thread::spawn({
        let (pool, device) = (pool.clone(), device.clone());
        move || {
            let stream = device.create_stream().expect("a stream");
            drop(pool.allocate(4096, &stream).expect("memory"));
            HANDLE.set(Some(pool));
            thread::current().id()
        }
    });
    let id = worker.join().expect("no panic");
    assert_eq!(pool.stats().idle_bytes, 4096, "it serves other threads");
    drop(pool);
    assert!(!freed_by.lock().expect("no panic").contains(&id), "the thread released memory as it ended");
    assert_eq!(device.taken(), 0);
    device.forget_hook();
}
