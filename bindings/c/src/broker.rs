//! Brokers, their clients and their arrays, by number.

use crate::failure::{Failure, Status};
use crate::metrics;
use crate::numbered::Numbered;
use crate::options::{UNLIMITED, size, values};
use crate::streams::{self, Home};
use crate::{fork, registry};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use vrampool::Stream;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::backend::StreamId;
use vrampool_broker::{
    ArrayId, ArrayRequest, Broker, Client, ClientHandle, DEFAULT_GROUP, HostArray, HostBacking, Plan, Role,
    Share,
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
pub(crate) const MOST_DIMENSIONS: usize = 32;

/// `vrampool_plan`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BrokerPlan {
    /// As in C: what of it the caller knows.
    pub struct_size: usize,
    /// Runs of the batch.
    pub runs: u64,
    /// Runs of a chunk; the last one may have fewer.
    pub chunk_runs: u64,
    /// Chunks.
    pub chunks: u64,
    /// Chunks on the device at a time.
    pub streams: u64,
}

#[derive(Debug)]
pub(crate) struct CBroker {
    pub(crate) broker: Broker<AnyDevice>,
    /// Where its device's streams are found.
    _home: Arc<Home>,
    /// Arrays that were not freed, with their numbers.
    arrays: Mutex<HashMap<ArrayId, (u64, Weak<CArray>)>>,
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
    broker: Weak<CBroker>,
}

static BROKERS: Numbered<CBroker> = Numbered::new("broker", "destroyed");
static CLIENTS: Numbered<CClient> = Numbered::new("client", "destroyed");
static ARRAYS: Numbered<CArray> = Numbered::new("array", "destroyed");

pub(crate) fn create(pool: u64, options: &str) -> Result<u64, Failure> {
    let pool = registry::get(pool)?;
    let home = Arc::clone(&pool.home);
    let values = values(options, &KEYS)?;
    let bytes = |key| values.get(key).map(|value| size(key, value)).transpose();
    let mut builder = Broker::builder(&home.device);
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
    builder = builder.budget(bytes("budget")?.unwrap_or(UNLIMITED).min(pool.limit()));
    match (bytes("staging_block")?, bytes("staging")?) {
        (None, None) => {}
        (Some(block), Some(all)) => builder = builder.staging(block, all),
        (Some(_), None) => return Err(alone("staging_block", "staging")),
        (None, Some(_)) => return Err(alone("staging", "staging_block")),
    }
    let (arrays, streams) = Default::default();
    let broker = builder.build()?;
    metrics::add(&broker);
    metrics::add(&broker.pool());
    Ok(BROKERS.add(Arc::new(CBroker { broker, _home: home, arrays, streams })))
}

/// All brokers.
pub(crate) fn all() -> Vec<Broker<AnyDevice>> {
    BROKERS.all().into_iter().map(|(_, broker)| broker.broker.clone()).collect()
}

fn alone(key: &str, other: &str) -> Failure {
    Failure::configuration(key, "", &format!("set it together with {other}, or leave out both"))
}

/// Ends a broker and its clients. Calls that have them complete first; arrays stay.
pub(crate) fn destroy(number: u64) -> Result<(), Failure> {
    let broker = BROKERS.remove(number)?;
    for (number, client) in CLIENTS.all() {
        if Arc::ptr_eq(&client.broker, &broker) {
            // Another call may have ended it.
            let _ = CLIENTS.remove(number);
        }
    }
    Ok(())
}

pub(crate) fn register(
    number: u64,
    name: &str,
    group: Option<&str>,
    share: Option<&str>,
) -> Result<u64, Failure> {
    let broker = BROKERS.get(number)?;
    let client = Client::new(name).group(group.unwrap_or_default()).share(share_of(share)?);
    let client = Arc::new(CClient { handle: broker.broker.register(client)?, broker });
    let client = CLIENTS.add(client);
    // The broker may have been destroyed meanwhile, with the clients that it had then.
    if let Err(none) = BROKERS.get(number) {
        let _ = CLIENTS.remove(client);
        return Err(none);
    }
    Ok(client)
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

pub(crate) fn end_client(number: u64) -> Result<(), Failure> {
    CLIENTS.remove(number).map(drop)
}

/// An array that is requested: what of it the call says.
#[derive(Debug)]
pub(crate) struct Requested<'a> {
    pub(crate) role: i32,
    pub(crate) label: &'a str,
    pub(crate) shape: &'a [u64],
    pub(crate) element_bytes: u64,
    pub(crate) chunk_axis: i32,
}

