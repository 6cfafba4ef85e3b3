//! The result of a commit: memory for a batch, and its execution.

use crate::chunk::Chunk;
use crate::data::{HostData, Side};
use crate::error::BrokerError;
use crate::host_array::HostArray;
use crate::id::ArrayId;
use crate::partition::Partition;
use crate::progress::{Progress, ProgressHook, RunReport};
use crate::request::Role;
use crate::run;
use crate::state::{BrokerCore, Grant};
use std::fmt;
use std::sync::Arc;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, fork};

/// The granted memory of a group.
///
/// It stays with the clients when the plan is dropped, for the next commit. Another client that lacks memory
/// may take it while the group is idle. The next run then allocates memory again, in chunks that fit.
#[derive(Debug)]
pub struct Plan<B: Backend> {
    core: ForkArc<BrokerCore<B>>,
    group: String,
    grant: Arc<Grant>,
}

impl<B: Backend> Plan<B> {
    pub(super) fn new(core: &ForkArc<BrokerCore<B>>, group: &str, grant: Arc<Grant>) -> Self {
        Self { core: core.clone(), group: group.to_owned(), grant }
    }

    /// Returns the partition of the batch at the commit. A later run may use finer chunks.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.grant.partition
    }

    /// Returns the number of chunks that are on the device at a time.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.grant.slots
    }

    /// Returns the arrays of the batch, by client.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayId> {
        self.grant.arrays.iter().map(|array| array.id)
    }

    /// Prepares a run of the batch: bind data to arrays, then [run](Execution::run) it.
    pub fn execution(&self) -> Execution<'_, B> {
        Execution { core: &self.core, group: &self.group, data: Vec::new(), progress: None, is_timed: false }
    }

    /// Runs `work` for each chunk, without host data. As [`execution`](Self::execution) and
    /// [`run`](Execution::run).
    ///
    /// # Errors
    /// As [`Execution::run`].
    pub fn run<F>(&self, work: F) -> Result<RunReport, BrokerError>
    where
        F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
    {
        self.execution().run(work)
    }
}

/// The source of an array's data: bytes in memory, or an array made by the broker.
#[derive(Debug)]
pub struct HostSource<'a, B: Backend>(HostData<'a, B>);

/// The destination of an array's data: bytes in memory, or an array made by the broker.
#[derive(Debug)]
pub struct HostSink<'a, B: Backend>(HostData<'a, B>);

impl<'a, B: Backend> From<&'a [u8]> for HostSource<'a, B> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(HostData { len: bytes.len() as u64, side: Side::Whole(bytes) })
    }
}

impl<'a, B: Backend> From<&'a HostArray<B>> for HostSource<'a, B> {
    fn from(array: &'a HostArray<B>) -> Self {
        Self(HostData { len: array.len(), side: array.side() })
    }
}

impl<'a, B: Backend> From<&'a mut [u8]> for HostSink<'a, B> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self(HostData { len: bytes.len() as u64, side: Side::Rows(vec![bytes]) })
    }
}

impl<'a, B: Backend> From<&'a mut HostArray<B>> for HostSink<'a, B> {
    fn from(array: &'a mut HostArray<B>) -> Self {
        Self(HostData { len: array.len(), side: array.side_mut() })
    }
}

/// A prepared run.
#[must_use = "nothing happens before `run`"]
pub struct Execution<'a, B: Backend> {
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Role, HostData<'a, B>)>,
    progress: Option<Box<ProgressHook<'a>>>,
    is_timed: bool,
}

impl<'a, B: Backend> Execution<'a, B> {
    /// Binds the data of an [input](crate::Role::Input), of the array's length.
    pub fn upload(self, array: ArrayId, source: impl Into<HostSource<'a, B>>) -> Self {
        self.bind(array, Role::Input, source.into().0)
    }

    /// Binds the destination of an [output](crate::Role::Output), in which each chunk has its place.
    pub fn download(self, array: ArrayId, sink: impl Into<HostSink<'a, B>>) -> Self {
        self.bind(array, Role::Output, sink.into().0)
    }

    /// Binds the data of an [`InOut`](crate::Role::InOut) array, which the results replace.
    pub fn exchange(self, array: ArrayId, sink: impl Into<HostSink<'a, B>>) -> Self {
        self.bind(array, Role::InOut, sink.into().0)
    }

    fn bind(mut self, array: ArrayId, role: Role, data: HostData<'a, B>) -> Self {
        self.data.retain(|(bound, ..)| *bound != array);
        self.data.push((array, role, data));
        self
    }

    /// Sets a function that is called after each chunk, by the thread that ran it.
    pub fn on_progress(mut self, hook: impl Fn(&Progress) + Sync + 'a) -> Self {
        self.progress = Some(Box::new(hook));
        self
    }

    /// Records the time of each stage in the report. Each stream then waits for the host between copies and
    /// work, which costs some microseconds per chunk, and errors name the exact stage that failed.
    pub fn timed(mut self) -> Self {
        self.is_timed = true;
        self
    }

    /// Runs the batch, and returns when all of it is complete.
    ///
    /// For each chunk the data are copied to the device, `work` enqueues its operations on the given stream,
    /// and the results are copied back, all in order on one stream. With several streams as many chunks are
    /// pending at a time, each on its own thread; they begin in order of their numbers. `work` then runs on
    /// several threads.
    ///
    /// If other processes leave less than half of the reserve free, the run continues with finer chunks.
    ///
    /// # Errors
    /// * [`BrokerError::Run`] for the first chunk that failed. Earlier chunks are complete; the state of
    ///   later ones is unspecified.
    /// * [`BrokerError::Request`] for data that do not match the arrays, and errors of
    ///   [`Broker::commit`](crate::Broker::commit), before any chunk runs.
    ///
    /// # Panics
    /// If `work` panics, with the same panic.
    pub fn run<F>(self, work: F) -> Result<RunReport, BrokerError>
    where
        F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
    {
        fork::check()?;
        let Self { core, group, data, progress, is_timed } = self;
        run::run(core, group, data, progress.as_deref(), is_timed, &work)
    }
}

impl<B: Backend> fmt::Debug for Execution<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("group", &self.group)
            .field("arrays", &self.data.len())
            .field("is_timed", &self.is_timed)
            .finish_non_exhaustive()
    }
}
