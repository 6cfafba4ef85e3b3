//! Streams by the handles that C knows them by.

use crate::failure::{Failure, Status};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::backend::{StreamId, fork};
use vrampool::{Backend, Stream};

/// A pool's device, where its streams are found.
#[derive(Debug)]
pub(crate) struct Home {
    /// The pool's handle, under which threads know its streams.
    key: u64,
    pub(crate) device: AnyDevice,
    /// What null is where the device has no default stream of its own.
    null: OnceLock<AnyStream>,
    /// A stream without other users, which therefore is never captured.
    aside: OnceLock<AnyStream>,
}

/// Streams that were made here, by handle. They are their devices' own, and every pool's on it.
static MADE: Mutex<BTreeMap<usize, AnyStream>> = Mutex::new(BTreeMap::new());

/// Streams of brokers, by handle. They end with their broker.
static BROKER_STREAMS: Mutex<BTreeMap<usize, AnyStream>> = Mutex::new(BTreeMap::new());

/// Changes when entries that threads keep become invalid: by [`OF_STREAMS`] for entries of streams and of requests, by
/// 1 for entries of requests alone.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The step of [`EPOCH`] that invalidates entries of streams: a power of two, because look-ups divide by it.
const OF_STREAMS: u64 = 1 << 16;

/// `CU_STREAM_PER_THREAD`: on each thread the handle of another stream.
pub(crate) const PER_THREAD: usize = 2;

/// A stream: the handle that C gave, what it was then, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    pub(crate) raw: usize,
    pub(crate) id: StreamId,
    pub(crate) epoch: u64,
}

impl Named {
    /// `epoch`: as of before the stream was found.
    pub(crate) fn new(raw: usize, stream: &AnyStream, epoch: u64) -> Self {
        Self { raw, id: stream.id(), epoch }
    }
}

/// Handles that were the same stream's in the same epoch are, but for [`PER_THREAD`].
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    // Acquire: pairs with the release of the thread that retired a stream.
    EPOCH.load(Ordering::Acquire)
}

/// How many streams a thread remembers.
const KNOWN: usize = 16;

struct Known {
    key: u64,
    raw: usize,
    stream: AnyStream,
}

struct Memory {
    known: RefCell<[Option<Known>; KNOWN]>,
    /// [`epoch`] over [`OF_STREAMS`] when it was last emptied.
    epoch: Cell<u64>,
}

/// Streams that threads knew as they ended. The last handle to a stream calls the driver when it goes, and no
/// driver is called while a thread's own variables are destroyed: some of the driver's may be destroyed by then.
static LEFT: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Drop for Memory {
    fn drop(&mut self) {
        let left = self.known.get_mut().iter_mut().filter_map(Option::take);
        if fork::is_forked() {
            // The lock may be held by a thread that is not here, and the streams are the parent's.
            return left.for_each(mem::forget);
        }
        LEFT.lock().extend(left);
    }
}

thread_local! {
    static MEMORY: Memory = const { Memory { known: RefCell::new([const { None }; KNOWN]), epoch: Cell::new(0) } };
}

impl Home {
    pub(crate) fn new(key: u64, device: AnyDevice) -> Self {
        Self { key, device, null: OnceLock::new(), aside: OnceLock::new() }
    }

    /// Does something with a stream. One that this thread had lately takes no lock and no count.
    #[inline(always)]
    pub(crate) fn with_stream<T>(
        &self,
        raw: usize,
        act: impl FnOnce(&AnyStream) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut act = Some(act);
        match (self.with_known(raw, |stream| act.take().map(|act| act(stream))), act) {
            (Some(Some(done)), _) => done,
            (_, Some(act)) => self.with_found(raw, act),
            (_, None) => Err(Failure::new(Status::INTERNAL, "a call was lost")),
        }
    }

    /// Does something with a stream that this thread remembers; `None` where it does not.
    #[inline(always)]
    pub(crate) fn with_known<T>(&self, raw: usize, act: impl FnOnce(&AnyStream) -> T) -> Option<T> {
        let done = MEMORY.try_with(|memory| {
            if memory.epoch.get() != epoch() / OF_STREAMS {
                return None;
            }
            let known = memory.known.try_borrow().ok()?;
            let known = known[place(self.key, raw)].as_ref()?;
            if known.key != self.key || known.raw != raw {
                return None;
            }
            Some(act(&known.stream))
        });
        done.ok().flatten()
    }

