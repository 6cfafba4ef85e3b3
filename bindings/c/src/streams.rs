//! Streams by the handles that C knows them by.

use crate::failure::{Failure, Status};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::backend::StreamId;
use vrampool::{Backend, Stream};

/// A pool's device, where its streams are found.
#[derive(Debug)]
pub(crate) struct Home {
    /// The pool's handle, under which its streams are known. Segments have 0, and no known streams.
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

/// Changes when what threads remember of requests becomes invalid.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// Changes when [known streams](KNOWN) become invalid.
static RETIRED: AtomicU64 = AtomicU64::new(0);

/// The streams that were found since one was retired, by pool and handle; read without a lock.
static KNOWN: ArcSwapOption<Known> = ArcSwapOption::const_empty();

#[derive(Debug, Clone)]
struct Known {
    retired: u64,
    streams: BTreeMap<(u64, usize), AnyStream>,
}

/// How many streams are known at most.
const MOST_KNOWN: usize = 1024;

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

impl Home {
    pub(crate) fn new(key: u64, device: AnyDevice) -> Self {
        Self { key, device, null: OnceLock::new(), aside: OnceLock::new() }
    }

    /// Calls `act` with a stream. A known stream takes no lock and no count.
    #[inline(always)]
    pub(crate) fn with_stream<T>(
        &self,
        raw: usize,
        act: impl FnOnce(&AnyStream) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let known = KNOWN.load();
        match self.known(known.as_deref(), raw) {
            Some(stream) => act(stream),
            None => act(&self.find_and_keep(raw)?),
        }
    }

    /// Calls `act` with a known stream; `None` if it is unknown.
    #[inline(always)]
    pub(crate) fn with_known<T>(&self, raw: usize, act: impl FnOnce(&AnyStream) -> T) -> Option<T> {
        self.known(KNOWN.load().as_deref(), raw).map(act)
    }

    #[inline(always)]
    fn known<'a>(&self, known: Option<&'a Known>, raw: usize) -> Option<&'a AnyStream> {
        known.filter(|known| known.retired == RETIRED.load(Ordering::Acquire))?.streams.get(&(self.key, raw))
    }

    #[cold]
    #[inline(never)]
    fn find_and_keep(&self, raw: usize) -> Result<AnyStream, Failure> {
        // Before it is found: a stream that is retired meanwhile is not known.
        let retired = RETIRED.load(Ordering::Acquire);
        let stream = self.find(raw)?;
        if raw != PER_THREAD {
            KNOWN.rcu(|known| {
                let known =
                    known.as_deref().filter(|of| of.retired == retired && of.streams.len() < MOST_KNOWN);
                let mut streams = known.map(|known| known.streams.clone()).unwrap_or_default();
                streams.insert((self.key, raw), stream.clone());
                Some(Arc::new(Known { retired, streams }))
            });
        }
        Ok(stream)
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

/// Known streams, and what threads remember of requests, are wrong from now on.
pub(crate) fn forget() {
    // Release, here and below: pairs with the acquire of readers.
    RETIRED.fetch_add(1, Ordering::Release);
    forget_requests();
    KNOWN.store(None);
}

/// What threads remember of requests is wrong from now on: a pool begins to be recorded.
pub(crate) fn forget_requests() {
    EPOCH.fetch_add(1, Ordering::Release);
}

fn unknown(raw: usize) -> Failure {
    Failure::invalid(
        "stream",
        &format!("{raw:#x} was not returned by vrampool_stream_create; null is the default stream"),
    )
}
