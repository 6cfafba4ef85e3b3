//! Recording of the allocations and frees of pools.

mod clock;
mod log;
mod logs;
mod merge;
mod writer;

use crate::error::TraceError;
use crate::error::place::Place;
use crate::file::reader::Trace;
use clock::Clock;
use logs::Logs;
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use vrampool::backend::StreamId;
use vrampool::hooks::{Hook, HookCalls, HookEvent, Outcome};
use writer::Writer;

/// Records the allocations and frees of pools that have its [hook](Self::hook), for a [`Trace`]. A clone is a
/// handle to the same recording; several pools may share one.
///
/// * **Cost.** A request and its free take up to 30 ns more each. Recording rarely takes a lock, an atomic
///   read-modify-write or a clock, because each thread writes to its own log. A pool without a recorder has
///   no overhead.
/// * **Memory** is bounded: 16 bytes per event, allocated when the recorder is created, and at most 16 KiB
///   more for each thread. An allocation is recorded only with room for its free. Each thread reserves room
///   for up to 256 pairs ahead. Further allocations and their frees are omitted and [counted](Self::dropped),
///   so a recording is the first part of each thread's events.
/// * **Order.** Each thread's events keep their order, and no free precedes its allocation. Otherwise events
///   of different threads are ordered by time.
/// * **Time** is the latest reading of the clock by any thread; each thread reads it every 32 events.
///   Concurrent events between two readings may be recorded in another order, and events after a pause may
///   have the time before it.
/// * **Origins** are recorded: the name of the pool or child, and the line of code that called it; the first 65,535, of
///   some hundred bytes each. Sizes are recorded up to 2^48 − 1 bytes.
/// * **Failed** requests, and requests that other hooks make, are not recorded. Nor are requests of a pool in
///   which another hook [keeps](HookEvent::keep) a number of its own.
///
/// ```
/// use vrampool_trace::{Op, Recorder};
/// use vrampool::{Backend, Pool, host::HostDevice};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let recorder = Recorder::new();
/// let pool = Pool::builder(&device).hook(recorder.hook()).build()?;
/// drop(pool.allocate(1000, &stream)?);
/// let _kept = pool.allocate(500, &stream)?;
///
/// let trace = recorder.trace("example")?;
/// let operations: Vec<_> = trace.events().iter().map(|event| event.op).collect();
/// assert_eq!(operations, [Op::Allocate, Op::Free, Op::Allocate]);
/// assert_eq!(trace.peak_requested(), 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<Recording>);

/// State that all handles and threads share.
struct Recording {
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
        let logs = Logs::new(clock, events, events.min(Self::DEFAULT_EVENTS));
        Self(Arc::new(Recording { logs: Arc::new(logs), last: Mutex::default() }))
    }

    /// Returns the events so far as a trace with this name. Ids are in the order of allocation, and streams
    /// are numbered in order of appearance. Concurrent events may be included or not. Recording continues.
    ///
    /// # Errors
    /// [`TraceFault::TooManyStreams`](crate::TraceFault::TooManyStreams).
    pub fn trace(&self, name: impl Into<String>) -> Result<Trace, TraceError> {
        let name = name.into();
        let events = merge::events(&self.0.logs.all());
        let origins = self.0.logs.origins.lock().list();
        let trace = Trace::assemble(events, origins, self.dropped()).map(|trace| trace.named(&name));
        trace.map_err(|(event, (field, fault))| {
            Place { event: Some(event), field: Some(field), ..Place::default() }.error(name, fault)
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
        self.0.logs.dropped.load(Relaxed)
    }

    /// Records an allocation outside the pools with this recorder: of another allocator, or for selected
    /// requests of a pool. `pool` is a name for its [`Origin`](crate::Origin), or empty. Returns a number for its
    /// [free](Self::note_free), or 0 if there is no room.
    ///
    /// ```
    /// # use vrampool::{Backend, Stream, host::HostDevice};
    /// # use vrampool_trace::Recorder;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = HostDevice::new().create_stream()?;
    /// let recorder = Recorder::new();
    /// let number = recorder.note_allocation(1000, stream.id(), "");
    /// recorder.note_free(number, stream.id());
    /// assert_eq!(recorder.trace("own")?.peak_requested(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn note_allocation(&self, bytes: u64, stream: StreamId, pool: &str) -> u64 {
        self.write(|writer| writer.allocated(bytes, stream, pool, None)).unwrap_or(0)
    }

    /// Records the free of a recorded allocation, with the stream that used it last. Call it before the
    /// memory can be reused.
    ///
    /// The number 0 is ignored. Any other must be a number of this recorder, freed once. Otherwise it uses
    /// room reserved for other events, and the trace may contain a free of another allocation.
    pub fn note_free(&self, number: u64, stream: StreamId) {
        if number != 0 {
            self.write(|writer| writer.freed(number, stream));
        }
    }

    fn write<T>(&self, act: impl Fn(&mut Writer) -> T) -> Option<T> {
        write(self.0.logs.clock.number, || Some(Arc::clone(&self.0)), act)
    }

    /// Returns the hook that records a pool, for [`PoolBuilder::hook`](vrampool::PoolBuilder::hook). It does
    /// not keep the recorder, without which nothing is recorded.
    pub fn hook(&self) -> RecorderHook {
        RecorderHook { number: self.0.logs.clock.number, recording: Arc::downgrade(&self.0) }
    }
}

