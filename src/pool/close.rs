//! The end of all requests of a pool.

use crate::heap::Life;
use crate::pool::Pool;
use vrampool_backend::{Backend, fork};

impl<B: Backend> Pool<B> {
    /// Closes the pool for all its handles: from now on requests, those that wait included, fail with
    /// [`Error::Closed`](crate::Error::Closed), idle memory is released, and buffers that are still live release theirs
    /// when they are dropped. So it does for the pool's children; [private](crate::PoolBuilder::private) ones keep
    /// their memory until they are dropped. A pool that is closed stays closed.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::new(&device)?;
    /// let live = pool.allocate(4096, &stream)?;
    /// drop(pool.allocate(4096, &stream)?);
    /// pool.close();
    /// assert_eq!(pool.stats().idle_bytes, 0);
    /// assert!(matches!(pool.allocate(4096, &stream), Err(Error::Closed)));
    /// drop(live);
    /// assert_eq!(pool.stats().held_bytes, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close(&self) {
        if fork::is_forked() {
            return;
        }
        let core = self.core();
        core.close();
        // After that of this pool, whose later children are closed, too.
        core.descendants().iter().for_each(|core| core.close());
        self.log_kept(self.trim_to(0).map(drop));
    }

    /// Whether the pool was [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // In a forked child the lock may be held for ever.
        !fork::is_forked() && self.core().depot().life == Life::Closed
    }
}
