//! Recording what pools serve, at a few nanoseconds an event.

mod log;
mod merge;

use crate::sync::Instant;
use crate::trace::file::error::TraceError;
use crate::trace::file::place::Place;
use crate::trace::file::reader::Trace;
use log::{Chunk, Log, Writer};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use vrampool_backend::StreamId;

/// How far the recorder's clock may be behind before who looks at it sets it, microseconds: so that a word
/// that all threads read is written rarely.
const STALE: u64 = 8;

/// The last time that fits an event, microseconds: 12 days. What comes later has it.
const LAST: u64 = (1 << 40) - 1;

/// Records the allocations and frees of pools that are [given it](crate::Builder::recorder), for a [`Trace`].
/// A clone is another handle to the same recording; several pools may share one.
///
/// * **Cost.** A request and its free cost some nanoseconds more each; neither takes a lock, an atomic
///   read-modify-write or a clock for it but once in a while: each thread writes to a log of its own. A pool
///   without a recorder does not know of it.
/// * **Memory** is bounded: 16 bytes an event, all of them taken when the recorder is made, and at most 16
///   KiB for each thread beside. An allocation is recorded where there is room for its free, too, of which
///   each thread takes some for up to 256 pairs ahead. Allocations that find none are left out, with their
///   frees, and [counted](Self::dropped): a recording is the first part of what each thread did.
/// * **Order.** Each thread's events are in their order, and no free is before its allocation. Beyond that
///   events of different threads are ordered by time.
/// * **Time** is the one at which any thread last looked at the clock, which each does every 32 events: what
///   threads do at once between two such looks may be recorded in another order, and events behind a pause
///   may have the time before it.
/// * **Failed** requests are no events.
///
/// ```
/// use vrampool::trace::{Op, Recorder};
/// use vrampool::{Backend, Pool, host::HostDevice};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let recorder = Recorder::new();
/// let pool = Pool::builder(&device).recorder(&recorder).build()?;
/// drop(pool.allocate(1000, &stream)?);
/// let _kept = pool.allocate(500, &stream)?;
///
/// let trace = recorder.trace("example")?;
/// assert_eq!(trace.events().iter().map(|event| event.op).collect::<Vec<_>>(), [Op::Allocate, Op::Free,
/// Op::Allocate]); assert_eq!(trace.peak_requested(), 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<Recording>);

/// A recorder that is there as long as somebody else keeps it.
#[derive(Debug, Clone)]
pub(crate) struct WeakRecorder(Weak<Recording>);

/// State that all handles and threads share.
struct Recording {
    face: Arc<Face>,
    /// Events for which there is room that no thread has.
    room: AtomicU64,
    spare: Mutex<Vec<Arc<Chunk>>>,
    /// By their number.
    logs: Mutex<Vec<Arc<Log>>>,
    /// For threads that have none of their own any more: what they do while they end.
    last: Mutex<Option<Writer>>,
}

/// Fields that every event reads, apart from fields that are written more often.
#[repr(align(128))]
#[derive(Debug)]
struct Face {
    began: Instant,
    /// Microseconds since then.
    now: AtomicU64,
    /// No other recorder of the process has it.
    number: u64,
}

/// Of more events a number would be another log's.
const MOST_EVENTS: u64 = 1 << 39;

impl Recorder {
    /// Default capacity in events, which take 16 MiB.
    pub const DEFAULT_EVENTS: u64 = 1 << 20;

    /// Records the first [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS).
    #[must_use]
    pub fn new() -> Self {
        Self::with_events(Self::DEFAULT_EVENTS)
    }

    /// Records the first `events` events, for which it takes 16 bytes each: for the first
    /// [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS) at once, for the rest as they come. At most 2^39 are
    /// recorded.
    #[must_use]
    pub fn with_events(events: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let events = events.min(MOST_EVENTS);
        let first = events.min(Self::DEFAULT_EVENTS).div_ceil(Chunk::EVENTS as u64);
        let spare = (0..first).map(|_| Arc::new(Chunk::new())).collect();
        Self(Arc::new(Recording {
            // Relaxed, here and below, unless said otherwise: single words, with which nothing is published.
            face: Arc::new(Face {
                began: Instant::now(),
                now: AtomicU64::new(0),
                number: NEXT.fetch_add(1, Relaxed),
            }),
            room: AtomicU64::new(events),
            spare: Mutex::new(spare),
            logs: Mutex::default(),
            last: Mutex::default(),
        }))
    }

