//! The log of one thread of a recording.
//!
//! Only the thread itself writes, two words per event; the second store publishes both. Readers see all
//! published events at any time. The lock protects only the list of chunks.

use super::{Face, Recorder, WeakRecorder};
use crate::sync::thread_slot::{Leave, ThreadSlot};
use parking_lot::Mutex;
use std::array;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::StreamId;

/// Number of events between two readings of the clock by a thread.
const LOOK: usize = 32;

/// Number of events for which a thread reserves room at a time.
const LEASE: u64 = 512;

/// Bits of an event's first word: a marker, the operation, the stream, and the time.
const IS_EVENT: u64 = 1;
const FREE: u64 = 2;
const STREAM_SHIFT: u32 = 2;
const STREAM_BITS: u32 = 22;
const TIME_SHIFT: u32 = STREAM_SHIFT + STREAM_BITS;

/// Bits of an allocation's number: its index in its log, from 0; above that the log, from 1.
const NUMBER_BITS: u32 = 40;

/// Events of 16 bytes, 0 while unset. The second word is an allocation's size, or the number of a freed
/// allocation. An allocation's own number is its index. Chunks of different threads share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunk([[AtomicU64; 2]; Chunk::EVENTS]);

/// An event read from a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) is_free: bool,
    /// The number of the allocation.
    pub(super) number: u64,
    /// 0 for a free.
    pub(super) size: u64,
    /// The stream's id, of which the lowest [`STREAM_BITS`] are kept.
    pub(super) stream: u64,
    pub(super) t_us: u64,
}

/// The events of one thread, readable by any thread.
#[derive(Debug)]
pub(super) struct Log {
    number: u64,
    /// All chunks but the last are full.
    chunks: Mutex<Vec<Arc<Chunk>>>,
    dropped: AtomicU64,
}

/// The thread's own side of its log.
#[derive(Debug)]
pub(super) struct Writer {
    face: Arc<Face>,
    /// The index of the next event in the chunk.
    at: usize,
    chunk: Arc<Chunk>,
    /// The number of the chunk's first event, if that is an allocation.
    first: u64,
    /// Events for which this thread has reserved room.
    room: u64,
    /// Weak references: recorded events belong to the recorder and are freed with it.
    log: Weak<Log>,
    recorder: WeakRecorder,
}

/// A thread's writers except the last used one. Its destructor also drops that one.
#[derive(Default)]
pub(super) struct Others(Vec<Writer>);

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

impl Chunk {
    /// 16 KiB.
    pub(super) const EVENTS: usize = 1024;

    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))))
    }

    /// Acquire: pairs with the release in [`Writer::write`].
    fn event(words: &[AtomicU64; 2]) -> Option<[u64; 2]> {
        let first = words[0].load(Ordering::Acquire);
        (first != 0).then(|| [first, words[1].load(Ordering::Relaxed)])
    }

    fn events(&self) -> Vec<[u64; 2]> {
        self.0.iter().map_while(Self::event).collect()
    }

    fn len(&self) -> usize {
        self.0.partition_point(|words| Self::event(words).is_some())
    }
}

impl Log {
    pub(super) fn new(number: u64) -> Self {
        Self { number, chunks: Mutex::default(), dropped: AtomicU64::new(0) }
    }