/// Queues a request, with host memory for an array that is copied.
pub(crate) fn queue(client: u64, requested: &Requested<'_>) -> Result<u64, Failure> {
    let client = CLIENTS.get(client)?;
    let &Requested { role, label, shape, element_bytes, chunk_axis } = requested;
    let role = match role {
        0 => Role::Input,
        1 => Role::Output,
        2 => Role::InOut,
        3 => Role::Scratch,
        _ => return Err(Failure::invalid("role", "use a vrampool_array_role, 0 to 3")),
    };
    let axis = match usize::try_from(chunk_axis) {
        Ok(axis) if axis < shape.len() => Some(axis),
        Err(_) if chunk_axis == -1 => None,
        _ => {
            let reason = format!("it is one of {} dimensions, or -1 for none", shape.len());
            return Err(Failure::invalid("chunk_axis", &reason));
        }
    };
    let request = ArrayRequest::new(role, label, shape.iter().copied(), element_bytes).chunk_axis(axis);
    // Invalid sizes are refused below.
    let bytes = request.bytes().filter(|&bytes| bytes > 0 && role != Role::Scratch);
    let broker = &client.broker;
    let host = bytes.map(|bytes| broker.broker.host_array(bytes)).transpose()?;
    let id = client.handle.queue(request)?;
    let array = CArray { id, role, host: Mutex::new(host), broker: Arc::downgrade(broker) };
    let array = Arc::new(array);
    let number = ARRAYS.add(Arc::clone(&array));
    broker.arrays.lock().insert(id, (number, Arc::downgrade(&array)));
    Ok(number)
}

pub(crate) fn commit(
    number: u64,
    group: Option<&str>,
    streams: u64,
    chunk_runs: u64,
) -> Result<BrokerPlan, Failure> {
    let broker = BROKERS.get(number)?;
    let group = group.filter(|group| !group.is_empty()).unwrap_or(DEFAULT_GROUP);
    if streams > 0 {
        broker.broker.set_streams(group, usize::try_from(streams).unwrap_or(usize::MAX))?;
    }
    if chunk_runs > 0 {
        broker.broker.set_chunk_runs(group, chunk_runs)?;
    }
    let plan = broker.broker.commit(group)?;
    let partition = plan.partition();
    Ok(BrokerPlan {
        struct_size: 0,
        runs: partition.runs(),
        chunk_runs: partition.chunk_len(),
        chunks: partition.chunks(),
        streams: plan.streams() as u64,
    })
}

/// The plan of a group, and its arrays that were not freed.
pub(crate) type Planned = (Arc<CBroker>, Plan<AnyDevice>, Vec<(u64, Arc<CArray>)>);

pub(crate) fn planned(number: u64, group: Option<&str>) -> Result<Planned, Failure> {
    let broker = BROKERS.get(number)?;
    let plan = broker.broker.commit(group.filter(|group| !group.is_empty()).unwrap_or(DEFAULT_GROUP))?;
    let ids: Vec<_> = CLIENTS
        .all()
        .into_iter()
        .filter(|(_, client)| Arc::ptr_eq(&client.broker, &broker))
        .flat_map(|(_, client)| plan.response(&client.handle).arrays)
        .map(|(_, id)| id)
        .collect();
    let arrays: Vec<_> = {
        let known = broker.arrays.lock();
        let found = ids.iter().filter_map(|id| known.get(id));
        found.filter_map(|(number, array)| Some((*number, array.upgrade()?))).collect()
    };
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
pub(crate) fn data(number: u64) -> Result<(u64, u64), Failure> {
    ARRAYS.get(number)?.with_host(|host| match (host.address(), host.backing()) {
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
    })
}

pub(crate) fn read(number: u64, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
    ARRAYS.get(number)?.with_host(|host| Ok(host.read_at(bytes, offset)?))
}

pub(crate) fn write(number: u64, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    ARRAYS.get(number)?.with_host(|host| Ok(host.write_at(bytes, offset)?))
}

pub(crate) fn free_array(number: u64) -> Result<(), Failure> {
    let array = ARRAYS.remove(number)?;
    if let Some(broker) = array.broker.upgrade() {
        broker.arrays.lock().remove(&array.id);
    }
    Ok(())
}
