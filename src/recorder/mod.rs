//! Recording of the allocations and frees of pools, at a few nanoseconds per event.

mod clock;
mod log;
mod logs;
mod merge;
mod writer;

use crate::trace::file::error::TraceError;
use crate::trace::file::position::Position;
use crate::trace::file::reader::Trace;
use clock::Clock;
use logs::Logs;
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use vrampool_backend::StreamId;
use writer::Writer;

/// Records the allocations and frees of [pools](crate::PoolBuilder::recorder), for a [`Trace`]. A clone is a
/// handle to the same recording; several pools may share one.
///
/// * **Cost.** A request and its free take some nanoseconds more each. Recording rarely takes a lock, an
///   atomic read-modify-write or a clock, because each thread writes to its own log. A pool without a
///   recorder has no overhead.
/// * **Memory** is bounded: 16 bytes per event, allocated when the recorder is created, and at most 16 KiB
///   more for each thread. An allocation is recorded only with room for its free. Each thread reserves room
///   for up to 256 pairs ahead. Further allocations and their frees are omitted and [counted](Self::dropped),
///   so a recording is the first part of each thread's events.
/// * **Order.** Each thread's events keep their order, and no free precedes its allocation. Otherwise events
///   of different threads are ordered by time.
/// * **Time** is the latest reading of the clock by any thread; each thread reads it every 32 events.
///   Concurrent events between two readings may be recorded in another order, and events after a pause may
///   have the time before it.
/// * **Failed** requests are not recorded.
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

/// A weak handle to a recorder.
#[derive(Debug, Clone)]
pub(crate) struct WeakRecorder(Weak<Recording>);

/// State that all handles and threads share.
struct Recording {
    clock: Arc<Clock>,
    logs: Arc<Logs>,
    /// For threads whose own writers are already destroyed at their end.
    last: Mutex<Option<Writer>>,
}

/// With more events a number would overlap another log's.
const MOST_EVENTS: u64 = 1 << 39;

impl Recorder {
    /// Default capacity in events, which take 16 MiB.
    pub const DEFAULT_EVENTS: u64 = 1 << 20;

    /// Creates a recorder of the first [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS) events.
    #[must_use]
    pub fn new() -> Self {
        Self::with_events(Self::DEFAULT_EVENTS)
    }

    /// Creates a recorder of the first `events` events, at most 2^39. It uses 16 bytes per event: at once for
    /// the first [`DEFAULT_EVENTS`](Self::DEFAULT_EVENTS), on demand for the rest.
    #[must_use]
    pub fn with_events(events: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let events = events.min(MOST_EVENTS);
        // Relaxed: a single word that publishes no other data.
        let clock = Arc::new(Clock::new(NEXT.fetch_add(1, Relaxed)));
        let logs = Logs::new(Arc::clone(&clock), events, events.min(Self::DEFAULT_EVENTS));
        Self(Arc::new(Recording { clock, logs: Arc::new(logs), last: Mutex::default() }))
    }

    /// Returns the events so far as a trace with this name. Ids are in the order of allocation, and streams
    /// are numbered in order of appearance. Concurrent events may be included or not. Recording continues.
    ///
    /// # Errors
    /// [`TraceFault::TooManyStreams`](crate::trace::TraceFault::TooManyStreams).
    pub fn trace(&self, name: impl Into<String>) -> Result<Trace, TraceError> {
        let name = name.into();
        let logs = self.0.logs.all();
        let trace = Trace::assemble(merge::events(&logs)).map(|trace| trace.named(&name));
        trace.map_err(|(event, (field, fault))| {
            Position { event: Some(event), field: Some(field), ..Position::default() }.error(name, fault)
        })
    }