    #[cold]
    #[inline(never)]
    fn with_found<T>(
        &self,
        raw: usize,
        act: impl FnOnce(&AnyStream) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        drop_left();
        let stream = self.find(raw)?;
        // A thread that ends, or is in here already, does without.
        let before = MEMORY.try_with(|memory| {
            let mut known = memory.known.try_borrow_mut().ok()?;
            let epoch = epoch() / OF_STREAMS;
            let forgotten = match memory.epoch.replace(epoch) == epoch {
                true => None,
                false => Some(mem::replace(&mut *known, [const { None }; KNOWN])),
            };
            let entry = Known { key: self.key, raw, stream: stream.clone() };
            Some((forgotten, known[place(self.key, raw)].replace(entry)))
        });
        // The last handle to a stream may do anything when it goes.
        drop(before);
        act(&stream)
    }

    /// The stream of this handle.
    pub(crate) fn find(&self, raw: usize) -> Result<AnyStream, Failure> {
        #[cfg(feature = "cuda")]
        if let AnyDevice::Cuda(device) = &self.device {
            // SAFETY: the header's promise: the handle is one of a stream that exists, until
            // `vrampool_stream_retire` or `vrampool_stream_destroy` says that it goes.
            return Ok(unsafe { device.wrap_raw_stream(raw as *mut _) }?.into());
        }
        if raw == 0 {
            return self.kept(&self.null).cloned();
        }
        self.of_device(
            raw,
            [&MADE, &BROKER_STREAMS].iter().find_map(|streams| streams.lock().get(&raw).cloned()),
        )
    }

    /// Checks that a stream was found for a handle, and is of this device.
    fn of_device(&self, raw: usize, found: Option<AnyStream>) -> Result<AnyStream, Failure> {
        let stream = found.ok_or_else(|| unknown(raw))?;
        if stream.device() != self.device.id() {
            return Err(Failure::new(Status::MISMATCH, "the stream belongs to another device than the pool"));
        }
        Ok(stream)
    }

    /// The streams of this device that were made here.
    fn made(&self) -> Vec<AnyStream> {
        let made = MADE.lock();
        made.values().filter(|stream| stream.device() == self.device.id()).cloned().collect()
    }

    /// A stream that is never captured.
    pub(crate) fn aside(&self) -> Result<&AnyStream, Failure> {
        self.kept(&self.aside)
    }

    /// The stream at a place, made by the first call.
    fn kept<'a>(&self, place: &'a OnceLock<AnyStream>) -> Result<&'a AnyStream, Failure> {
        if let Some(stream) = place.get() {
            return Ok(stream);
        }
        let stream = self.device.create_stream()?;
        Ok(place.get_or_init(|| stream))
    }

    /// A new stream, under the handle that the device's driver knows it by, if it has one.
    pub(crate) fn create(&self) -> Result<usize, Failure> {
        let stream = self.device.create_stream()?;
        let raw = raw_of(&stream);
        MADE.lock().insert(raw, stream);
        Ok(raw)
    }

    /// Ends a stream that was made here.
    pub(crate) fn destroy(&self, raw: usize) -> Result<(), Failure> {
        let stream = self.of_device(raw, MADE.lock().get(&raw).cloned())?;
        self.device.synchronize(&stream)?;
        retire(&stream)?;
        let made = MADE.lock().remove(&raw);
        forget();
        drop((made, stream));
        drop_left();
        Ok(())
    }

    /// Retires a stream before its owner destroys it.
    pub(crate) fn retire(&self, raw: usize) -> Result<(), Failure> {
        let stream = self.find(raw)?;
        match &stream {
            #[cfg(feature = "cuda")]
            AnyStream::Cuda(_) => retire(&stream)?,
            // It may be asked for again.
            stream => self.device.synchronize(stream)?,
        }
        forget();
        drop_left();
        Ok(())
    }

    /// The number of a CUDA device; 0 of others.
    pub(crate) fn number(&self) -> c_int {
        match &self.device {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(device) => c_int::try_from(device.ordinal()).unwrap_or(c_int::MAX),
            #[allow(unreachable_patterns, reason = "not without other backends")]
            _ => 0,
        }
    }

    /// Whether one of these streams is captured, one that was made here or, on CUDA, one that blocks the default
    /// stream. Others cannot be asked for.
    pub(crate) fn is_captured<'a>(&self, named: impl IntoIterator<Item = &'a AnyStream>) -> bool {
        // A stream that was destroyed is not captured.
        let is_captured = |stream: &AnyStream| self.device.is_capturing(stream).unwrap_or(false);
        if named.into_iter().any(is_captured) || self.made().iter().any(is_captured) {
            return true;
        }
        #[cfg(feature = "cuda")]
        if let AnyDevice::Cuda(device) = &self.device {
            // The driver refuses to say so of the default stream while a stream that blocks it is captured.
            let default = device.null_stream().and_then(|null| device.is_capturing(&null));
            return default.unwrap_or_else(|error| !error.is_device_lost());
        }
        false
    }

    /// Waits for all work on the device, also of streams that this library does not know.
    pub(crate) fn drain(&self) -> Result<(), Failure> {
        #[cfg(feature = "cuda")]
        if let AnyDevice::Cuda(device) = &self.device {
            return Ok(device.synchronize_all()?);
        }
        if let Some(stream) = self.null.get() {
            self.device.synchronize(stream)?;
        }
        self.made().iter().try_for_each(|stream| Ok(self.device.synchronize(stream)?))
    }
}

