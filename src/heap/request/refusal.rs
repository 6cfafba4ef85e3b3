//! Refusals for lack of memory: their figures, and how they count. Their causes and texts are in `error`.

use crate::error::{Cause, Error, OutOfMemory, Owner, Shortage};
use crate::heap::request::{Position, Request, device_pools};
use crate::heap::stats::{MemoryNow, Reason};
use crate::streams::Need;
use vrampool_backend::{Backend, BackendError, Scarce};

impl<B: Backend> Request<'_, B> {
    /// The shortage as the request sees it: of a device, without memory that an arena took and released in its attempt.
    fn as_seen(&self, shortage: Shortage) -> Shortage {
        let supply = self.supply();
        let is_memory = |error: &BackendError| matches!(error.scarce(), None | Some(Scarce::Memory));
        let is_of_memory = matches!(&shortage, Shortage::Device(error) if is_memory(error));
        if !is_of_memory || supply.asks_driver(self.key) || self.position.is_over() {
            return shortage;
        }
        match supply.device.memory_info() {
            Ok(info) => Shortage::Device(BackendError::out_of_memory(self.requested, Some(info.free_bytes))),
            Err(_) => shortage,
        }
    }

    /// Describes the lack of memory of the request; without a `shortage` it is of the limit that refuses it. Counts and
    /// logs it as a failure, unless the request may still wait.
    pub(super) fn out_of_memory(&self, shortage: Option<Shortage>) -> Error {
        let error = match shortage {
            Some(shortage) => self.position.lack::<B>(self.need(), self.as_seen(shortage), None),
            None => self.position.lack_of_room::<B>(self.need()),
        };
        if !self.position.has_deadline {
            self.position.count_out_of_memory(&error, false);
        }
        error.into()
    }
}

impl Position<'_> {
    /// Describes a lack of room in the limit that refuses the request, which is found here.
    pub(crate) fn lack_of_room<B: Backend>(&self, need: Need) -> OutOfMemory {
        let (depot, number) = (self.pool.depot(), self.number());
        let (before, others) = (depot.queue.reserved_before(number), depot.queue.others_before(number));
        let (height, limit) = depot.accounts.refusing(need.class, before, others);
        drop(depot);
        self.lack::<B>(need, Shortage::Limit(limit), Some(height))
    }

    /// Describes a lack of memory. `refusing`: the number of levels from the pool's node up to the node
    /// whose limit refused; `None` if no limit did.
    pub(crate) fn lack<B: Backend>(
        &self,
        Need { requested: requested_bytes, class: class_bytes }: Need,
        shortage: Shortage,
        refusing: Option<usize>,
    ) -> OutOfMemory {
        let mut depot = self.pool.depot();
        let root = depot.accounts.above.len();
        let height = refusing.unwrap_or(root);
        let (MemoryNow { live, requested, idle, .. }, held_bytes) =
            (depot.memory_now(), depot.accounts.now.charged);
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
            shortage,
            is_private,
            is_limit_above: refusing.is_some_and(|height| height > 0),
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
