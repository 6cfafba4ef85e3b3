//! Brokers, their clients and their arrays, by number.

use crate::boundary::{self, Bytes, BytesOut, Numbers, Out, Text, exports, versioned};
use crate::failure::{Failure, Status};
use crate::figures::named;
use crate::metrics;
use crate::numbered::Numbered;
use crate::options::{size, values};
use crate::streams::{self, Home};
use crate::{fork, registry};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use vrampool::Stream;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::backend::StreamId;
use vrampool_broker::{
    ArrayId, ArrayRequest, Broker, Client, ClientHandle, DEFAULT_GROUP, HostArray, HostBacking, Plan,
    RegisteredClient, Role, Share,
};

/// All options of a broker, as errors list them.
const KEYS: [&str; 8] = [
    "name",
    "reserve",
    "budget",
    "staging_block",
    "staging",
    "pinned_max",
    "spill_threshold",
    "spill_directory",
];

/// The most dimensions of an array.
const MOST_DIMENSIONS: usize = 32;

versioned! {
    /// `vrampool_plan`.
    BrokerPlan until streams {
        /// Runs of the batch.
        runs
        /// Runs of a chunk; the last one may have fewer.
        chunk_runs
        /// Chunks.
        chunks
        /// Chunks on the device at a time.
        streams
    }
}

#[derive(Debug)]
pub(crate) struct CBroker {
    pub(crate) broker: Broker<AnyDevice>,
    /// Where its device's streams are found.
    _home: Arc<Home>,
    /// Handles of the streams that chunks were on.
    streams: Mutex<HashMap<StreamId, usize>>,
}

#[derive(Debug)]
pub(crate) struct CClient {
    handle: ClientHandle<AnyDevice>,
    broker: Arc<CBroker>,
}

#[derive(Debug)]
pub(crate) struct CArray {
    pub(crate) id: ArrayId,
    pub(crate) role: Role,
    /// Unset for scratch. Held during a run.
    pub(crate) host: Mutex<Option<HostArray<AnyDevice>>>,
}

static BROKERS: Numbered<CBroker> = Numbered::new("broker", "destroyed");
static CLIENTS: Numbered<CClient> = Numbered::new("client", "destroyed");
static ARRAYS: Numbered<CArray> = Numbered::new("array", "destroyed");

