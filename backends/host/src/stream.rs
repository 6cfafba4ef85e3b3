//! Streams: queues of work that threads do in order and later; and events, points in them.

use crate::driver::ALIGNMENT;
use crate::fault::{Call, lost};
use crate::memory::{HeldRange, HostMemory};
use crate::shared::DeviceCore;
use crate::worker::{Failure, Flag, Work, Worker, is_worker_of};
use bytemuck::Pod;
use crossbeam_channel::{Sender, unbounded};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::spi::start_thread;
use vrampool_backend::{BackendError, DeviceId, Event, Region, RegionMut, Stream, StreamId, arguments, fork};

/// An ordered queue of work on a [`HostDevice`](crate::HostDevice). Its thread ends, with all work done, when
/// the last handle is dropped, or when it is [retired](Self::retire): memory that was used on it has handles,
/// too.
#[derive(Debug, Clone)]
pub struct HostStream {
    /// One count to a clone: idle memory clones its stream.
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: StreamId,
    queue: RwLock<Queue>,
    /// Pieces of work that were queued and are not done.
    pending: Arc<AtomicU64>,
    failure: Arc<Failure>,
    device: Arc<DeviceCore>,
}

#[derive(Debug)]
enum Queue {
    Open(Sender<Work>),
    /// The stream was retired; what was queued before is done when this is set.
    Closed(Arc<Flag>),
}

/// A point in a [`HostStream`].
#[derive(Debug, Clone)]
pub struct HostEvent {
    flag: Arc<Flag>,
    device: Arc<DeviceCore>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Queue::Open(queue) = self.queue.get_mut()
            && fork::is_forked()
        {
            // The queue's end would be sent to a worker that is not here.
            std::mem::forget(queue.clone());
        }
    }
}

impl Event for HostEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        self.device.faults.check(Call::Query)?;
        Ok(self.flag.outcome().is_some())
    }
}

impl Stream for HostStream {
    fn id(&self) -> StreamId {
        self.inner.id
    }

    fn device(&self) -> DeviceId {
        self.inner.device.id
    }

    fn is_retired(&self) -> bool {
        matches!(&*self.inner.queue.read(), Queue::Closed(done) if done.outcome().is_some())
    }
}

impl HostStream {
    pub(crate) fn spawn(device: &Arc<DeviceCore>) -> Result<Self, BackendError> {
        let (queue, work) = unbounded();
        let id = StreamId::next();
        let failure = Arc::new(Failure::default());
        let pending = Arc::new(AtomicU64::new(0));
        let worker = Worker {
            id,
            work,
            pending: Arc::clone(&pending),
            failure: Arc::clone(&failure),
            device: Arc::clone(device),
        };
        let thread = std::thread::Builder::new().name(format!("vrampool host {id}"));
        let spawned = start_thread(|| thread.spawn(move || worker.run()));
        spawned.map_err(|error| {
            BackendError::driver("spawn", error.raw_os_error().map_or(-1, i64::from), error.to_string())
        })?;
        let queue = RwLock::new(Queue::Open(queue));
        Ok(Self { inner: Arc::new(Inner { id, queue, pending, failure, device: Arc::clone(device) }) })
    }

    /// Lets a stream go: waits for its work, and ends its thread. Memory that was last used on it is found
    /// again without a wait; new work on it is refused as an invalid argument.
    ///
    /// ```
    /// # use vrampool_host::{Backend, HostDevice, Stream};
    /// # let device = HostDevice::new();
    /// let stream = device.create_stream()?;
    /// stream.retire()?;
    /// assert!(stream.is_retired());
    /// device.synchronize(&stream)?;
    /// assert!(stream.launch::<u8, 0, 0>([], [], |_, _| ()).is_err());
    /// # Ok::<(), vrampool_host::BackendError>(())
    /// ```
    ///
    /// # Errors
    /// Of the stream's work, which is over then all the same; [`BackendError::InvalidArgument`] from work on
    /// the stream itself, which is as it was then.
    pub fn retire(&self) -> Result<(), BackendError> {
        self.check_elsewhere()?;
        let mut queue = self.inner.queue.write();
        let done = match &*queue {
            Queue::Closed(done) => Arc::clone(done),
            Queue::Open(work) => {
                let done = Arc::new(Flag::default());
                self.queue_on(work, Work::Signal(Arc::clone(&done)))?;
                // The thread ends when no sender is left.
                *queue = Queue::Closed(Arc::clone(&done));
                done
            }
        };
        drop(queue);
        done.wait()
    }

