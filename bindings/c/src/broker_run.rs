//! Runs of a broker's plan, chunk by chunk.

use crate::boundary::{Out, Text, exports, versioned};
use crate::broker::{self, CArray, CBroker, Planned, in_use};
use crate::failure::{Failure, Status};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::c_void;
use std::sync::Arc;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::{BackendError, Memory};
use vrampool_broker::{self as brokers, BrokerError, HostArray, Role};

/// `vrampool_chunk`.
#[derive(Debug)]
#[repr(C)]
pub struct Chunk {
    /// Its size in this library.
    pub struct_size: usize,
    /// Its number, from 0.
    pub index: u64,
    /// Its first run.
    pub first_run: u64,
    /// Its runs.
    pub runs: u64,
    /// The number of its stream in the run.
    pub stream_index: u64,
    /// Its stream.
    pub stream: *mut c_void,
    /// How many arrays it has.
    pub arrays: u64,
    /// Their numbers.
    pub array: *const u64,
    /// Where their parts are on the device.
    pub address: *const u64,
    /// Bytes of these parts.
    pub bytes: *const u64,
}

/// Called with each chunk.
pub type ChunkCallback = extern "C" fn(*mut c_void, *const Chunk) -> Status;
/// Called after each chunk: completed chunks, completed runs, runs of the batch.
pub type ProgressCallback = extern "C" fn(*mut c_void, u64, u64, u64);

versioned! {
    /// `vrampool_run_report`.
    RunReport until nanoseconds {
        /// Chunks.
        chunks
        /// Runs of the batch.
        runs
        /// Runs of a chunk at the end.
        chunk_runs
        /// Streams that ran chunks.
        streams
        /// How often chunks became finer.
        shrinks
        /// Bytes copied to and from the device.
        copied_bytes
        /// Duration, ns.
        nanoseconds
    }
}

exports! {
    fn vrampool_broker_run(
        broker: u64,
        group: Text<'_>,
        on_chunk: Option<ChunkCallback>,
        on_progress: Option<ProgressCallback>,
        user: *mut c_void,
        report: Out<'_, RunReport>,
    ) {
        let on_chunk = on_chunk.ok_or_else(|| Failure::invalid("on_chunk", "it is null"))?;
        let callbacks = Callbacks { on_chunk, on_progress, user: user as usize };
        report.answer_if_wanted("report", || run(broker::planned(broker, group)?, callbacks))
    }
}

/// What a run calls.
#[derive(Debug, Clone, Copy)]
struct Callbacks {
    on_chunk: ChunkCallback,
    on_progress: Option<ProgressCallback>,
    /// Theirs, as a number: nothing here looks behind it.
    user: usize,
}

/// Runs the last plan of a group.
fn run((broker, plan, arrays): Planned, callbacks: Callbacks) -> Result<RunReport, Failure> {
    let mut held = Vec::with_capacity(arrays.len());
    for (_, array) in &arrays {
        held.push((array, array.host.try_lock().ok_or_else(in_use)?));
    }
    let mut execution = plan.execution();
    for (array, host) in &mut held {
        execution = bind(execution, array, host);
    }
    if let Some(on_progress) = callbacks.on_progress {
        execution = execution.on_progress(move |progress| {
            let user = callbacks.user as *mut c_void;
            on_progress(user, progress.chunks_done, progress.runs_done, progress.runs);
        });
    }
    let stopped = Mutex::new(None);
    let report = execution.run(|chunk, stream| {
        let status = call(&broker, &arrays, chunk, stream, callbacks)?;
        if status == Status::OK {
            return Ok(());
        }
        let text = format!("it returned {} for chunk {}", status.name(), chunk.index());
        stopped.lock().get_or_insert(status);
        Err(BackendError::driver("the callback of a run", status.0.into(), text).into())
    });
    let report = report.map_err(|error| {
        let mut failure = Failure::from(error);
        if let Some(status) = stopped.into_inner() {
            failure.status = status;
        }
        failure
    })?;
    Ok(RunReport {
        struct_size: 0,
        chunks: report.chunks,
        runs: report.runs,
        chunk_runs: report.chunk_len,
        streams: report.streams as u64,
        shrinks: report.shrinks,
        copied_bytes: report.copied_bytes,
        nanoseconds: u64::try_from(report.elapsed.as_nanos()).unwrap_or(u64::MAX),
    })
}

fn bind<'a>(
    execution: brokers::Execution<'a, AnyDevice>,
    array: &CArray,
    host: &'a mut MutexGuard<'_, Option<HostArray<AnyDevice>>>,
) -> brokers::Execution<'a, AnyDevice> {
    match (array.role, host.as_mut()) {
        (Role::Input, Some(host)) => execution.upload(array.id, &*host),
        (Role::Output, Some(host)) => execution.download(array.id, host),
        (Role::InOut, Some(host)) => execution.exchange(array.id, host),
        _ => execution,
    }
}

/// Calls the callback with a chunk.
fn call(
    broker: &CBroker,
    arrays: &[(u64, Arc<CArray>)],
    chunk: &brokers::Chunk<'_, AnyDevice>,
    stream: &AnyStream,
    callbacks: Callbacks,
) -> Result<Status, BrokerError> {
    let (mut numbers, mut addresses, mut sizes, mut regions) = (vec![], vec![], vec![], vec![]);
    for (number, array) in arrays {
        let region = chunk.region(array.id)?;
        let address = region.memory().address();
        let address =
            address.ok_or_else(|| BackendError::unsupported("addresses of memory, which C needs"))?;
        numbers.push(*number);
        addresses.push(address + region.offset());
        sizes.push(region.len());
        // Keeps the memory where it is.
        regions.push(region);
    }
    let passed = Chunk {
        struct_size: size_of::<Chunk>(),
        index: chunk.index(),
        first_run: chunk.range().start,
        runs: chunk.runs(),
        stream_index: chunk.stream_index() as u64,
        stream: broker.handle_of(stream) as *mut c_void,
        arrays: numbers.len() as u64,
        array: numbers.as_ptr(),
        address: addresses.as_ptr(),
        bytes: sizes.as_ptr(),
    };
    Ok((callbacks.on_chunk)(callbacks.user as *mut c_void, &raw const passed))
}
