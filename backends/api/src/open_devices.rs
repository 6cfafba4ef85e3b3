//! A backend's registry of open devices.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The devices that a process has open: what is opened again is another handle to the same device, so that one
/// stream has one id. Does not keep a device open.
///
/// No device is dropped under the registry's lock, so a device's destructor may call the driver. A backend
/// keeps one of these in a `static`.
pub struct OpenDevices<D> {
    /// Held from the search to the entry, so that two threads open one device once.
    opening: Mutex<()>,
    devices: Mutex<Vec<Weak<D>>>,
}

impl<D> OpenDevices<D> {
    /// An empty registry.
    #[must_use]
    pub const fn new() -> Self {
        Self { opening: Mutex::new(()), devices: Mutex::new(Vec::new()) }
    }

    /// Returns the first open device that `is_it` accepts. Neither lock of the registry is held while it is
    /// called, and none while a device is opened elsewhere is waited for.
    pub fn find(&self, is_it: impl Fn(&D) -> bool) -> Option<Arc<D>> {
        // Upgraded under the lock and dropped outside: each of these may be a device's last handle.
        let alive: Vec<_> = lock(&self.devices).iter().filter_map(Weak::upgrade).collect();
        alive.into_iter().find(|device| is_it(device))
    }

    /// Returns the first open device that `is_it` accepts, else the one that `open` opens, which is entered.
    /// Other threads that open a device wait meanwhile; neither function may open one itself.
    ///
    /// # Errors
    /// Errors of `open`; no device is entered then.
    pub fn find_or_open<E>(
        &self,
        is_it: impl Fn(&D) -> bool,
        open: impl FnOnce() -> Result<D, E>,
    ) -> Result<Arc<D>, E> {
        let _alone = lock(&self.opening);
        if let Some(device) = self.find(is_it) {
            return Ok(device);
        }
        let device = Arc::new(open()?);
        let mut devices = lock(&self.devices);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(&device));
        Ok(device)
    }
}

impl<D> Default for OpenDevices<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> fmt::Debug for OpenDevices<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDevices").field("devices", &lock(&self.devices).len()).finish()
    }
}

/// A panic while a device is opened leaves the list as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn threads_that_open_one_device_get_the_same() {
        static OPEN: OpenDevices<u32> = OpenDevices::new();
        let opened = AtomicU32::new(0);
        let open = || {
            opened.fetch_add(1, Ordering::Relaxed);
            Ok::<_, ()>(7)
        };
        let devices: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| OPEN.find_or_open(|&device| device == 7, open))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic").expect("a device")).collect()
        });
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        assert!(devices.iter().all(|device| Arc::ptr_eq(device, &devices[0])));
        drop(devices);
        assert!(OPEN.find(|_| true).is_none(), "the registry keeps no device open");
    }

    #[test]
    fn a_failed_open_enters_nothing() {
        let open = OpenDevices::<u32>::new();
        assert_eq!(open.find_or_open(|_| true, || Err("no driver")), Err("no driver"));
        assert!(open.find(|_| true).is_none());
        assert_eq!(open.find_or_open(|_| true, || Ok::<_, ()>(1)).as_deref(), Ok(&1));
    }

    /// A device whose destructor asks its own registry, as one does that closes its streams.
    struct Asking(Arc<OpenDevices<Asking>>);

    impl Drop for Asking {
        fn drop(&mut self) {
            assert!(self.0.find(|_| true).is_none());
        }
    }

    #[test]
    fn a_device_is_dropped_outside_the_lock() {
        let open = Arc::new(OpenDevices::<Asking>::new());
        let own = Arc::clone(&open);
        let device = open.find_or_open(|_| false, || Ok::<_, ()>(Asking(own))).expect("a device");
        let held = Mutex::new(Some(device));
        // The search drops the last handle, its own.
        let is_it = |_: &Asking| {
            drop(lock(&held).take());
            false
        };
        assert!(open.find(is_it).is_none());
    }
}
