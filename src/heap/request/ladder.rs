//! The out-of-memory ladder: what is tried, in order, when the device refuses memory to a miss.

use crate::environment::UNLIMITED;
use crate::error::{Error, Forbidden, Shortage};
use crate::heap::arena::DeviceArena;
use crate::heap::request::{Request, device_pools};
use crate::heap::space::ArenaError;
use crate::heap::store::SourceMemory;
use crate::streams::Need;
use vrampool_backend::Backend;

impl<B: Backend> Request<'_, B> {
    /// Asks the source. While it is out of memory, releases least recently requested classes up to the size of
    /// the request, then all idle memory; then closes the holes of an arena; and last, trims other pools. Asks again
    /// after each. Fails before any of that if memory may not be released. The request that releases everything waits
    /// for releases in progress, and is served before later requests, here and at the driver. Nothing of this begins
    /// after the time of the request.
    pub(super) fn ask_source(&self) -> Result<SourceMemory<B>, Error> {
        let &Request { pool, key, stream, position, .. } = self;
        let supply = self.supply();
        let need = Need { requested: key.class, class: key.class };
        let ask = || match position.is_over() {
            true => Err(position.lack::<B>(need, Shortage::Deadline, None).into()),
            false => self.ask_hooked(),
        };
        let may_help = |answer: &Result<SourceMemory<B>, Error>| match answer {
            // All that is left was used by captured streams: other memory may coalesce.
            Err(Error::Capture { forbidden: Forbidden::Wait, .. }) => {
                !supply.device.is_capturing(stream).unwrap_or(true)
            }
            Err(error) => error.is_out_of_memory() && !position.is_over(),
            Ok(_) => false,
        };
        // Others were refused by the driver, and wait for what it gets back.
        if supply.asks_driver(key) && pool.depot().queue.awaits_device() && self.allow_release().is_ok() {
            position.wait_for_device();
        }
        let mut answer = ask();
        if may_help(&answer) {
            self.allow_release()?;
        }
        if may_help(&answer) && pool.evict_idle(key.class) {
            answer = ask();
        }
        if may_help(&answer) {
            position.ask_again();
            pool.evict_all(position);
            position.wait_for_device();
            answer = ask();
        }
        if let (Err(error), Some(arena)) = (&answer, supply.movable())
            && let Some(ArenaError::NoSpace { available_bytes: available, .. }) = error.arena()
            && *available >= key.class
            && !position.is_over()
        {
            pool.depot().counters.rungs.compact += 1;
            match arena.compact(UNLIMITED, stream, |_| {}) {
                // A captured stream's blocks stay. Those before them may do.
                Ok(_) | Err(Error::Capture { .. }) => {}
                Err(error) => return Err(error),
            }
            answer = ask();
        }
        if may_help(&answer) && self.may_lack_memory_of_others(&answer) && device_pools::trim(pool) > 0 {
            pool.depot().counters.rungs.trim += 1;
            answer = ask();
        }
        answer
    }

    /// Whether idle memory of other pools may be the missing memory.
    fn may_lack_memory_of_others(&self, answer: &Result<SourceMemory<B>, Error>) -> bool {
        let is_of_device = answer.as_ref().is_err_and(|error| error.backend().is_some());
        is_of_device
            || self.pool.is_in_tree()
            || self.supply().arena.as_ref().is_some_and(DeviceArena::is_growing)
    }
}