    /// What was recorded so far, as a trace of this name: ids in the order of allocation, streams numbered in
    /// the order in which they come. What happens meanwhile may be in it or not. Recording goes on.
    ///
    /// # Errors
    /// [`Fault::TooManyStreams`](crate::trace::Fault::TooManyStreams).
    pub fn trace(&self, name: impl Into<String>) -> Result<Trace, TraceError> {
        let name = name.into();
        let logs: Vec<_> = self.0.logs.lock().clone();
        let trace = Trace::assemble(merge::events(&logs)).map(|trace| trace.named(&name));
        trace.map_err(|(event, (field, fault))| {
            Place { event: Some(event), field: Some(field), ..Place::default() }.error(name, fault)
        })
    }

    /// Events recorded so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.logs.lock().iter().map(|log| log.events()).sum()
    }

    /// Allocations that were left out for want of room so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.logs.lock().iter().map(|log| log.dropped()).sum()
    }

    /// Records an allocation that is not a pool's with this recorder: of another allocator, or of some of a
    /// pool's requests. Answers a number for its [free](Self::note_free); 0 where there is no room for it.
    ///
    /// ```
    /// # use vrampool::{Backend, Stream, host::HostDevice, trace::Recorder};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = HostDevice::new().create_stream()?;
    /// let recorder = Recorder::new();
    /// let number = recorder.note_allocation(1000, stream.id());
    /// recorder.note_free(number, stream.id());
    /// assert_eq!(recorder.trace("own")?.peak_requested(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn note_allocation(&self, bytes: u64, stream: StreamId) -> u64 {
        let number = Self::note_allocation_of(self.number(), bytes, stream);
        number.unwrap_or_else(|| self.note_allocation_in_time(bytes, stream))
    }

    /// As [`note_allocation`](Self::note_allocation), where something else is due first.
    #[cold]
    #[inline(never)]
    fn note_allocation_in_time(&self, bytes: u64, stream: StreamId) -> u64 {
        log::with(self, |writer| writer.allocated(bytes, stream))
    }

    /// Records the free of what was recorded under this number, with the stream that used it last; before its
    /// memory may go to somebody else. 0 is no event. Any other is to be a number of this recorder's, and
    /// freed once: else it takes room that others were promised, and the trace may have something else freed.
    pub fn note_free(&self, number: u64, stream: StreamId) {
        if number != 0 && !Self::note_free_of(self.number(), number, stream) {
            self.note_free_in_time(number, stream);
        }
    }

    /// As [`note_free`](Self::note_free), where something else is due first.
    #[cold]
    #[inline(never)]
    fn note_free_in_time(&self, number: u64, stream: StreamId) {
        log::with(self, |writer| writer.freed(number, stream));
    }

    /// Its number, from 1, that no other recorder of the process has.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.face.number
    }

    /// As [`note_allocation`](Self::note_allocation), where that takes a few nanoseconds and no handle: by
    /// the recorder of this [number](Self::number), if this thread recorded with it last and nothing else is
    /// due first, as it is every so many events. `None` if not: then it is not recorded yet.
    ///
    /// ```
    /// # use vrampool::{Backend, Stream, host::HostDevice, trace::Recorder};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let stream = HostDevice::new().create_stream()?;
    /// let recorder = Recorder::new();
    /// for bytes in 1..100 {
    ///     let number = Recorder::note_allocation_of(recorder.number(), bytes, stream.id());
    ///     let number = number.unwrap_or_else(|| recorder.note_allocation(bytes, stream.id()));
    ///     if !Recorder::note_free_of(recorder.number(), number, stream.id()) {
    ///         recorder.note_free(number, stream.id());
    ///     }
    /// }
    /// assert_eq!(recorder.events(), 198);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn note_allocation_of(recorder: u64, bytes: u64, stream: StreamId) -> Option<u64> {
        log::with_last(recorder, |writer| writer.allocated_quickly(bytes, stream))
    }

    /// As [`note_free`](Self::note_free), of a number that is not 0, where that takes a few nanoseconds and
    /// no handle, as [`note_allocation_of`](Self::note_allocation_of). Answers whether it is recorded.
    #[must_use]
    #[inline]
    pub fn note_free_of(recorder: u64, number: u64, stream: StreamId) -> bool {
        log::with_last(recorder, |writer| writer.freed_quickly(number, stream)).is_some()
    }

    pub(crate) fn downgrade(&self) -> WeakRecorder {
        WeakRecorder(Arc::downgrade(&self.0))
    }

    /// Room for so many events, or fewer.
    fn take_room(&self, events: u64) -> u64 {
        let taken = |room: u64| Some(room - room.min(events) / 2 * 2);
        self.0.room.fetch_update(Relaxed, Relaxed, taken).map_or(0, |room| room.min(events) / 2 * 2)
    }

    fn give_room(&self, events: u64) {
        self.0.room.fetch_add(events, Relaxed);
    }

    fn chunk(&self) -> Arc<Chunk> {
        let spare = self.0.spare.lock().pop();
        // Others have what was made for all, partly filled.
        spare.unwrap_or_else(|| Arc::new(Chunk::new()))
    }

    fn log(&self) -> Arc<Log> {
        let mut logs = self.0.logs.lock();
        let log = Arc::new(Log::new(logs.len() as u64));
        logs.push(Arc::clone(&log));
        log
    }
}

