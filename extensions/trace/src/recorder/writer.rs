//! The writing side of a thread's log, found through variables of the thread.

use super::clock::Clock;
use super::log::{Chunk, FREE, IS_EVENT, Log, SIZE_BITS, STREAM_BITS, STREAM_SHIFT, TIME_SHIFT};
use super::logs::Logs;
use crate::file::origin::Origin;
use std::cell::RefCell;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use vrampool::backend::StreamId;

/// Number of events between two readings of the clock by a thread.
const LOOK: usize = 32;

/// Number of events for which a thread reserves room at a time.
const LEASE: u64 = 512;

/// Origins that a thread finds without a lock: a power of two.
const KNOWN: usize = 16;

/// The pool and the line of code of a recent request, and the number of this origin.
#[derive(Debug, Default)]
struct Known {
    pool: Box<str>,
    site: Option<&'static Location<'static>>,
    number: u64,
}

/// The thread's own side of its log.
#[derive(Debug)]
pub(super) struct Writer {
    clock: Arc<Clock>,
    /// The index of the next event in the chunk.
    at: usize,
    chunk: Arc<Chunk>,
    /// The number of the chunk's first event, if that is an allocation.
    first: u64,
    /// Events for which this thread has reserved room.
    room: u64,
    known: [Known; KNOWN],
    /// Weak references: recorded events belong to the recorder and are freed with it.
    log: Weak<Log>,
    logs: Weak<Logs>,
}

thread_local! {
    /// This thread's writers, the last used one first.
    static WRITERS: RefCell<Vec<Writer>> = const { RefCell::new(Vec::new()) };
}

/// Calls `act` with this thread's writer for the recorder of this number. If it did not write with that last,
/// `logs` returns the recorder's logs. Returns `None` if that does, and where the thread's writers may be
/// destroyed: in destructors of its other variables.
#[inline]
pub(super) fn with<T>(
    number: u64,
    logs: impl FnOnce() -> Option<Arc<Logs>>,
    act: impl FnOnce(&mut Writer) -> T,
) -> Option<T> {
    let acted = WRITERS.try_with(|writers| {
        // Not borrowed here, because `act` never calls this function again.
        let mut writers = writers.try_borrow_mut().ok()?;
        if writers.first().is_none_or(|writer| writer.clock.number != number) {
            put_first(&mut writers, &logs()?);
        }
        writers.first_mut().map(act)
    });
    acted.ok().flatten()
}

/// Makes the writer for the recorder of `logs` the first one.
#[cold]
fn put_first(writers: &mut Vec<Writer>, logs: &Arc<Logs>) {
    match writers.iter().position(|writer| writer.clock.number == logs.clock.number) {
        Some(place) => writers.swap(0, place),
        None => {
            // Drops writers of dropped recorders.
            writers.retain(|writer| writer.logs.strong_count() > 0);
            writers.insert(0, Writer::new(logs));
        }
    }
}

#[cfg(test)]
pub(super) fn writers() -> usize {
    WRITERS.with(|writers| writers.borrow().len())
}

impl Writer {
    pub(super) fn new(logs: &Arc<Logs>) -> Self {
        let (log, chunk) = (logs.log(), logs.chunk());
        log.chunks.lock().push(Arc::clone(&chunk));
        let (first, log) = (log.first_number(), Arc::downgrade(&log));
        let clock = Arc::clone(&logs.clock);
        Self {
            clock,
            at: 0,
            chunk,
            first,
            room: 0,
            known: Default::default(),
            log,
            logs: Arc::downgrade(logs),
        }
    }

    /// Returns the allocation's number, or 0 if it is not recorded.
    #[inline]
    pub(super) fn allocated(
        &mut self,
        bytes: u64,
        stream: StreamId,
        pool: &str,
        site: Option<&'static Location<'static>>,
    ) -> u64 {
        if (self.room < 2 && !self.find_room()) || !self.is_ready() {
            return 0;
        }
        self.room -= 2;
        let size = bytes.min((1 << SIZE_BITS) - 1);
        let origin = self.origin(pool, site);
        self.write(0, stream, origin << SIZE_BITS | size)
    }

    /// Returns the number of an origin.
    #[inline]
    fn origin(&mut self, pool: &str, site: Option<&'static Location<'static>>) -> u64 {
        let at = site.map_or(0, |site| ptr::from_ref(site).addr()) / align_of::<Location<'_>>() + pool.len();
        let known = &mut self.known[at % KNOWN];
        let is_same = match (known.site, site) {
            (Some(one), Some(other)) => ptr::eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if !is_same || *known.pool != *pool {
            let origin = Origin::new(pool, &site.map(ToString::to_string).unwrap_or_default());
            let number = self.logs.upgrade().map_or(0, |logs| logs.origins.lock().number(origin));
            *known = Known { pool: pool.into(), site, number: number.into() };
        }
        known.number
    }

    /// Returns whether the free is recorded.
    #[inline]
    pub(super) fn freed(&mut self, number: u64, stream: StreamId) -> bool {
        let is_ready = self.is_ready();
        if is_ready {
            self.write(FREE, stream, number);
        }
        is_ready
    }

    /// Makes what is due before the next event. Returns whether there is a place for it.
    #[inline]
    fn is_ready(&mut self) -> bool {
        !self.at.is_multiple_of(LOOK) || self.pause()
    }

    /// Returns the event's number.
    #[inline(always)]
    fn write(&mut self, op: u64, stream: StreamId, second: u64) -> u64 {
        // Always in bounds, because a pause comes first.
        let words = &self.chunk.0[self.at % Chunk::EVENTS];
        let stream = stream.get() & ((1 << STREAM_BITS) - 1);
        words[1].store(second, Ordering::Relaxed);
        // Release: pairs with the acquire in `Chunk::event`.
        let first = self.clock.now() << TIME_SHIFT | stream << STREAM_SHIFT | op | IS_EVENT;
        words[0].store(first, Ordering::Release);
        let number = self.first + self.at as u64;
        self.at += 1;
        number
    }

    /// Reads the clock, and replaces a full chunk. Fails if the recorder is dropped, whose chunks nothing reads.
    #[cold]
    fn pause(&mut self) -> bool {
        const { assert!(Chunk::EVENTS.is_multiple_of(LOOK)) };
        self.clock.read();
        if self.at < Chunk::EVENTS {
            return true;
        }
        let (Some(logs), Some(log)) = (self.logs.upgrade(), self.log.upgrade()) else { return false };
        self.chunk = logs.chunk();
        self.first += self.at as u64;
        self.at = 0;
        log.chunks.lock().push(Arc::clone(&self.chunk));
        true
    }

    #[cold]
    fn find_room(&mut self) -> bool {
        let Some(logs) = self.logs.upgrade() else { return false };
        self.room += logs.take_room(LEASE);
        if self.room < 2 {
            logs.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.room >= 2
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(logs) = self.logs.upgrade() {
            logs.give_room(self.room);
        }
    }
}
