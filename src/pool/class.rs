//! The size class of a request of a pool, within what its device and its limit allow.

use crate::pool::Pool;
use vrampool_backend::Backend;

impl<B: Backend> Pool<B> {
    /// Returns the size class of a request, bytes, within what the device and the limit allow; `None` if the device
    /// never allocates as much.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::new(&HostDevice::new())?;
    /// assert_eq!(pool.class_of(5000), Some(16 << 10));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[must_use]
    pub fn class_of(&self, bytes: u64) -> Option<u64> {
        self.core().class_of(bytes)
    }

    /// Returns the bytes that the pool, or its arena, took from the device.
    pub(crate) fn taken_bytes(&self) -> u64 {
        match self.arena() {
            Some(arena) => arena.reserved_bytes(),
            None => self.core().depot().accounts.now.charged,
        }
    }
}
