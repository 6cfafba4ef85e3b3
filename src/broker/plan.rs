//! The result of a commit: memory for a batch, and its execution.

use super::commit::response;
use super::host_array::{Bytes, Spilled};
use super::partition::Partition;
use super::run::{Progress, RunReport};
use super::slot::Chunk;
use super::state::{BrokerCore, Grant};
use super::{ArrayId, BrokerError, ClientHandle, HostArray, run};
use crate::sync::fork_arc::ForkArc;
use std::fmt;
use std::sync::Arc;
use vrampool_backend::{Backend, fork};

/// The memory granted to one client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The partition of the whole group.
    pub partition: Partition,
    /// Chunks that are on the device at a time, each on a stream of its own.
    pub streams: usize,
    /// The client's arrays: label and id. None for one that asked for nothing.
    pub arrays: Vec<(String, ArrayId)>,
}

/// A group's memory, granted. It stays with the clients when the plan is dropped, for the next commit;
/// another client that truly lacks memory may take it back while nothing runs, and the next run gets memory
/// anew, in chunks that fit then.
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

    /// How the batch was cut at the commit. A run after others took memory may cut finer.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.grant.partition
    }

    /// Chunks that are on the device at a time.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.grant.slots
    }

    /// What was granted to a client of the group; no arrays for any other.
    #[must_use]
    pub fn response(&self, client: &ClientHandle<B>) -> Response {
        response(client.id(), &self.grant)
    }

    /// A run of the batch: bind data to arrays, then [run](Execution::run) it.
    pub fn execution(&self) -> Execution<'_, B> {
        Execution { core: &self.core, group: &self.group, data: Vec::new(), progress: None, is_timed: false }
    }

    /// Runs `work` for each chunk, without data of the host's: as [`execution`](Self::execution) and
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

/// The source of an array's data.
#[derive(Debug)]
pub enum HostSource<'a, B: Backend> {
    /// Bytes as they lie in memory.
    Bytes(&'a [u8]),
    /// An array of the broker's making.
    Array(&'a HostArray<B>),
}

/// The destination of an array's data.
#[derive(Debug)]
pub enum HostSink<'a, B: Backend> {
    /// Bytes as they lie in memory.
    Bytes(&'a mut [u8]),
    /// An array of the broker's making.
    Array(&'a mut HostArray<B>),
}

impl<'a, B: Backend> From<&'a [u8]> for HostSource<'a, B> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, B: Backend> From<&'a HostArray<B>> for HostSource<'a, B> {
    fn from(array: &'a HostArray<B>) -> Self {
        Self::Array(array)
    }
}

impl<'a, B: Backend> From<&'a mut [u8]> for HostSink<'a, B> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, B: Backend> From<&'a mut HostArray<B>> for HostSink<'a, B> {
    fn from(array: &'a mut HostArray<B>) -> Self {
        Self::Array(array)
    }
}

/// Data of an array, as a run uses them.
#[derive(Debug)]
pub(crate) enum Data<'a, B: Backend> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Pinned(&'a B::Memory, u64),
    File(&'a Spilled, u64),
}

impl<B: Backend> Data<'_, B> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Read(bytes) => bytes.len() as u64,
            Self::Write(bytes) => bytes.len() as u64,
            Self::Pinned(_, len) | Self::File(_, len) => *len,
        }
    }
}

/// The use of bound data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    Both,
}

type ProgressHook<'a> = Box<dyn Fn(&Progress) + Sync + 'a>;

/// A run that is being prepared.
#[must_use = "nothing happens before `run`"]
pub struct Execution<'a, B: Backend> {
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Way, Data<'a, B>)>,
    progress: Option<ProgressHook<'a>>,
    is_timed: bool,
}

impl<'a, B: Backend> Execution<'a, B> {
    /// The data of an [input](super::Role::Input), as long as the array.
    pub fn upload(self, array: ArrayId, source: impl Into<HostSource<'a, B>>) -> Self {
        let data = match source.into() {
            HostSource::Bytes(bytes) => Data::Read(bytes),
            HostSource::Array(array) => match &array.bytes {
                Bytes::Pinned { memory, len, .. } => Data::Pinned(memory, *len),
                Bytes::Pageable(bytes) => Data::Read(bytes),
                Bytes::File(file) => Data::File(file, array.len()),
            },
        };
        self.bind(array, Way::Up, data)
    }

    /// Where the data of an [output](super::Role::Output) go: each chunk's to its place in the one array.
    pub fn download(self, array: ArrayId, sink: impl Into<HostSink<'a, B>>) -> Self {
        self.bind(array, Way::Down, sink_data(sink.into()))
    }

    /// The data of an [array that goes both ways](super::Role::InOut), which the results take the place of.
    pub fn exchange(self, array: ArrayId, sink: impl Into<HostSink<'a, B>>) -> Self {
        self.bind(array, Way::Both, sink_data(sink.into()))
    }

    fn bind(mut self, array: ArrayId, way: Way, data: Data<'a, B>) -> Self {
        self.data.retain(|(bound, ..)| *bound != array);
        self.data.push((array, way, data));
        self
    }

    /// Is called after each chunk, by the thread that ran it.
    pub fn on_progress(mut self, hook: impl Fn(&Progress) + Sync + 'a) -> Self {
        self.progress = Some(Box::new(hook));
        self
    }

    /// Tells in the report when which stream did what. Each stream then waits for the host between copies and
    /// work, which costs some microseconds a chunk, and an error names the very stage that failed.
    pub fn timed(mut self) -> Self {
        self.is_timed = true;
        self
    }

    /// Runs the batch: for each chunk its data are copied to the device, `work` enqueues what is to be done
    /// on the stream that it is given, and the results are copied back, all behind one another on one stream.
    /// With several streams as many chunks are under way at a time, each by a thread of its own, in order of
    /// their numbers as they begin; `work` then runs on several threads. Returns when all of it is done.
    ///
    /// Other processes that leave less than half of the reserve free make it go on with finer chunks.
    ///
    /// # Errors
    /// [`BrokerError::Run`] of the first chunk that failed, with what failed; chunks before it are done, and
    /// what of the later ones is done is not said. [`BrokerError::Length`] and [`BrokerError::Request`] for
    /// data that do not go with the arrays, and those of [`Broker::commit`](super::Broker::commit), before
    /// anything is run.
    ///
    /// # Panics
    /// When `work` panics, with that.
    pub fn run<F>(self, work: F) -> Result<RunReport, BrokerError>
    where
        F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
    {
        fork::check()?;
        let Self { core, group, data, progress, is_timed } = self;
        run::run(core, group, data, progress.as_deref(), is_timed, &work)
    }
}

fn sink_data<B: Backend>(sink: HostSink<'_, B>) -> Data<'_, B> {
    match sink {
        HostSink::Bytes(bytes) => Data::Write(bytes),
        HostSink::Array(array) => {
            let len = array.len();
            match &mut array.bytes {
                Bytes::Pinned { memory, len, .. } => Data::Pinned(memory, *len),
                Bytes::Pageable(bytes) => Data::Write(bytes),
                Bytes::File(file) => Data::File(file, len),
            }
        }
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
