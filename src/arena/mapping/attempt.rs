//! The slow path of one request of a growing arena: repeats the search, and plans and maps missing memory. If
//! mapping is refused, it climbs the ladder of mappings.

use super::make::{Lack, Made, MakeFailure};
use super::pages::{Budget, Growth, Weight};
use super::retire::{Rung, Rungs, no_mappings};
use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{ArenaError, BlockId, Zone};
use crate::arena::hazards::alternatives::Refused;
use crate::arena::state::{State, Taken};
use crate::error::Error;
use crate::sync::MutexGuard;
use parking_lot::MutexGuard as LongMutexGuard;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, logging};

/// The existing parts of a growth, held; `None` for those still to be made.
type HeldParts = Vec<Option<BlockId>>;

/// The request and its attempts so far. No other thread changes the arena meanwhile.
struct Attempt<'a, B: Backend> {
    arena: &'a Arc<ArenaCore<B>>,
    request: (u64, u64),
    stream: &'a B::Stream,
    zone: Zone,
    /// With refused streams, only memory that is [clear](crate::arena::hazards::alternatives) of them serves.
    refused: Option<&'a Refused>,
    /// Refuses all waits.
    all: &'a Refused,
    /// Whether the new memory only spares a wait: the first obstacle ends the attempt.
    is_beside: bool,
    alone: Option<LongMutexGuard<'a, ()>>,
    budget: Budget,
    /// The device's out-of-memory error, if any.
    shortage: Option<BackendError>,
    /// Whether memory that small requests left free was released.
    has_released: bool,
    rungs: Rungs,
}

/// The result of a step that did not fail finally.
enum Outcome<B: Backend> {
    Served(ArenaBuffer<B>),
    /// The state has changed: search again.
    Again,
}

impl<B: Backend> ArenaCore<B> {
    /// Serves a request after another search of mapped memory, or from new memory or a new stitched range.
    /// With refused streams, only from memory that is [clear](crate::arena::hazards::alternatives) of them.
    pub(in crate::arena) fn grow(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
        refused: Option<&Refused>,
    ) -> Result<ArenaBuffer<B>, Error> {
        self.attempt(request, stream, refused, (self.changing.lock(), false))
    }

    /// Serves a request without a wait for another stream, from new memory if necessary. The thread has the
    /// right to change the arena. Fails rather than releasing memory or waiting.
    pub(in crate::arena) fn grow_beside<'a>(
        self: &'a Arc<Self>,
        request: (u64, u64),
        stream: &'a B::Stream,
        alone: LongMutexGuard<'a, ()>,
    ) -> Result<ArenaBuffer<B>, Error> {
        // Memory that the stream itself used last is preferred, also in parts: the other streams need theirs later.
        let has_own = self.state.lock().has_own(request.0, stream);
        let refused = if has_own { Refused::all_but_own() } else { Refused::all() };
        self.attempt(request, stream, Some(&refused), (alone, true))
    }

    fn attempt<'a>(
        self: &'a Arc<Self>,
        request: (u64, u64),
        stream: &'a B::Stream,
        refused: Option<&'a Refused>,
        (alone, is_beside): (LongMutexGuard<'a, ()>, bool),
    ) -> Result<ArenaBuffer<B>, Error> {
        let zone = self.attached(request.0, || self.state.lock())?.zone_of(request.0);
        self.widen();
        let mut attempt = Attempt {
            arena: self,
            request,
            stream,
            zone,
            refused,
            all: &Refused::all(),
            is_beside,
            alone: Some(alone),
            budget: Budget::Free,
            shortage: None,
            has_released: false,
            rungs: Rungs::default(),
        };
        loop {
            if let Outcome::Served(buffer) = attempt.step()? {
                return Ok(buffer);
            }
        }
    }
}