    /// Runs `kernel` on this stream, after the work before it, with the regions as slices of `T`: `reads`
    /// shared, `writes` exclusive. A panic in it fails the stream, by
    /// [the rule of all backends](BackendError#when-work-fails): from then on [`synchronize`], [`download`]
    /// and whatever enqueues work return [`BackendError::StreamFailed`], queued work is not done, and a
    /// stream that waits for it fails too.
    ///
    /// ```
    /// # use vrampool_host::{AllocationRequest, Backend, HostDevice, Placement, Region, RegionMut};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let x = device.allocate(&AllocationRequest::new(64, Placement::Device))?;
    /// # let y = device.allocate(&AllocationRequest::new(64, Placement::Device))?;
    /// stream.launch([Region::whole(&x, &stream)], [RegionMut::whole(&y, &stream)], |[x], [y]: [&mut [f32];
    /// 1]| {
    ///     y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
    /// })?;
    /// # device.synchronize(&stream)?;
    /// # Ok::<(), vrampool_host::BackendError>(())
    /// ```
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when a region is another stream's or another device's, is not a
    /// whole number of aligned `T`s (at most 64 bytes, and not of no size), or a written one overlaps any
    /// other; [`BackendError::DeviceLost`].
    ///
    /// [`synchronize`]: vrampool_backend::Backend::synchronize
    /// [`download`]: vrampool_backend::Backend::download
    pub fn launch<T: Pod, const R: usize, const W: usize>(
        &self,
        reads: [Region<'_, HostMemory>; R],
        writes: [RegionMut<'_, HostMemory>; W],
        kernel: impl FnOnce([&[T]; R], [&mut [T]; W]) + Send + 'static,
    ) -> Result<(), BackendError> {
        self.inner.device.faults.check(Call::Launch)?;
        let writes = writes.map(|region| region.as_region());
        self.check_regions(&reads, &writes)?;
        if size_of::<T>() == 0 || align_of::<T>() as u64 > ALIGNMENT {
            let reason =
                format!("{} has no size, or a larger alignment than memory has", std::any::type_name::<T>());
            return Err(BackendError::invalid("element type", reason));
        }
        for region in reads.iter().chain(&writes) {
            arguments::elements::<T, _>(region, region.offset(), align_of::<T>() as u64)?;
        }
        self.enqueue(&reads, &writes, move |reads, writes| {
            kernel(
                reads.map(|bytes| bytemuck::cast_slice(bytes)),
                writes.map(|bytes| bytemuck::cast_slice_mut(bytes)),
            );
        })
    }

    /// Refuses regions of other streams and devices, and writes that overlap anything.
    pub(crate) fn check_regions(
        &self,
        reads: &[Region<'_, HostMemory>],
        writes: &[Region<'_, HostMemory>],
    ) -> Result<(), BackendError> {
        let is_own = |memory: &HostMemory| memory.is_of(&self.inner.device);
        arguments::check_regions(self, reads.iter(), writes.iter(), is_own)
    }

    /// Queues work on ranges that [`check_regions`](Self::check_regions) passed.
    pub(crate) fn enqueue<const R: usize, const W: usize>(
        &self,
        reads: &[Region<'_, HostMemory>; R],
        writes: &[Region<'_, HostMemory>; W],
        work: impl FnOnce([&[u8]; R], [&mut [u8]; W]) + Send + 'static,
    ) -> Result<(), BackendError> {
        let (reads, writes) = (reads.each_ref().map(HeldRange::new), writes.each_ref().map(HeldRange::new));
        self.inner.failure.check()?;
        self.send(Work::Run(Box::new(move |device| {
            let spans = (reads.each_ref().map(HeldRange::span), writes.each_ref().map(HeldRange::span));
            device.claims.with(spans.0, spans.1, work)
        })))
    }

    /// A point behind all that was queued so far, which is reached at once where all of it is over.
    pub(crate) fn record(&self) -> Result<HostEvent, BackendError> {
        Ok(HostEvent { flag: self.signal(Work::Signal)?, device: Arc::clone(&self.inner.device) })
    }

    fn signal(&self, work: fn(Arc<Flag>) -> Work) -> Result<Arc<Flag>, BackendError> {
        // Acquire: pairs with the release behind each piece, so what a piece wrote is visible once its
        // completion is.
        let (is_idle, outcome) =
            (self.inner.pending.load(Ordering::Acquire) == 0, self.inner.failure.check());
        // Work that is queued on a failed stream does not run.
        match &*self.inner.queue.read() {
            _ if is_idle || outcome.is_err() => Ok(Arc::new(Flag::reached(outcome))),
            Queue::Closed(done) => Ok(Arc::clone(done)),
            Queue::Open(queue) => {
                let flag = Arc::new(Flag::default());
                self.queue_on(queue, work(Arc::clone(&flag)))?;
                Ok(flag)
            }
        }
    }

    /// Whether all that was queued is over: what is queued on a stream that failed is not done any more.
    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: as in `record`.
        self.inner.pending.load(Ordering::Acquire) == 0 || self.inner.failure.check().is_err()
    }

    /// A complete event needs no wait.
    pub(crate) fn wait(&self, event: &HostEvent) -> Result<(), BackendError> {
        self.inner.failure.check()?;
        match event.flag.outcome() {
            Some(outcome) => outcome,
            None => self.send(Work::Wait(Arc::clone(&event.flag))),
        }
    }

    fn check_elsewhere(&self) -> Result<(), BackendError> {
        match is_worker_of(self.inner.id) {
            true => Err(BackendError::invalid("stream", "work on a stream cannot wait for that stream")),
            false => Ok(()),
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), BackendError> {
        self.check_elsewhere()?;
        let outcome = self.signal(Work::Synchronize)?.wait();
        if self.inner.device.faults.is_lost() { Err(lost()) } else { outcome }
    }

    fn send(&self, work: Work) -> Result<(), BackendError> {
        match &*self.inner.queue.read() {
            Queue::Open(queue) => self.queue_on(queue, work),
            Queue::Closed(_) => Err(BackendError::invalid("stream", "it was retired")),
        }
    }

    fn queue_on(&self, queue: &Sender<Work>, work: Work) -> Result<(), BackendError> {
        // Before it can be done.
        self.inner.pending.fetch_add(1, Ordering::Relaxed);
        queue.send(work).map_err(|_| BackendError::lost("the stream's thread ended"))
    }
}
