//! Futures that wait for a device.
//!
//! wgpu calls back when it is polled. A browser polls by itself. Elsewhere a thread of the device does, which exists only while
//! futures wait.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use vrampool_backend::BackendError;
use vrampool_backend::spi::start_thread;

/// A device whose progress futures wait for.
pub(crate) trait Waited: Send + Sync + 'static {
    fn waiters(&self) -> &Waiters;

    /// Polls the device until it is done with all that was submitted.
    fn drive(&self);
}

/// Tasks to wake when the device has got further.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wakers: Vec<Waker>,
    /// Whether a thread polls the device.
    has_thread: bool,
}

impl Waiters {
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut self.0.lock().wakers);
        // Without the lock: a waker may run its task at once.
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let mut state = self.0.lock();
        if !state.wakers.iter().any(|other| other.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
    }
}

/// Waits until `is_there` is not `Ok(None)`, which the device's progress makes true.
pub(crate) async fn until<T>(
    device: &Arc<impl Waited>,
    is_there: impl Fn() -> Result<Option<T>, BackendError>,
) -> Result<T, BackendError> {
    poll_fn(|context| {
        // Asked again once the task is registered: what happens from then on wakes it.
        for is_registered in [false, true] {
            if is_registered {
                device.waiters().register(context.waker());
            }
            match is_there() {
                Ok(None) => {}
                Ok(Some(value)) => return Poll::Ready(Ok(value)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if !cfg!(target_arch = "wasm32") && !drive(device) {
            // Without a thread the task polls the device itself.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Has a thread poll the device until no future waits. Returns whether there is one.
fn drive(device: &Arc<impl Waited>) -> bool {
    let mut state = device.waiters().0.lock();
    if !state.has_thread {
        let driver = Driver(Arc::clone(device));
        let thread = std::thread::Builder::new().name("vrampool wgpu".into());
        state.has_thread = true;
        drop(state);
        let started = start_thread(|| thread.spawn(move || driver.0.drive()));
        return started.is_ok();
    }
    true
}

/// The thread's end: the code that has registered meanwhile is woken, and starts another one.
struct Driver<D: Waited>(Arc<D>);

impl<D: Waited> Drop for Driver<D> {
    fn drop(&mut self) {
        self.0.waiters().0.lock().has_thread = false;
        self.0.waiters().wake();
    }
}
