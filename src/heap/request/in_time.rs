//! Requests with a deadline, which another thread serves where the driver may be called: a call lasts as long as it
//! lasts.

use crate::error::{Error, Shortage};
use crate::heap::request::position::GRACE;
use crate::heap::request::{Position, Request, Reservation};
use crate::heap::store::is_releasing;
use crate::heap::{Block, PoolCore, magazine};
use crate::sync::driver_threads;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream};

/// The block that serves a request. If the request has timed out, the block is released and serves later requests.
struct LateBlock(Option<Box<Block>>);

impl Drop for LateBlock {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(PoolCore::release);
    }
}

impl<B: Backend> Request<'_, B> {
    /// Serves the request by `serve`, for which the bytes of `reserved` are reserved. If the request has a deadline,
    /// another thread serves it, and a result after the deadline is reported as a lack of memory.
    pub(super) fn in_time(
        &self,
        reserved: Option<Reservation>,
        serve: impl FnOnce(&Request<'_, B>, Option<Reservation>) -> Result<Option<Box<Block>>, Error>
        + Send
        + 'static,
    ) -> Result<Option<Box<Block>>, Error> {
        let &Request { pool, key, requested, stream, announced, position } = self;
        let until = match position.until {
            Some(until) if !is_releasing() => until,
            _ => return serve(self, reserved),
        };
        // The other thread cannot take what this one keeps.
        magazine::leave(pool);
        let (core, stream, number) = (Arc::clone(pool), stream.clone(), Arc::clone(position.number_cell()));
        let ticket = announced.map(|event| event.ticket());
        let work = move || {
            let event = ticket.map(|ticket| core.event(ticket, requested, key.class, stream.id()));
            let (announced, position) = (event.as_ref(), &Position::of_other(&core, until, number));
            let request = Request { pool: &core, key, requested, stream: &stream, announced, position };
            serve(&request, reserved).map(LateBlock)
        };
        let Some(served) = driver_threads::call(until + GRACE, work) else {
            position.abandon();
            return Err(self.out_of_memory(Some(Shortage::Deadline)));
        };
        served.map(|mut served| served.0.take())
    }
}
