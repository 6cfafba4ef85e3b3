//! Commits: one partition for all requests of a group, and the allocation of its memory.

use crate::error::BrokerError;
use crate::footprint::Demand;
use crate::partition::{Footprint, MANY_CHUNKS, Partition, fit};
use crate::plan_array::{PlanArray, arrays, batch};
use crate::state::{BrokerCore, Grant, Held, State};
use std::sync::Arc;
use vrampool_backend::{Backend, logging};

/// The most attempts of a commit while others take memory, each with an eighth less.
const ATTEMPTS: u32 = 64;

/// The most attempts of a commit while shares or settings change.
const REPLANS: u32 = 32;

impl<B: Backend> BrokerCore<B> {
    /// Grants the requests of a group. The caller has the turn.
    pub(crate) fn commit(&self, group: &str) -> Result<Arc<Grant>, BrokerError> {
        let outcome = self.commit_in_turn(group);
        let counts = &mut self.state.lock().counts;
        *match &outcome {
            Ok(_) => &mut counts.commits_granted,
            Err(error) if error.is_out_of_memory() => &mut counts.commits_short,
            Err(_) => &mut counts.commits_refused,
        } += 1;
        outcome
    }

    /// Returns the existing grant if it matches the requests and all its memory is held, else a new one.
    fn commit_in_turn(&self, group: &str) -> Result<Arc<Grant>, BrokerError> {
        let mut has_warned = false;
        for _ in 0..REPLANS {
            if let Some(granted) = self.try_commit(group, &mut has_warned)? {
                return Ok(granted);
            }
        }
        self.drop_memory(group, |_| false);
        Err(BrokerError::Changing { group: group.to_owned(), attempts: REPLANS })
    }

    /// Returns `None` if shares or settings changed meanwhile.
    fn try_commit(&self, group: &str, has_warned: &mut bool) -> Result<Option<Arc<Grant>>, BrokerError> {
        let generation_of = |state: &State<B>| state.groups.get(group).map(|group| group.generation);
        let (generation, wanted, slots, most_runs) = {
            let state = self.state.lock();
            let entry = state.groups.get(group);
            if entry.is_some_and(|entry| entry.is_running) {
                return Err(BrokerError::Busy { group: group.to_owned() });
            }
            let has_queued = state.members(group).any(|(_, entry)| !entry.queue.is_empty());
            if let Some(grant) = entry.and_then(|entry| entry.grant.clone())
                && !has_queued
                && is_whole(&grant, state.members(group).flat_map(|(_, entry)| &entry.memory))
            {
                return Ok(Some(grant));
            }
            let (slots, most_runs) =
                entry.map_or((1, u64::MAX), |entry| (entry.most_streams, entry.most_runs));
            (generation_of(&state), state.wanted(group), slots, most_runs)
        };
        let runs = batch(&wanted);
        let arrays = arrays(&wanted, runs)?;
        if arrays.is_empty() {
            self.drop_memory(group, |_| false);
            return Err(BrokerError::NothingQueued { group: group.to_owned() });
        }
        let slots = if arrays.iter().any(PlanArray::is_sole) { 1 } else { slots as u64 };
        // A failed attempt leaves no memory with the clients.
        let planned = self.plan(group, arrays, (runs, slots, most_runs), has_warned);
        let grant = planned.inspect_err(|_| self.drop_memory(group, |_| false))?;
        let mut state = self.state.lock();
        if generation_of(&state) != generation {
            return Ok(None);
        }
        for (client, requests) in wanted {
            if let Some(entry) = state.clients.get_mut(&client) {
                // Later requests are for the next commit.
                entry.queue.retain(|queued| !requests.iter().any(|request| request.id == queued.id));
                entry.requests = requests;
            }
        }
        state.groups.entry(group.to_owned()).or_default().grant = Some(Arc::clone(&grant));
        Ok(Some(grant))
    }