impl WeakRecorder {
    fn upgrade(&self) -> Option<Recorder> {
        self.0.upgrade().map(Recorder)
    }

    /// As [`Recorder::note_allocation`]; 0 without one.
    pub(crate) fn note_allocation(&self, bytes: u64, stream: StreamId) -> u64 {
        self.upgrade().map_or(0, |recorder| recorder.note_allocation(bytes, stream))
    }

    /// As [`Recorder::note_free`].
    pub(crate) fn note_free(&self, number: u64, stream: StreamId) {
        self.upgrade().into_iter().for_each(|recorder| recorder.note_free(number, stream));
    }
}

impl Face {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    fn read_clock(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).map_or(LAST, |now| now.min(LAST));
        if now >= self.now() + STALE {
            self.now.fetch_max(now, Relaxed);
        }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.events()).field("dropped", &self.dropped()).finish()
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::backend::{Backend, Stream};
    use crate::host::HostDevice;

    #[test]
    fn a_thread_keeps_nothing_of_what_was_recorded_when_the_recorder_is_gone() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        let recorder = Recorder::new();
        let mut number = 0;
        for _ in 0..3 * Chunk::EVENTS {
            number = recorder.note_allocation(1, stream);
            recorder.note_free(number, stream);
        }
        let logs: Vec<_> = recorder.0.logs.lock().iter().map(Arc::downgrade).collect();
        let recorded = recorder.number();
        drop(recorder);
        assert_eq!(logs.len(), 1);
        assert!(logs.iter().all(|log| log.strong_count() == 0), "the thread has it");
        // Whoever still knows the number has nothing to say to it, for however long.
        let left = (0..3 * Chunk::EVENTS).filter(|_| Recorder::note_free_of(recorded, number, stream));
        assert!(left.count() < Chunk::EVENTS, "there is no chunk any more");
    }

    #[test]
    fn neither_buffers_nor_threads_of_a_pool_keep_its_recorder() {
        let (recorder, device) = (Recorder::new(), HostDevice::new());
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).recorder(&recorder).build().expect("a pool");
        // Of the second this thread keeps the memory, and the pool with it.
        let (_live, idle) = [(); 2].map(|()| pool.allocate(10, &stream).expect("memory")).into();
        drop(idle);
        let kept = recorder.downgrade();
        drop(recorder);
        assert!(kept.upgrade().is_some(), "the pool keeps it");
        drop(pool);
        assert!(kept.upgrade().is_none());
    }

    #[test]
    fn room_for_more_events_than_there_is_memory_takes_none_of_it() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        for events in [1 << 40, u64::MAX] {
            let recorder = Recorder::with_events(events);
            recorder.note_free(recorder.note_allocation(1, stream), stream);
            assert_eq!((recorder.events(), recorder.dropped()), (2, 0));
        }
    }

    #[test]
    fn a_thread_forgets_its_writers_for_recorders_that_are_gone() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        for _ in 0..100 {
            assert_ne!(Recorder::with_events(2).note_allocation(1, stream), 0);
        }
        assert!(log::writers() <= 2);
    }
}