/// The handle of a stream that has none yet: its driver's, if that has handles.
fn raw_of(stream: &AnyStream) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    match stream {
        #[cfg(feature = "cuda")]
        AnyStream::Cuda(stream) => stream.cudarc().cu_stream() as usize,
        // A number that no pointer is: odd. Relaxed: only distinctness matters.
        _ => NEXT.fetch_add(2, Ordering::Relaxed),
    }
}

/// Gives a broker's stream a handle, until [`unregister_broker_streams`].
pub(crate) fn register_broker_stream(stream: &AnyStream) -> usize {
    let raw = raw_of(stream);
    BROKER_STREAMS.lock().insert(raw, stream.clone());
    raw
}

/// Ends the handles of a broker's streams.
pub(crate) fn unregister_broker_streams(handles: impl Iterator<Item = usize>) {
    let ended: Vec<_> = {
        let mut streams = BROKER_STREAMS.lock();
        handles.filter_map(|raw| streams.remove(&raw)).collect()
    };
    forget();
    drop(ended);
    drop_left();
}

/// Lets a stream go, whose work is done: blocks that were used on it have handles to it for as long as they
/// live, and keep nothing of it by that.
fn retire(stream: &AnyStream) -> Result<(), Failure> {
    match stream {
        AnyStream::Host(stream) => Ok(stream.retire()?),
        #[cfg(feature = "cuda")]
        AnyStream::Cuda(stream) => Ok(stream.retire()?),
        // It has nothing but its handle.
        #[allow(unreachable_patterns, reason = "not without other backends")]
        _ => Ok(()),
    }
}

/// Lets go of the streams that ended threads knew.
fn drop_left() {
    let left = mem::take(&mut *LEFT.lock());
    drop(left);
}

/// What threads remember is wrong from now on.
pub(crate) fn forget() {
    // Release, here and below: pairs with the acquire of readers.
    EPOCH.fetch_add(OF_STREAMS, Ordering::Release);
}

/// What threads remember of requests is wrong from now on: a pool begins to be recorded.
pub(crate) fn forget_requests() {
    EPOCH.fetch_add(1, Ordering::Release);
}

#[inline(always)]
fn place(key: u64, raw: usize) -> usize {
    let hash = (raw as u64 ^ key.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - KNOWN.ilog2())) as usize
}

fn unknown(raw: usize) -> Failure {
    Failure::invalid(
        "stream",
        &format!("{raw:#x} was not returned by vrampool_stream_create; null is the default stream"),
    )
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use vrampool::host::HostDevice;

    /// Another thread of the parent holds the lock at the fork, for ever as the child sees it.
    #[test]
    fn a_thread_that_ends_in_a_forked_child_waits_for_no_lock() {
        let device = AnyDevice::from(HostDevice::new());
        let stream = device.create_stream().expect("a stream");
        let memory = Memory { known: RefCell::new([const { None }; KNOWN]), epoch: Cell::new(0) };
        memory.known.borrow_mut()[0] = Some(Known { key: 1, raw: 1, stream });
        let locked = LEFT.lock();
        // SAFETY: the child drops one value, which is what is tested, and ends without any destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a call without memory; the alarm only ends a child that would wait.
            unsafe { libc::alarm(30) };
            drop(memory);
            // SAFETY: a call without memory.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: `status` is written once, before the call returns.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        drop(locked);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    }
}