exports! {
    fn vrampool_broker_create(pool: u64, options: Text<'_>, broker: Out<'_, u64>) {
        broker.answer("broker", || create(pool, options.optional("options")?.unwrap_or_default()))
    }

    fn vrampool_broker_destroy(broker: u64) {
        // Calls that have it or a client complete first; arrays stay.
        let broker = BROKERS.remove(broker)?;
        for (number, client) in CLIENTS.all() {
            if Arc::ptr_eq(&client.broker, &broker) {
                // Another call may have ended it.
                let _ = CLIENTS.remove(number);
            }
        }
        Ok(())
    }

    fn vrampool_broker_register(broker: u64, name: Text<'_>, group: Text<'_>, share: Text<'_>, client: Out<'_, u64>) {
        client.answer("client", || {
            let (name, group) = (name.required("name")?, group.optional("group")?.unwrap_or_default());
            let (share, of) = (share.optional("share")?, BROKERS.get(broker)?);
            let client = Client::new(name).group(group).share(share_of(share)?);
            let client = CLIENTS.add(Arc::new(CClient { handle: of.broker.register(client)?, broker: of }));
            // The broker may have been destroyed meanwhile, with the clients that it had then.
            if let Err(none) = BROKERS.get(broker) {
                let _ = CLIENTS.remove(client);
                return Err(none);
            }
            Ok(client)
        })
    }

    fn vrampool_client_destroy(client: u64) {
        CLIENTS.remove(client).map(drop)
    }

    #[allow(clippy::too_many_arguments, reason = "a description of an array, and where its number goes")]
    fn vrampool_client_queue(
        client: u64,
        role: i32,
        label: Text<'_>,
        shape: Numbers<'_>,
        dimensions: usize,
        element_bytes: u64,
        chunk_axis: i32,
        array: Out<'_, u64>,
    ) {
        array.answer("array", || {
            if dimensions > MOST_DIMENSIONS {
                return Err(Failure::invalid("dimensions", &format!("at most {MOST_DIMENSIONS} are possible")));
            }
            let (label, shape) = (label.required("label")?, shape.read(dimensions, "shape")?);
            let (client, role) = (CLIENTS.get(client)?, role_of(role)?);
            let request = ArrayRequest::new(role, label, shape.iter().copied(), element_bytes);
            queue(&client, role, request.chunk_axis(axis_of(chunk_axis, dimensions)?))
        })
    }

    fn vrampool_broker_commit(
        broker: u64,
        group: Text<'_>,
        streams: u64,
        chunk_runs: u64,
        plan: Out<'_, BrokerPlan>,
    ) {
        plan.answer_known("plan", || {
            let (group, broker) = (group_of(group)?, BROKERS.get(broker)?);
            if streams > 0 {
                broker.broker.set_streams(group, usize::try_from(streams).unwrap_or(usize::MAX))?;
            }
            if chunk_runs > 0 {
                broker.broker.set_chunk_runs(group, chunk_runs)?;
            }
            let plan = broker.broker.commit(group)?;
            let (partition, streams) = (plan.partition(), plan.streams() as u64);
            let (runs, chunk_runs, chunks) = (partition.runs(), partition.chunk_len(), partition.chunks());
            Ok(BrokerPlan { struct_size: 0, runs, chunk_runs, chunks, streams })
        })
    }

    fn vrampool_broker_get_stats_json(broker: u64, json: Out<'_, *mut c_char>) {
        json.answer("json", || Ok(boundary::give_text(stats(&BROKERS.get(broker)?.broker).to_string())))
    }

    fn vrampool_array_data(array: u64, address: Out<'_, *mut c_void>, bytes: Out<'_, u64>) {
        address.check("address")?;
        let (start, length) = ARRAYS.get(array)?.with_host(data)?;
        address.set(std::ptr::with_exposed_provenance_mut(start as usize));
        bytes.set(length);
        Ok(())
    }

    fn vrampool_array_read(array: u64, offset: u64, bytes: BytesOut<'_>, count: usize) {
        let bytes = bytes.get(count, "bytes")?;
        ARRAYS.get(array)?.with_host(|host| Ok(host.read_at(bytes, offset)?))
    }

    fn vrampool_array_write(array: u64, offset: u64, bytes: Bytes<'_>, count: usize) {
        let bytes = bytes.read(count, "bytes")?;
        ARRAYS.get(array)?.with_host(|host| Ok(host.write_at(bytes, offset)?))
    }

    fn vrampool_array_free(array: u64) {
        ARRAYS.remove(array).map(drop)
    }
}

fn create(pool: u64, options: &str) -> Result<u64, Failure> {
    let pool = registry::get(pool)?;
    let values = values(options, &KEYS)?;
    let bytes = |key| values.get(key).map(|value| size(key, value)).transpose();
    let mut builder = Broker::builder(&pool.main.pool).budget(bytes("budget")?);
    for (&key, &value) in &values {
        builder = match key {
            "name" => builder.name(value),
            "reserve" => builder.reserve(size(key, value)?),
            "pinned_max" => builder.pinned_max(size(key, value)?),
            "spill_threshold" => builder.spill_threshold(size(key, value)?),
            "spill_directory" => builder.spill_directory(value),
            _ => builder,
        };
    }
    match (bytes("staging_block")?, bytes("staging")?) {
        (None, None) => {}
        (Some(block), Some(all)) => builder = builder.staging(block, all),
        (Some(_), None) => return Err(alone("staging_block", "staging")),
        (None, Some(_)) => return Err(alone("staging", "staging_block")),
    }
    let broker = builder.build()?;
    metrics::add(&broker);
    Ok(BROKERS.add(Arc::new(CBroker { broker, _home: Arc::clone(&pool.home), streams: Mutex::default() })))
}

/// The figures of a broker, with those of its clients and of its pool.
fn stats(broker: &Broker<AnyDevice>) -> Value {
    let client = |client: RegisteredClient| {
        let mut of = named(&client.stats);
        (of["name"], of["group"]) = (client.name.into(), client.group.into());
        of
    };
    let mut all = named(&broker.stats());
    all["by_client"] = broker.clients().into_iter().map(client).collect();
    all["pool"] = named(&broker.pool().stats());
    all
}

/// All brokers.
pub(crate) fn all() -> Vec<Broker<AnyDevice>> {
    BROKERS.all().into_iter().map(|(_, broker)| broker.broker.clone()).collect()
}

fn alone(key: &str, other: &str) -> Failure {
    Failure::configuration(key, "", &format!("set it together with {other}, or leave out both"))
}