    /// Computes a partition, finer at each retry while others take free memory, and allocates all of it.
    fn plan(
        &self,
        group: &str,
        arrays: Vec<PlanArray>,
        (runs, slots, most_runs): (u64, u64, u64),
        has_warned: &mut bool,
    ) -> Result<Arc<Grant>, BrokerError> {
        let demand = Demand { core: self, arrays: &arrays };
        let request = demand.held(runs, 1);
        let exact = demand.chunkable().saturating_add(demand.unchunkable());
        // A request that no single allocation can serve counts with its exact size.
        let request = if request == u64::MAX { exact } else { request };
        let mut most = u64::MAX;
        let mut attempt = 0;
        let mut refusal = None;
        loop {
            attempt += 1;
            let available = self.make_available(group, request, false)?.min(most);
            let is_much = request > available.saturating_mul(MANY_CHUNKS);
            if attempt == 1 && is_much && !std::mem::replace(has_warned, true) {
                self.warn(format_args!(
                    "{request} bytes are requested and {available} are available: the batch needs many chunks"
                ));
            }
            let (partition, used) = match fit(available, &demand, runs, slots, most_runs) {
                Ok(fitting) => fitting,
                Err(_) => {
                    // A single run, or an array that is not cut, does not fit: idle clients release more.
                    let available = self.make_available(group, request, true)?.min(most);
                    let fitting = fit(available, &demand, runs, slots, most_runs);
                    // Room was unusable: in pages that are used in part, or between blocks of an arena.
                    if fitting.is_err() && refusal.is_some() && self.evict_idle(Some(group), 1) > 0 {
                        (attempt, most) = (attempt - 1, u64::MAX);
                        continue;
                    }
                    // After a refusal `available` is less than there is.
                    fitting.map_err(|error| refusal.take().unwrap_or_else(|| error.into()))?
                }
            };
            match self.allocate_all(group, &arrays, partition, used as usize) {
                Ok(()) => {
                    self.keep_reserve();
                    return Ok(Arc::new(Grant { partition, slots: used as usize, arrays }));
                }
                Err(error) if error.is_out_of_memory() && attempt < ATTEMPTS => {
                    let held = demand.held(partition.chunk_len(), used);
                    self.state.lock().counts.retries += 1;
                    logging::info!("broker: {held} bytes were free and are not any more: {error}");
                    let missing = held.saturating_sub(self.room_for(group)?);
                    self.evict_idle(Some(group), missing);
                    most = held.min(most) / 8 * 7;
                    refusal = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Releases memory that the clients of a group hold outside of runs, except what `keeps` accepts.
    fn drop_memory(&self, group: &str, mut keeps: impl FnMut(&Held<B>) -> bool) {
        let mut unwanted = Vec::new();
        let mut state = self.state.lock();
        for entry in state.clients.values_mut().filter(|entry| entry.client.group == group) {
            unwanted.append(&mut entry.release(&mut keeps));
        }
        drop(state);
        drop(unwanted);
    }

    /// Allocates memory for a grant, reusing memory of its clients that has the right size.
    fn allocate_all(
        &self,
        group: &str,
        arrays: &[PlanArray],
        partition: Partition,
        slots: usize,
    ) -> Result<(), BrokerError> {
        let streams = self.streams(group, slots)?;
        let len = partition.chunk_len();
        let copies = |array| (0..places(array, slots)).map(move |slot| (array, slot));
        let mut needed: Vec<_> = arrays.iter().flat_map(copies).collect();
        self.drop_memory(group, |held| {
            let serves = |&(array, slot): &(&PlanArray, usize)| {
                (array.id, array.layout, slot) == (held.array, held.layout, held.slot.unwrap_or(0))
                    && (held.len == len || !array.layout.is_cut)
            };
            let place = needed.iter().position(serves);
            place.map(|at| needed.swap_remove(at)).is_some()
        });
        for (array, slot) in needed {
            // After a failure this stays with the client, for the next attempt.
            let held = self.allocate(array, (!array.is_shared()).then_some(slot), len, &streams[slot])?;
            // Without the client, which has ended meanwhile, the group is planned again.
            if let Some(entry) = self.state.lock().clients.get_mut(&array.client) {
                entry.memory.push(held);
            }
        }
        Ok(())
    }

    /// Returns `count` streams of a group, creating missing ones.
    pub(crate) fn streams(&self, group: &str, count: usize) -> Result<Vec<B::Stream>, BrokerError> {
        let mut streams =
            self.state.lock().groups.get(group).map(|group| group.streams.clone()).unwrap_or_default();
        while streams.len() < count {
            streams.push(self.device.create_stream()?);
        }
        let mut state = self.state.lock();
        let entry = state.groups.entry(group.to_owned()).or_default();
        if entry.streams.len() < streams.len() {
            entry.streams.clone_from(&streams);
        }
        Ok(streams)
    }
}

/// Returns the number of buffers of an array.
fn places(array: &PlanArray, slots: usize) -> usize {
    if array.is_shared() { 1 } else { slots }
}

/// Whether all memory of a grant is held.
fn is_whole<'a, B: Backend>(grant: &Grant, memory: impl Iterator<Item = &'a Held<B>>) -> bool {
    let needed: usize = grant.arrays.iter().map(|array| places(array, grant.slots)).sum();
    memory.filter(|held| grant.has_place(held)).count() == needed
}
