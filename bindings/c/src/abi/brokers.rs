//! Brokers, their clients, arrays and runs.

use crate::boundary::{Bytes, BytesOut, Numbers, Out, Text, guard};
use crate::broker::{self, BrokerPlan, MOST_DIMENSIONS, Requested};
use crate::broker_run::{self, Callbacks, ChunkCallback, ProgressCallback, RunReport};
use crate::failure::{Failure, Status};
use std::ffi::c_void;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_broker_create(pool: u64, options: Text<'_>, broker: Out<'_, u64>) -> Status {
    guard(|| {
        broker.answer("broker", || broker::create(pool, options.optional("options")?.unwrap_or_default()))
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_broker_destroy(broker: u64) -> Status {
    guard(|| broker::destroy(broker))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_broker_register(
    broker: u64,
    name: Text<'_>,
    group: Text<'_>,
    share: Text<'_>,
    client: Out<'_, u64>,
) -> Status {
    guard(|| {
        client.answer("client", || {
            let (name, group) = (name.required("name")?, group.optional("group")?);
            broker::register(broker, name, group, share.optional("share")?)
        })
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_client_destroy(client: u64) -> Status {
    guard(|| broker::end_client(client))
}

/// As the header says.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a description of an array, and where its number goes")]
pub extern "C" fn vrampool_client_queue(
    client: u64,
    role: i32,
    label: Text<'_>,
    shape: Numbers<'_>,
    dimensions: usize,
    element_bytes: u64,
    chunk_axis: i32,
    array: Out<'_, u64>,
) -> Status {
    guard(|| {
        array.answer("array", || {
            if dimensions > MOST_DIMENSIONS {
                let reason = format!("at most {MOST_DIMENSIONS} are possible");
                return Err(Failure::invalid("dimensions", &reason));
            }
            let (label, shape) = (label.required("label")?, shape.read(dimensions, "shape")?);
            broker::queue(client, &Requested { role, label, shape, element_bytes, chunk_axis })
        })
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_broker_commit(
    broker: u64,
    group: Text<'_>,
    streams: u64,
    chunk_runs: u64,
    plan: Out<'_, BrokerPlan>,
) -> Status {
    guard(|| {
        plan.answer_known("plan", || broker::commit(broker, group.optional("group")?, streams, chunk_runs))
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_broker_run(
    broker: u64,
    group: Text<'_>,
    on_chunk: Option<ChunkCallback>,
    on_progress: Option<ProgressCallback>,
    user: *mut c_void,
    report: Out<'_, RunReport>,
) -> Status {
    guard(|| {
        let on_chunk = on_chunk.ok_or_else(|| Failure::invalid("on_chunk", "it is null"))?;
        let callbacks = Callbacks { on_chunk, on_progress, user: user as usize };
        report.answer_if_wanted("report", || broker_run::run(broker, group.optional("group")?, callbacks))
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_array_data(
    array: u64,
    address: Out<'_, *mut c_void>,
    bytes: Out<'_, u64>,
) -> Status {
    guard(|| {
        address.check("address")?;
        let (start, len) = broker::data(array)?;
        address.set(std::ptr::with_exposed_provenance_mut(start as usize));
        bytes.set(len);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_array_read(array: u64, offset: u64, bytes: BytesOut<'_>, count: usize) -> Status {
    guard(|| broker::read(array, offset, bytes.get(count, "bytes")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_array_write(array: u64, offset: u64, bytes: Bytes<'_>, count: usize) -> Status {
    guard(|| broker::write(array, offset, bytes.read(count, "bytes")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_array_free(array: u64) -> Status {
    guard(|| broker::free_array(array))
}