/// Calls `act` with this thread's writer for the recorder of this number.
#[inline]
fn write<T>(
    number: u64,
    recording: impl Fn() -> Option<Arc<Recording>>,
    act: impl Fn(&mut Writer) -> T,
) -> Option<T> {
    let logs = || Some(Arc::clone(&recording()?.logs));
    writer::with(number, logs, &act).or_else(|| {
        let recording = recording()?;
        let mut last = recording.last.lock();
        Some(act(last.get_or_insert_with(|| Writer::new(&recording.logs))))
    })
}

/// Records a pool: the [hook](Recorder::hook) of a [`Recorder`].
#[derive(Debug, Clone)]
#[must_use = "it records the pools that have it"]
pub struct RecorderHook {
    number: u64,
    recording: Weak<Recording>,
}

impl RecorderHook {
    // A thread that wrote with the recorder last needs no handle, and changes no reference count.
    #[inline]
    fn write<T>(&self, act: impl Fn(&mut Writer) -> T) -> Option<T> {
        write(self.number, || self.recording.upgrade(), act)
    }
}

impl Hook for RecorderHook {
    fn name(&self) -> &str {
        "recorder"
    }

    fn calls(&self) -> HookCalls {
        HookCalls::AFTER_REQUEST | HookCalls::BEFORE_FREE
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        // A free finds what is recorded by the number that is kept.
        if event.outcome != Outcome::Done || !event.keep(self.number, 0) {
            return;
        }
        let (bytes, stream) = (event.requested_bytes, event.stream);
        let allocated = |writer: &mut Writer| writer.allocated(bytes, stream, event.pool, Some(event.site));
        if let Some(number) = self.write(allocated) {
            event.keep(self.number, number);
        }
    }

    // Before: another thread's request may be served by what is freed, and is recorded later than that.
    fn before_free(&self, event: &HookEvent<'_>) {
        if let Some(number) = event.kept(self.number).filter(|&number| number != 0) {
            self.write(|writer| writer.freed(number, event.stream));
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

#[cfg(test)]
mod tests {
    use super::log::Chunk;
    use super::*;
    use vrampool::Pool;
    use vrampool::backend::{Backend, Stream};
    use vrampool::host::HostDevice;

    #[test]
    fn a_thread_keeps_nothing_of_what_was_recorded_after_the_recorder_is_dropped() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        let recorder = Recorder::new();
        let mut number = 0;
        for _ in 0..3 * Chunk::EVENTS {
            number = recorder.note_allocation(1, stream, "");
            recorder.note_free(number, stream);
        }
        let logs: Vec<_> = recorder.0.logs.all().iter().map(Arc::downgrade).collect();
        let hook = recorder.hook();
        drop(recorder);
        assert_eq!(logs.len(), 1);
        assert!(logs.iter().all(|log| log.strong_count() == 0), "the thread has it");
        // The hook can record no more, however often it tries.
        let free = || hook.write(|writer| writer.freed(number, stream)) == Some(true);
        let left = (0..3 * Chunk::EVENTS).filter(|_| free());
        assert!(left.count() < Chunk::EVENTS, "there is no chunk any more");
    }

    #[test]
    fn neither_pools_nor_their_buffers_and_threads_keep_a_recorder() {
        let (recorder, device) = (Recorder::new(), HostDevice::new());
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).hook(recorder.hook()).build().expect("a pool");
        // This thread keeps the memory of the second buffer, and so the pool.
        let (_live, idle) = [(); 2].map(|()| pool.allocate(10, &stream).expect("memory")).into();
        drop(idle);
        let hook = recorder.hook();
        drop(recorder);
        assert!(hook.recording.upgrade().is_none());
        // Without it the pool serves as before.
        drop(pool.allocate(10, &stream).expect("memory"));
        assert_eq!(pool.stats().served.by_bucket, 1);
    }

    #[test]
    fn room_for_more_events_than_there_is_memory_takes_none_of_it() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        for events in [1 << 40, u64::MAX] {
            let recorder = Recorder::with_events(events);
            recorder.note_free(recorder.note_allocation(1, stream, ""), stream);
            assert_eq!((recorder.events(), recorder.dropped()), (2, 0));
        }
    }

    #[test]
    fn a_thread_forgets_its_writers_for_recorders_that_are_dropped() {
        let stream = HostDevice::new().create_stream().expect("a stream").id();
        for _ in 0..100 {
            assert_ne!(Recorder::with_events(2).note_allocation(1, stream, ""), 0);
        }
        assert!(writer::writers() <= 2);
    }
}