    /// Returns the number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.logs.all().iter().map(|log| log.events()).sum()
    }

    /// Returns the number of allocations omitted so far because there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.logs.all().iter().map(|log| log.dropped()).sum()
    }

    /// Records an allocation outside the pools with this recorder: of another allocator, or for selected
    /// requests of a pool. Returns a number for its [free](Self::note_free), or 0 if there is no room.
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

    /// As [`note_allocation`](Self::note_allocation), if other work is due first.
    #[cold]
    #[inline(never)]
    fn note_allocation_in_time(&self, bytes: u64, stream: StreamId) -> u64 {
        writer::with(&self.0.logs, &self.0.last, |writer| writer.allocated(bytes, stream))
    }

    /// Records the free of a recorded allocation, with the stream that used it last. Call it before the
    /// memory can be reused.
    ///
    /// The number 0 is ignored. Any other must be a number of this recorder, freed once. Otherwise it uses
    /// room reserved for other events, and the trace may contain a free of another allocation.
    pub fn note_free(&self, number: u64, stream: StreamId) {
        if number != 0 && !Self::note_free_of(self.number(), number, stream) {
            self.note_free_in_time(number, stream);
        }
    }

    /// As [`note_free`](Self::note_free), if other work is due first.
    #[cold]
    #[inline(never)]
    fn note_free_in_time(&self, number: u64, stream: StreamId) {
        writer::with(&self.0.logs, &self.0.last, |writer| writer.freed(number, stream));
    }

    /// Returns its number, from 1, which is unique among recorders of the process.
    #[must_use]
    pub(crate) fn number(&self) -> u64 {
        self.0.clock.number
    }

    /// Records an allocation as [`note_allocation`](Self::note_allocation), but only on its fast path and
    /// without a handle.
    ///
    /// The fast path applies if this thread last recorded with the recorder of this [number](Self::number)
    /// and no periodic work is due. Otherwise this returns `None`, and nothing is recorded yet.
    #[must_use]
    #[inline]
    pub(crate) fn note_allocation_of(recorder: u64, bytes: u64, stream: StreamId) -> Option<u64> {
        writer::with_last(recorder, |writer| writer.allocated_quickly(bytes, stream))
    }

    /// Records a free as [`note_free`](Self::note_free), but only on the fast path of
    /// [`note_allocation_of`](Self::note_allocation_of). The number must not be 0. Returns whether the free
    /// is recorded.
    #[must_use]
    #[inline]
    pub(crate) fn note_free_of(recorder: u64, number: u64, stream: StreamId) -> bool {
        writer::with_last(recorder, |writer| writer.freed_quickly(number, stream)).is_some()
    }

    pub(crate) fn downgrade(&self) -> WeakRecorder {
        WeakRecorder(Arc::downgrade(&self.0))
    }
}

impl WeakRecorder {
    fn upgrade(&self) -> Option<Recorder> {
        self.0.upgrade().map(Recorder)
    }

    /// As [`Recorder::note_allocation`]; 0 after the recorder is dropped.
    pub(crate) fn note_allocation(&self, bytes: u64, stream: StreamId) -> u64 {
        self.upgrade().map_or(0, |recorder| recorder.note_allocation(bytes, stream))
    }

    pub(crate) fn note_free(&self, number: u64, stream: StreamId) {
        self.upgrade().into_iter().for_each(|recorder| recorder.note_free(number, stream));
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
    use super::log::Chunk;
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
        let logs: Vec<_> = recorder.0.logs.all().iter().map(Arc::downgrade).collect();
        let recorded = recorder.number();
        drop(recorder);
        assert_eq!(logs.len(), 1);
        assert!(logs.iter().all(|log| log.strong_count() == 0), "the thread has it");
        // A caller that still knows the number can record no more, however often it tries.
        let left = (0..3 * Chunk::EVENTS).filter(|_| Recorder::note_free_of(recorded, number, stream));
        assert!(left.count() < Chunk::EVENTS, "there is no chunk any more");
    }

    #[test]
    fn neither_buffers_nor_threads_of_a_pool_keep_its_recorder() {
        let (recorder, device) = (Recorder::new(), HostDevice::new());
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).recorder(&recorder).build().expect("a pool");
        // This thread keeps the memory of the second buffer, and so the pool.
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
        assert!(writer::writers() <= 2);
    }
}