impl<B: Backend> Attempt<'_, B> {
    /// Takes memory that is available by now, or plans and makes what is missing.
    fn step(&mut self) -> Result<Outcome<B>, Error> {
        let (bytes, alignment) = self.request;
        let mut state = self.arena.attached(bytes, || self.arena.state.lock())?;
        let taken = match self.refused {
            None => state.take(self.request, self.budget, self.stream)?,
            Some(refused) => state.take_clear(self.zone, self.request, self.stream, refused),
        };
        if let Some(taken) = taken {
            return self.finish_allocation(state, taken);
        }
        if !state.commit_pending() {
            return Err(ArenaError::HostMemory.into());
        }
        let planned = match self.refused {
            // New memory for small requests is at the end of their part, and has room for this one.
            Some(_) if self.is_beside && self.zone == Zone::Stable && state.has_front_for(bytes) => {
                state.plan_growth(bytes, alignment, self.budget)
            }
            None => state.plan_growth(bytes, alignment, self.budget),
            Some(refused) => state.plan_clear(self.request, self.budget, self.stream, refused),
        };
        match planned {
            Ok((growth, held)) if self.is_own() && !growth.new.is_empty() => {
                state.give_up(&held);
                drop(state);
                self.refused = Some(self.all);
                Ok(Outcome::Again)
            }
            Ok((growth, held)) => self.make(state, growth, held),
            Err(_) if self.is_own() => {
                drop(state);
                self.refused = Some(self.all);
                Ok(Outcome::Again)
            }
            Err(refusal) if self.is_beside => Err(refusal.into()),
            Err(refusal) => {
                let may_help = refusal.is_out_of_memory() && state.small_may_serve(bytes);
                drop(state);
                self.release_small(refusal, may_help)
            }
        }
    }

    /// Whether only memory that the stream itself used last serves so far, and no new memory.
    fn is_own(&self) -> bool {
        self.refused.is_some_and(Refused::is_own)
    }

    fn finish_allocation(
        &self,
        state: MutexGuard<'_, State<B>>,
        taken: Taken<B>,
    ) -> Result<Outcome<B>, Error> {
        // Clear memory is not exchanged for other memory.
        let is_captured = if self.refused.is_none() { Some(false) } else { None };
        self.arena
            .finish_allocation((state, is_captured), taken, self.request, self.stream)
            .map(Outcome::Served)
    }

    /// Handles a lack of room. Memory that small requests left free is released once, because that may serve
    /// a large request that cannot be stitched.
    fn release_small(&mut self, refusal: ArenaError, may_help: bool) -> Result<Outcome<B>, Error> {
        if may_help && !mem::replace(&mut self.has_released, true) {
            match self.among_others(|arena| arena.release(&[Zone::Stable], 0)) {
                Ok(0) => {}
                Ok(_) => {
                    (self.budget, self.shortage) = (Budget::Free, None);
                    return Ok(Outcome::Again);
                }
                Err(error) => logging::warn!("arena on {}: {error}", self.arena.id),
            }
        }
        Err(self.shortage.take().map_or(refusal.into(), Error::from))
    }

    /// Runs `wait` without the right to change the arena: streams that it waits for may wait for that right.
    fn among_others<T>(&mut self, wait: impl FnOnce(&ArenaCore<B>) -> T) -> T {
        drop(self.alone.take());
        let outcome = wait(self.arena);
        self.alone = Some(self.arena.changing.lock());
        outcome
    }

    fn make(
        &mut self,
        mut state: MutexGuard<'_, State<B>>,
        growth: Growth,
        held: HeldParts,
    ) -> Result<Outcome<B>, Error> {
        let weight = growth.stitched.as_deref().map_or(Weight::default(), Weight::of);
        if !state.may_stitch(weight) {
            state.give_up(&held);
            drop(state);
            return if self.is_beside {
                Err(no_mappings(weight.bytes).into())
            } else {
                self.make_way(weight)
            };
        }
        let range = Arc::clone(&state.range);
        let mapped = growth.stitched.iter().flatten().filter_map(|&piece| {
            let physical = state.backing.as_ref()?.physical(piece)?;
            Some((piece, physical.clone()))
        });
        let mapped: Vec<_> = mapped.collect();
        drop(state);
        match self.arena.make(&growth, &range, &mapped) {
            Ok(made) => self.keep(growth, held, made, &range),
            Err(failure) => self.retreat(&growth, &held, failure),
        }
    }

    /// Handles the maximum of stitched ranges.
    fn make_way(&mut self, weight: Weight) -> Result<Outcome<B>, Error> {
        match self.rungs.next() {
            Some(Rung::Retire) => {}
            Some(Rung::Wait) => self.among_others(|arena| arena.release_unused(&[])),
            None => return Err(no_mappings(weight.bytes).into()),
        }
        self.arena.make_way(weight);
        Ok(Outcome::Again)
    }

    /// Adds the new memory to the arena, and serves the request before any other.
    fn keep(
        &mut self,
        growth: Growth,
        held: HeldParts,
        made: Made<B>,
        range: &Arc<B::Memory>,
    ) -> Result<Outcome<B>, Error> {
        let (bytes, alignment) = self.request;
        let mut state = self.arena.state.lock();
        if let Err(error) = state.engine.reserve_blocks(3 + 2 * (held.len() + growth.new.len())) {
            state.give_up(&held);
            drop(state);
            let unreleased = self.arena.roll_back(&growth, range, made.new);
            self.arena.state.lock().keep_unreleased(&growth, unreleased);
            return Err(error.into());
        }
        let is_stitched = growth.stitched.is_some();
        let taken = match (state.commit(growth, made, &held), self.refused) {
            (None, None) => state.take_mapped(bytes, alignment, self.budget)?,
            (None, Some(refused)) => state.take_clear(self.zone, self.request, self.stream, refused),
            (stitched, _) => stitched,
        };
        let Some(taken) = taken else { return Ok(Outcome::Again) };
        let served = self.finish_allocation(state, taken);
        if is_stitched {
            self.arena.retire_surplus();
        }
        served
    }

    /// Handles a failure to make the memory.
    fn retreat(
        &mut self,
        growth: &Growth,
        held: &[Option<BlockId>],
        mut failure: MakeFailure,
    ) -> Result<Outcome<B>, Error> {
        let mut state = self.arena.state.lock();
        state.give_up(held);
        state.keep_unreleased(growth, mem::take(&mut failure.unreleased));
        if self.is_beside {
            state.note_growth_refused();
            drop(state);
            return Err(failure.into_error().into());
        }
        drop(state);
        let lacks = failure.lacks;
        let error = failure.into_error();
        if error.is_out_of_memory() && lacks == Lack::Mappings {
            match self.rungs.next() {
                Some(Rung::Retire) => self.arena.make_way(Weight::MAX),
                Some(Rung::Wait) => {
                    self.among_others(|arena| arena.release_unused(&[Zone::Stable, Zone::Dynamic]))
                }
                None => return Err(error.into()),
            }
            return Ok(Outcome::Again);
        }
        if !error.is_out_of_memory() || self.budget == Budget::Exhausted {
            return Err(error.into());
        }
        (self.budget, self.shortage) = (self.budget.refused(), Some(error));
        Ok(Outcome::Again)
    }
}
