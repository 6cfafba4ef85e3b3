//! The slow path of one request of a growing arena: repeats the search, and plans and maps missing memory. If
//! mapping is refused, it makes room for mappings and tries again.

use super::grow::plan_growth;
use super::pages::Budget;
use crate::error::Error;
use crate::heap::arena::find::Waits;
use crate::heap::arena::mapping::{Growth, Lack, MakeFailure, Weight};
use crate::heap::arena::{ArenaBuffer, ArenaCore, ArenaRequest, StateGuard};
use crate::heap::space::Zone;
use parking_lot::MutexGuard as LongMutexGuard;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Scarce, logging};

/// Most retries after a refusal for lack of mappings or addresses. The first retires ranges whose work is complete, the
/// others wait for that work: several, because other threads may take the mappings that they free.
const RETRIES: u8 = 4;

/// The request and its attempts so far. No other thread changes the arena meanwhile.
struct Attempt<'a, B: Backend> {
    arena: &'a Arc<ArenaCore<B>>,
    request: &'a ArenaRequest<'a, B::Stream>,
    waits: Waits,
    /// Whether the new memory only spares a wait: the first obstacle ends the attempt.
    is_beside: bool,
    alone: Option<LongMutexGuard<'a, ()>>,
    budget: Budget,
    /// The device's out-of-memory error, if any.
    shortage: Option<BackendError>,
    /// Retries so far, after refusals for lack of mappings or addresses.
    retries: u8,
}

/// A buffer, or `None` if the state has changed: search again.
type Outcome<B> = Result<Option<ArenaBuffer<B>>, Error>;

impl<B: Backend> ArenaCore<B> {
    /// Serves a request after another search of mapped memory, or from new memory or a new stitched range, with the
    /// right to change the arena, and its lock if the caller has it. A request `beside` others gets no memory that
    /// needs a wait for another stream, and fails rather than releasing memory or waiting.
    pub(in crate::heap::arena) fn grow<'a>(
        self: &'a Arc<Self>,
        request: &'a ArenaRequest<'a, B::Stream>,
        waits: Waits,
        (alone, locked): (LongMutexGuard<'a, ()>, Option<StateGuard<'a, B>>),
        is_beside: bool,
    ) -> Result<ArenaBuffer<B>, Error> {
        let locked = locked.map_or_else(|| self.attached(request.bytes, || self.state.lock()), Ok)?;
        let mut state = self.widen(locked);
        let mut attempt = Attempt {
            arena: self,
            request,
            waits,
            is_beside,
            alone: Some(alone),
            budget: Budget::Free,
            shortage: None,
            retries: 0,
        };
        loop {
            if let Some(buffer) = attempt.step(state)? {
                return Ok(buffer);
            }
            state = self.attached(request.bytes, || self.state.lock())?;
        }
    }
}

impl<B: Backend> Attempt<'_, B> {
    /// Takes mapped memory if some has become available. Otherwise plans the missing memory, and makes it.
    fn step(&mut self, mut state: StateGuard<'_, B>) -> Outcome<B> {
        let request = self.request;
        if let Some(taken) = state.find(request, self.budget, &self.waits)? {
            return self.arena.make_buffer(state, taken, request).map(Some);
        }
        // New memory for small requests is at the end of their part, and has room for this one.
        let has_front =
            || state.backing.as_ref().is_some_and(|own| own.has_front_for(&state.engine, request.bytes));
        let is_small_beside = self.is_beside && state.zone_of(request) == Zone::Stable && has_front();
        let planned = match &self.waits {
            Waits::Refuse(refused) if !is_small_beside => state.plan_clear(request, self.budget, refused),
            _ => plan_growth(&mut state, request, self.budget),
        };
        match planned {
            Ok(growth) => self.make(state, growth),
            Err(refusal) if self.is_beside => Err(refusal.into()),
            // The device's refusal is the cause, if there was one.
            Err(refusal) => Err(self.shortage.take().map_or(refusal.into(), Error::from)),
        }
    }

    /// Makes the memory, adds it to the arena, and serves the request before any other.
    fn make(&mut self, mut state: StateGuard<'_, B>, growth: Growth) -> Outcome<B> {
        let weight = growth.stitched.as_ref().map_or(Weight::default(), |(pieces, _)| Weight::of(pieces));
        if state.backing.as_ref().is_some_and(|backing| !backing.may_stitch(weight)) {
            growth.cancel(&mut state.engine);
            drop(state);
            let refusal = BackendError::lacks(weight.bytes, Scarce::Mappings);
            return if self.is_beside { Err(refusal.into()) } else { self.retry_with(weight, &[], refusal) };
        }
        let is_stitched = growth.stitched.is_some();
        match self.arena.build(state, growth) {
            Ok((mut state, taken)) => {
                let taken = match taken {
                    None => state.find(self.request, self.budget, &self.waits)?,
                    taken => taken,
                };
                let Some(taken) = taken else { return Ok(None) };
                let served = self.arena.make_buffer(state, taken, self.request).map(Some);
                if is_stitched {
                    self.arena.retire_surplus();
                }
                served
            }
            Err(failure) => self.retreat(failure),
        }
    }

    /// Makes room for mappings or addresses of `weight` before a retry. Later retries wait, and release retiring
    /// ranges, ranges that lost pieces, and free memory of `parts` of the range.
    fn retry_with(&mut self, weight: Weight, parts: &[Zone], refusal: BackendError) -> Outcome<B> {
        self.retries += 1;
        if self.retries > RETRIES {
            return Err(refusal.into());
        }
        if self.retries > 1 {
            // Without the right to change the arena: streams that it waits for may wait for that right.
            drop(self.alone.take());
            if let Err(error) = self.arena.release(parts, 0) {
                logging::warn!("arena on {}: {error}", self.arena.id);
            }
            self.alone = Some(self.arena.alone(self.request.bytes)?);
        }
        self.arena.make_way(weight);
        Ok(None)
    }

    /// Handles a failure to make the memory.
    fn retreat(&mut self, failure: MakeFailure) -> Outcome<B> {
        if self.is_beside {
            if let Some(backing) = &mut self.arena.state.lock().backing {
                backing.overlap.refused_at = Some(backing.mapped);
            }
            return Err(failure.into_error().into());
        }
        let lacks = failure.lacks;
        let error = failure.into_error();
        if error.is_out_of_memory() && lacks == Lack::Mappings {
            return self.retry_with(Weight::MAX, &[Zone::Stable, Zone::Dynamic], error);
        }
        if !error.is_out_of_memory() || self.budget == Budget::Exhausted {
            return Err(error.into());
        }
        self.budget = if self.budget == Budget::Free { Budget::Frugal } else { Budget::Exhausted };
        self.shortage = Some(error);
        Ok(None)
    }
}
