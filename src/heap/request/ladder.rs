//! The out-of-memory ladder: what is tried, in order, when the device refuses memory to a miss.

use crate::environment::UNLIMITED;
use crate::error::{Cause, Error, Forbidden, OutOfMemory, Owner, Shortage};
use crate::heap::arena::DeviceArena;
use crate::heap::request::Request;
use crate::heap::request::device_pools;
use crate::heap::request::position::Position;
use crate::heap::space::ArenaError;
use crate::heap::stats::bytes_now::BytesNow;
use crate::heap::stats::outcomes::Reason;
use crate::heap::store::supply::SourceMemory;
use crate::streams::order::Need;
use vrampool_backend::{Backend, BackendError, Scarce};

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
            true => Err(position.shortage_of::<B>(need, Shortage::Deadline).into()),
            false => self.ask_hooked(),
        };
        let may_help = |answer: &Result<SourceMemory<B>, Error>| match answer {
            // All that is left was used by captured streams: other memory may coalesce.
            Err(Error::Capture { forbidden: Forbidden::Wait, .. }) => !self.is_capturing(),
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
        is_of_device || self.pool.is_in_tree() || self.supply().arena().is_some_and(DeviceArena::is_growing)
    }

    /// The shortage as the request sees it: of a device, without memory that an arena took and released in its attempt.
    fn as_seen(&self, shortage: Shortage) -> Shortage {
        let supply = self.supply();
        let is_of_memory = matches!(&shortage, Shortage::Device(error) if matches!(error.scarce(), None | Some(Scarce::Memory)));
        if !is_of_memory || supply.asks_driver(self.key) || self.position.is_over() {
            return shortage;
        }
        match supply.device.memory_info() {
            Ok(info) => Shortage::Device(BackendError::out_of_memory(self.requested, Some(info.free_bytes))),
            Err(_) => shortage,
        }
    }

    /// As [`shortage_of`](Position::shortage_of) the request. Counts and logs it as a failure, unless the request may
    /// still wait.
    pub(super) fn out_of_memory(&self, shortage: Shortage) -> Error {
        let error = self.position.shortage_of::<B>(self.need(), self.as_seen(shortage));
        if !self.position.has_deadline {
            self.position.count_out_of_memory(&error, false);
        }
        error.into()
    }
}

impl Position<'_> {
    /// Describes a lack of memory. The limit that refuses is found here.
    pub(crate) fn shortage_of<B: Backend>(&self, need: Need, shortage: Shortage) -> OutOfMemory {
        let refusing = matches!(shortage, Shortage::Limit(_)).then(|| {
            let (depot, number) = (self.pool.depot(), self.number());
            let (before, others) = (depot.queue.reserved_before(number), depot.queue.others_before(number));
            depot.accounts.refusing(need.class, before, others)
        });
        self.shortage_at::<B>(need, shortage, refusing)
    }

    /// As [`shortage_of`](Self::shortage_of), of the `refusing` limit, if there is one, and its height in the tree.
    pub(crate) fn shortage_at<B: Backend>(
        &self,
        Need { requested: requested_bytes, class: class_bytes }: Need,
        shortage: Shortage,
        refusing: Option<(usize, u64)>,
    ) -> OutOfMemory {
        let mut depot = self.pool.depot();
        let root = depot.accounts.above.len();
        let height = refusing.map_or(root, |(height, _)| height);
        let (BytesNow { live, requested, idle }, held_bytes) =
            (depot.bytes_now(), depot.accounts.now.charged);
        let waiting_bytes = depot.queue.waiting_before(self.number(), height);
        let (beside_bytes, unused_share_bytes) = depot.beside(height);
        let is_private = depot.accounts.is_private;
        drop(depot);
        let of_device = matches!(shortage, Shortage::Device(_));
        OutOfMemory {
            requested_bytes,
            class_bytes,
            live_bytes: live,
            live_requested_bytes: requested,
            idle_bytes: idle,
            held_bytes,
            unused_share_bytes,
            beside_bytes,
            waiting_bytes,
            other_pools: if of_device || self.pool.is_in_tree() {
                device_pools::holders(self.pool)
            } else {
                Vec::new()
            },
            owner: if height < root { Owner::Child } else { Owner::Pool },
            shortage: refusing.map_or(shortage, |(_, limit)| Shortage::Limit(limit)),
            is_private,
            is_limit_above: refusing.is_some_and(|(height, _)| height > 0),
            can_compact: self.pool.supply::<B>().movable().is_some(),
        }
    }

    /// Counts and logs a request that is refused for a lack of memory.
    pub(crate) fn count_out_of_memory(&self, error: &OutOfMemory, has_waited: bool) {
        self.pool.depot().counters.rungs.fail += 1;
        self.pool.count_failure(match (error.cause(), &error.shortage) {
            (Cause::Request, _) => Reason::Request,
            _ if has_waited => Reason::Timeout,
            (Cause::Fragmentation, _) => Reason::Fragmentation,
            (Cause::SharedLimit, _) | (_, Shortage::Limit(_)) => Reason::Limit,
            (_, Shortage::Arena(_)) => Reason::Arena,
            (_, Shortage::Device(_) | Shortage::Deadline) => Reason::Device,
        });
        self.pool.refusals.log(&self.pool.name, error);
    }
}
