//! The writing side of a thread's log, found through variables of the thread.

use super::clock::Clock;
use super::log::{Chunk, FREE, IS_EVENT, Log, STREAM_BITS, STREAM_SHIFT, TIME_SHIFT};
use super::logs::Logs;
use crate::sync::thread_slot::{Leave, ThreadSlot};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use vrampool_backend::StreamId;

/// Number of events between two readings of the clock by a thread.
const LOOK: usize = 32;

/// Number of events for which a thread reserves room at a time.
const LEASE: u64 = 512;

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
    /// Weak references: recorded events belong to the recorder and are freed with it.
    log: Weak<Log>,
    logs: Weak<Logs>,
}

/// A thread's writers except the last used one. Its destructor also drops that one.
#[derive(Default)]
struct Others(Vec<Writer>);

impl Drop for Others {
    fn drop(&mut self) {
        let last = LAST.try_with(|last| Some(last.try_borrow_mut().ok()?.take()));
        drop(last);
    }
}

thread_local! {
    /// The last used writer.
    static LAST: ThreadSlot<RefCell<Option<Writer>>> = const { ThreadSlot::new(RefCell::new(None)) };
    static OTHERS: RefCell<Others> = const { RefCell::new(Others(Vec::new())) };
}

impl Leave for RefCell<Option<Writer>> {
    fn leave(&mut self) {
        drop(self.take());
    }
}

/// Calls `act` with this thread's writer for the recorder of this number, if it was used last.
#[inline(always)]
pub(super) fn with_last<T>(recorder: u64, act: impl FnOnce(&mut Writer) -> Option<T>) -> Option<T> {
    let acted = LAST.try_with(|last| {
        // Not borrowed here, because `act` never calls this function again.
        let mut last = last.try_borrow_mut().ok()?;
        last.as_mut().filter(|writer| writer.clock.number == recorder).and_then(act)
    });
    acted.ok().flatten()
}

/// As [`with_last`], for any recorder, including other work that is due first. When a thread's writers may be
/// destroyed, in destructors of its other variables, it uses the recorder's writer, `last`.
pub(super) fn with<T>(logs: &Arc<Logs>, last: &Mutex<Option<Writer>>, act: impl Fn(&mut Writer) -> T) -> T {
    let is_found = OTHERS.try_with(|others| others.try_borrow_mut().ok()?.find(logs)).ok().flatten();
    let acted = is_found.and_then(|()| with_last(logs.clock.number, |writer| Some(act(writer))));
    acted.unwrap_or_else(|| act(last.lock().get_or_insert_with(|| Writer::new(logs))))
}

#[cfg(all(test, feature = "host"))]
pub(super) fn writers() -> usize {
    let last = LAST.with(|last| last.borrow().is_some());
    OTHERS.with(|others| others.borrow().0.len()) + usize::from(last)
}

impl Others {
    /// Makes the writer for the recorder of `logs` the last used one.
    fn find(&mut self, logs: &Arc<Logs>) -> Option<()> {
        let number = logs.clock.number;
        if with_last(number, |_| Some(())).is_some() {
            return Some(());
        }
        let known = self.0.iter().position(|writer| writer.clock.number == number);
        let writer = match known {
            Some(place) => self.0.swap_remove(place),
            None => {
                // Drops writers of dropped recorders.
                self.0.retain(|writer| writer.logs.strong_count() > 0);
                Writer::new(logs)
            }
        };
        let mut writer = Some(writer);
        let before = LAST.try_with(|last| Some(last.try_borrow_mut().ok()?.replace(writer.take()?)));
        self.0.extend(before.ok()??);
        Some(())
    }
}

impl Writer {
    fn new(logs: &Arc<Logs>) -> Self {
        let (log, chunk) = (logs.log(), logs.chunk());
        log.chunks.lock().push(Arc::clone(&chunk));
        let (first, log) = (log.first_number(), Arc::downgrade(&log));
        let clock = Arc::clone(&logs.clock);
        Self { clock, at: 0, chunk, first, room: 0, log, logs: Arc::downgrade(logs) }
    }

    /// Returns the allocation's number, or 0 if the log is full.
    pub(super) fn allocated(&mut self, bytes: u64, stream: StreamId) -> u64 {
        if self.room < 2 && !self.find_room() {
            return 0;
        }
        self.pause_if_due();
        self.room -= 2;
        self.write(0, stream, bytes)
    }

    pub(super) fn freed(&mut self, number: u64, stream: StreamId) {
        self.pause_if_due();
        self.write(FREE, stream, number);
    }

    /// As [`allocated`](Self::allocated), unless other work is due first.
    #[inline(always)]
    pub(super) fn allocated_quickly(&mut self, bytes: u64, stream: StreamId) -> Option<u64> {
        if self.room < 2 || self.is_pause_due() {
            return None;
        }
        self.room -= 2;
        Some(self.write(0, stream, bytes))
    }

    /// As [`freed`](Self::freed), unless other work is due first.
    #[inline(always)]
    pub(super) fn freed_quickly(&mut self, number: u64, stream: StreamId) -> Option<()> {
        if self.is_pause_due() {
            return None;
        }
        self.write(FREE, stream, number);
        Some(())
    }

    #[inline(always)]
    fn is_pause_due(&self) -> bool {
        self.at.is_multiple_of(LOOK)
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

    /// Reads the clock, and replaces a full chunk, when due.
    fn pause_if_due(&mut self) {
        const { assert!(Chunk::EVENTS.is_multiple_of(LOOK)) };
        if !self.is_pause_due() {
            return;
        }
        self.clock.read();
        if self.at == Chunk::EVENTS {
            // After the recorder is dropped the chunk is never read.
            let logs = self.logs.upgrade();
            self.chunk = logs.map_or_else(|| Arc::new(Chunk::new()), |logs| logs.chunk());
            self.first += self.at as u64;
            self.at = 0;
            if let Some(log) = self.log.upgrade() {
                log.chunks.lock().push(Arc::clone(&self.chunk));
            }
        }
    }

    fn find_room(&mut self) -> bool {
        self.room += self.logs.upgrade().map_or(0, |logs| logs.take_room(LEASE));
        if self.room >= 2 {
            return true;
        }
        if let Some(log) = self.log.upgrade() {
            log.dropped.store(log.dropped() + 1, Ordering::Relaxed);
        }
        false
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(logs) = self.logs.upgrade() {
            logs.give_room(self.room);
        }
    }
}
