//! Serves a request when every idle block of its class may still be in use on another stream.
//!
//! In this order: an idle block whose work is known to be complete, after the device was asked; new memory,
//! while the limit, the budget, [`overlap`](crate::PoolBuilder::overlap) and the device leave room; an idle block
//! behind the marker of its last use. So streams that share no data do not wait for each other.

use crate::error::{Error, Forbidden};
use crate::heap::block::Block;
use crate::heap::core::PoolCore;
use crate::heap::magazine;
use crate::heap::request::Request;
use crate::heap::request::reservation::Reservation;
use crate::heap::stats::outcomes::{DeviceCall, Reason};
use crate::heap::store::depot::{Accept, Taken};
use std::sync::Arc;
use vrampool_backend::{Backend, CaptureId, Stream};

impl PoolCore {
    /// Serves a request for which [idle blocks are busy](Taken::Busy). `None` means to look for an idle block again.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_beside<B: Backend>(
        self: &Arc<Self>,
        request: &Request<'_, B>,
    ) -> Result<Option<Box<Block>>, Error> {
        let supply = self.supply::<B>();
        let capture = supply.device.capture_of(request.stream).map_err(Error::from);
        let capture = capture.inspect_err(|error| self.count_device_failure(error))?;
        let is_captured = capture.is_some();
        if self.are_streams_concurrent {
            match self.take_done::<B>(request.key, request.requested, request.stream.id(), is_captured) {
                Taken::Idle(block) => {
                    return self.hand_over(block, request, capture, |block| {
                        block.adopt::<B>(request.stream).map(|()| 0)
                    });
                }
                Taken::Nothing => return self.miss::<B>(request, None, true),
                Taken::Busy => self.want_markers(),
            }
            if !is_captured && let Some(block) = self.make_beside(request) {
                return Ok(Some(block));
            }
        }
        match self.take_any(request) {
            Taken::Idle(block) => {
                self.hand_over(block, request, capture, |block| block.take_over::<B>(request.stream, capture))
            }
            Taken::Nothing | Taken::Busy => self.miss::<B>(request, None, true),
        }
    }

    fn take_any<B: Backend>(self: &Arc<Self>, request: &Request<'_, B>) -> Taken {
        let Request { key, requested, stream, .. } = *request;
        magazine::visit(self, |cache| {
            let mut depot = self.depot();
            let keys = depot.keys_for(key);
            depot.take((key, &keys), requested, stream.id(), cache, Accept::Any)
        })
    }

    /// Hands over an idle block by `hand_over`, which returns the waits. If it failed, the block belongs to its
    /// former users.
    fn hand_over<B: Backend>(
        self: &Arc<Self>,
        mut block: Box<Block>,
        request: &Request<'_, B>,
        capture: Option<CaptureId>,
        hand_over: impl FnOnce(&mut Block) -> Result<u64, Error>,
    ) -> Result<Option<Box<Block>>, Error> {
        if block.is_ready_on(request.stream.id()) {
            return Ok(Some(block));
        }
        match hand_over(&mut block) {
            Ok(waits) => {
                self.depot().count_hand_over(request.key, waits);
                Ok(Some(block))
            }
            Err(error) => {
                Self::release(block);
                match error {
                    // The block belongs to a captured stream, and the request's is not captured.
                    Error::Capture { .. } if capture.is_none() => self.miss::<B>(request, None, false),
                    error => {
                        self.note_device_error(DeviceCall::Order, &error);
                        self.count_failure(Reason::Backend);
                        Err(error)
                    }
                }
            }
        }
    }

    /// Serves a request from new memory, if there is room without a release. Returns `None` otherwise.
    fn make_beside<B: Backend>(self: &Arc<Self>, request: &Request<'_, B>) -> Option<Box<Block>> {
        let class = request.key.class;
        if self.supply::<B>().asks_driver(request.key)
            && request
                .need()
                .check(&self.supply::<B>().device, request.stream, Forbidden::Allocation)
                .is_err()
        {
            return None;
        }
        let mut depot = self.depot();
        // Memory beyond the caps would be released at its free, and allocated again each time.
        let has_overflowed = depot.buckets.of(&request.key).has_overflowed;
        if has_overflowed || depot.queue.awaits_device() || !depot.accounts.overlaps_with(class) {
            return None;
        }
        let reservation = Reservation::at_once(self, &mut depot, class)?;
        drop(depot);
        let made = self.in_time(request, Some(reservation), |core, request, reservation| {
            let ask = || core.ask_hooked::<B>(request.key, request.stream, request.announced);
            reservation.map(|reservation| core.make(request, reservation, ask)).transpose()
        });
        match made {
            Ok(block) => block,
            Err(error) => {
                vrampool_backend::logging::debug!("pool {}: {error}; a stream waits", self.name);
                let accounts = &mut self.depot().accounts;
                accounts.overlap_refused_at = Some(accounts.now.charged);
                None
            }
        }
    }
}