/// `auto`, `25%` of the device, or a size.
fn share_of(text: Option<&str>) -> Result<Share, Failure> {
    match text.map(str::trim) {
        None | Some("auto") => Ok(Share::Auto),
        Some(text) => match text.strip_suffix('%') {
            None => Ok(Share::Bytes(size("share", text)?)),
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(percent) => Ok(Share::Fixed(percent / 100.0)),
                Err(_) => Err(Failure::configuration("share", text, "a share is auto, 25%, or a size")),
            },
        },
    }
}

fn role_of(role: i32) -> Result<Role, Failure> {
    match role {
        0 => Ok(Role::Input),
        1 => Ok(Role::Output),
        2 => Ok(Role::InOut),
        3 => Ok(Role::Scratch),
        _ => Err(Failure::invalid("role", "use a vrampool_array_role, 0 to 3")),
    }
}

/// The axis that chunks are cut along; none for -1.
fn axis_of(axis: i32, dimensions: usize) -> Result<Option<usize>, Failure> {
    match usize::try_from(axis) {
        Ok(axis) if axis < dimensions => Ok(Some(axis)),
        Err(_) if axis == -1 => Ok(None),
        _ => {
            let reason = format!("it is one of {dimensions} dimensions, or -1 for none");
            Err(Failure::invalid("chunk_axis", &reason))
        }
    }
}

/// Queues a request, with host memory for an array that is copied.
fn queue(client: &CClient, role: Role, request: ArrayRequest) -> Result<u64, Failure> {
    // Invalid sizes are refused below.
    let bytes = request.bytes().filter(|&bytes| bytes > 0 && role != Role::Scratch);
    let host = bytes.map(|bytes| client.broker.broker.host_array(bytes)).transpose()?;
    let id = client.handle.queue(request)?;
    Ok(ARRAYS.add(Arc::new(CArray { id, role, host: Mutex::new(host) })))
}

fn group_of(group: Text<'_>) -> Result<&str, Failure> {
    Ok(group.optional("group")?.filter(|group| !group.is_empty()).unwrap_or(DEFAULT_GROUP))
}

/// The plan of a group, and its arrays that were not freed.
pub(crate) type Planned = (Arc<CBroker>, Plan<AnyDevice>, Vec<(u64, Arc<CArray>)>);

pub(crate) fn planned(number: u64, group: Text<'_>) -> Result<Planned, Failure> {
    let (group, broker) = (group_of(group)?, BROKERS.get(number)?);
    let plan = broker.broker.commit(group)?;
    let all = ARRAYS.all().into_iter().map(|(number, array)| (array.id, (number, array)));
    let mut known: HashMap<_, _> = all.collect();
    let arrays = plan.arrays().filter_map(|id| known.remove(&id)).collect();
    Ok((broker, plan, arrays))
}

impl CBroker {
    /// The handle of a stream that a chunk is on.
    pub(crate) fn handle_of(&self, stream: &AnyStream) -> usize {
        *self.streams.lock().entry(stream.id()).or_insert_with(|| streams::register_broker_stream(stream))
    }
}

impl Drop for CBroker {
    fn drop(&mut self) {
        if fork::check().is_ok() {
            streams::unregister_broker_streams(self.streams.get_mut().drain().map(|(_, handle)| handle));
        }
    }
}

impl CArray {
    /// Does something with its host memory, which no run uses meanwhile.
    fn with_host<T>(
        &self,
        act: impl FnOnce(&mut HostArray<AnyDevice>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut host = self.host.try_lock().ok_or_else(in_use)?;
        let none = || Failure::new(Status::UNSUPPORTED, "the array is scratch, which has no host memory");
        act(host.as_mut().ok_or_else(none)?)
    }
}

#[cold]
pub(crate) fn in_use() -> Failure {
    Failure::new(Status::BUSY, "a run uses the array; wait until it is complete")
}

/// Where an array's host memory is, and how many bytes it has.
fn data(host: &mut HostArray<AnyDevice>) -> Result<(u64, u64), Failure> {
    match (host.address(), host.backing()) {
        (Some(address), _) => Ok((address, host.len())),
        (None, HostBacking::File) => Err(Failure::new(
            Status::UNSUPPORTED,
            "the array is in a file, because arrays in memory would exceed spill_threshold: use \
             vrampool_array_read and vrampool_array_write, or raise spill_threshold",
        )),
        (None, _) => Err(Failure::new(
            Status::UNSUPPORTED,
            "the array's host memory has no address on this device: use vrampool_array_read and vrampool_array_write",
        )),
    }
}