    pub(super) fn events(&self) -> u64 {
        let chunks = self.chunks.lock();
        let full = chunks.len().saturating_sub(1) * Chunk::EVENTS;
        chunks.last().map_or(0, |last| (full + last.len()) as u64)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn first_number(&self) -> u64 {
        (self.number + 1) << NUMBER_BITS
    }

    /// Returns the events published so far.
    pub(super) fn read(&self) -> Vec<Logged> {
        let chunks = self.chunks.lock().clone();
        let words = chunks.into_iter().flat_map(|chunk| chunk.events());
        let logged = |(place, [first, second]): (u64, [u64; 2])| {
            let (is_free, t_us) = (first & FREE != 0, first >> TIME_SHIFT);
            let stream = (first >> STREAM_SHIFT) & ((1 << STREAM_BITS) - 1);
            let (number, size) = if is_free { (second, 0) } else { (place, second) };
            Logged { is_free, number, size, stream, t_us }
        };
        (self.first_number()..).zip(words).map(logged).collect()
    }
}

/// Calls `act` with this thread's writer for the recorder of this number, if it was used last.
#[inline(always)]
pub(super) fn with_last<T>(recorder: u64, act: impl FnOnce(&mut Writer) -> Option<T>) -> Option<T> {
    let acted = LAST.try_with(|last| {
        // Not borrowed here, because `act` never calls this function again.
        let mut last = last.try_borrow_mut().ok()?;
        last.as_mut().filter(|writer| writer.face.number == recorder).and_then(act)
    });
    acted.ok().flatten()
}

/// As [`with_last`], for any recorder, including other work that is due first. When a thread's writers may be
/// destroyed, in destructors of its other variables, it uses the recorder's writer.
pub(super) fn with<T>(recorder: &Recorder, act: impl Fn(&mut Writer) -> T) -> T {
    let is_found = OTHERS.try_with(|others| others.try_borrow_mut().ok()?.find(recorder)).ok().flatten();
    let acted = is_found.and_then(|()| with_last(recorder.number(), |writer| Some(act(writer))));
    acted.unwrap_or_else(|| act(recorder.0.last.lock().get_or_insert_with(|| Writer::new(recorder))))
}

#[cfg(all(test, feature = "host"))]
pub(super) fn writers() -> usize {
    let last = LAST.with(|last| last.borrow().is_some());
    OTHERS.with(|others| others.borrow().0.len()) + usize::from(last)
}

impl Others {
    /// Makes the writer for `recorder` the last used one.
    fn find(&mut self, recorder: &Recorder) -> Option<()> {
        let number = recorder.number();
        if with_last(number, |_| Some(())).is_some() {
            return Some(());
        }
        let known = self.0.iter().position(|writer| writer.face.number == number);
        let writer = match known {
            Some(place) => self.0.swap_remove(place),
            None => {
                // Drops writers of dropped recorders.
                self.0.retain(|writer| writer.recorder().is_some());
                Writer::new(recorder)
            }
        };
        let mut writer = Some(writer);
        let before = LAST.try_with(|last| Some(last.try_borrow_mut().ok()?.replace(writer.take()?)));
        self.0.extend(before.ok()??);
        Some(())
    }
}

impl Writer {
    fn new(recorder: &Recorder) -> Self {
        let (log, chunk) = (recorder.log(), recorder.chunk());
        log.chunks.lock().push(Arc::clone(&chunk));
        let (first, log) = (log.first_number(), Arc::downgrade(&log));
        let face = Arc::clone(&recorder.0.face);
        Self { face, at: 0, chunk, first, room: 0, log, recorder: recorder.downgrade() }
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
        let first = self.face.now() << TIME_SHIFT | stream << STREAM_SHIFT | op | IS_EVENT;
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
        self.face.read_clock();
        if self.at == Chunk::EVENTS {
            // After the recorder is dropped the chunk is never read.
            let recorder = self.recorder();
            self.chunk = recorder.map_or_else(|| Arc::new(Chunk::new()), |recorder| recorder.chunk());
            self.first += self.at as u64;
            self.at = 0;
            if let Some(log) = self.log.upgrade() {
                log.chunks.lock().push(Arc::clone(&self.chunk));
            }
        }
    }

    fn find_room(&mut self) -> bool {
        self.room += self.recorder().map_or(0, |recorder| recorder.take_room(LEASE));
        if self.room >= 2 {
            return true;
        }
        if let Some(log) = self.log.upgrade() {
            log.dropped.store(log.dropped() + 1, Ordering::Relaxed);
        }
        false
    }

    fn recorder(&self) -> Option<Recorder> {
        self.recorder.upgrade()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder() {
            recorder.give_room(self.room);
        }
    }
}
