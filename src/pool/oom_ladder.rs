//! The out-of-memory ladder: what is tried, in order, when the device refuses memory to a miss.

use crate::arena::engine::ArenaError;
use crate::cache::core::PoolCore;
use crate::cache::oom_rung::Rung;
use crate::cache::reservation::Turn;
use crate::environment::UNLIMITED;
use crate::error::{Error, Forbidden, OutOfMemory, Owner, Shortage};
use crate::source::{Key, SourceMemory};
use vrampool_backend::Backend;
use vrampool_backend::spi::Announced;

impl PoolCore {
    /// Asks the source; while it is out of memory, gives back least recently requested classes of the size
    /// asked for, then everything, and asks again; and last, closes the holes of an arena. `relief` is asked
    /// before any of that. Whoever gives everything back waits for memory on its way back, and asks before
    /// those who come later, here or at the driver.
    pub(super) fn ask_source<B: Backend>(
        &self,
        key: Key,
        stream: &B::Stream,
        request: Option<&Announced<'_>>,
        relief: impl Fn() -> Result<(), Error>,
    ) -> Result<SourceMemory<B>, Error> {
        let ask = || self.ask_hooked::<B>(key, stream, request);
        let may_help = |answer: &Result<SourceMemory<B>, Error>| match answer {
            // All that is left was used by captured streams: other memory may coalesce.
            Err(Error::Capture { forbidden: Forbidden::Wait, .. }) => !self.is_capturing::<B>(stream),
            Err(error) => error.is_out_of_memory(),
            Ok(_) => false,
        };
        // Others were refused by the driver, and wait for what it gets back.
        let is_late =
            self.supply::<B>().asks_driver(key) && !self.depot().turns.is_empty() && relief().is_ok();
        let mut turn = if is_late { Turn::begin(self) } else { None };
        turn.iter().for_each(Turn::wait);
        let mut answer = ask();
        if may_help(&answer) {
            relief()?;
        }
        if may_help(&answer) && self.relieve(key.class) {
            answer = ask();
        }
        if may_help(&answer) {
            turn = turn.or_else(|| Turn::begin(self));
            self.relieve_wholly();
            turn.iter().for_each(Turn::wait);
            answer = ask();
        }
        if let (Err(error), Some(arena)) = (&answer, self.supply::<B>().movable())
            && let Some(ArenaError::NoSpace { available_bytes: available, .. }) = error.arena()
            && *available >= key.class
        {
            self.depot().count(Rung::Compact);
            match arena.compact(UNLIMITED, stream, |_| {}) {
                // A captured stream's blocks stay. Those before them may do.
                Ok(_) | Err(Error::Capture { .. }) => {}
                Err(error) => return Err(error),
            }
            answer = ask();
        }
        answer
    }

    /// Describes a lack of memory, and counts it as a failure, unless the request may still wait.
    pub(super) fn out_of_memory(
        &self,
        key: Key,
        requested: u64,
        waiter: Option<u64>,
        shortage: Shortage,
    ) -> Error {
        let stats = self.depot().stats();
        if waiter.is_none() {
            self.count_out_of_memory(&shortage);
        }
        Error::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: requested,
            class_bytes: key.class,
            live_bytes: stats.live_bytes,
            idle_bytes: stats.idle_bytes,
            held_bytes: stats.held_bytes + stats.source.in_transit_bytes,
            owner: Owner::Pool,
            shortage,
        }))
    }

    pub(super) fn count_out_of_memory(&self, shortage: &Shortage) {
        let mut depot = self.depot();
        depot.count(Rung::Fail);
        match shortage {
            Shortage::Limit(_) => depot.counters.failed.by_limit += 1,
            Shortage::Device(_) | Shortage::Arena(_) => depot.counters.failed.by_device += 1,
        }
    }
}
