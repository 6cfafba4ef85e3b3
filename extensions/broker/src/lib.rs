//! Shares of a device, batches cut into chunks that fit, and copies that overlap work.
//!
//! A solver or a server should not fail when a batch does not fit:
//!
//! 1. It [registers](Broker::register) as a client, with a [`Share`] of the device.
//! 2. It queues its [arrays](ArrayRequest) and states the axis along which each may be cut.
//! 3. It [commits](Broker::commit) and gets a [`Plan`], with one [`Partition`] for all clients of its group
//!    and memory for it.
//! 4. The plan [runs](Plan::execution) the client's own work for each chunk, on several streams if requested,
//!    while other data are copied. The results are the same as for the batch in one piece.
//!
//! * **Its memory is a child of a pool.** The [child](vrampool::Pool::child) is within the limit, statistics and
//!   metrics of the pool that the broker is built on.
//! * **Shares are kept.** While a client has a [share](Share), a group never holds more than its clients' shares
//!   together. Rounding to size classes and the device's granularity is counted, so
//!   chunks that are computed to fit do fit. If a share shrinks during a run, each stream follows with its next
//!   chunk; at least one run stays on the device until the end.
//! * **Other processes are respected.** The device's free memory is queried each time, and a
//!   [reserve](BrokerBuilder::reserve) is left. If others take more than half of the reserve during a run,
//!   the run continues with finer chunks. Without a reserve a run keeps its memory.
//! * **Only idle clients lose memory.** A client without pending work loses its memory only if another client
//!   lacks it, the least recently active first. Its next run allocates memory again.
//! * **Host memory is bounded too.** Pinned bytes are [accounted for](BrokerStats::pinned_budget_bytes),
//!   copies use a bounded number of pinned blocks, and arrays that together are too large for the host's memory
//!   are in unnamed files.
//!
//! ```
//! use vrampool::Pool;
//! use vrampool::host::HostDevice;
//! use vrampool_broker::{ArrayRequest, Broker, Client, Share};
//!
//! # fn main() -> Result<(), vrampool_broker::BrokerError> {
//! let device = HostDevice::builder().memory_limit(1 << 20).build();
//! let broker = Broker::builder(&Pool::new(&device)?).build()?;
//! let client = broker.register(Client::new("doubler").share(Share::Fixed(0.5)).group("solver"))?;
//! broker.set_streams("solver", 3)?;
//!
//! // 4 MB each way through half a MiB.
//! let (numbers, mut doubled) = (vec![1.5_f32; 1_000_000], vec![0.0_f32; 1_000_000]);
//! let input = client.queue(ArrayRequest::input("numbers", [1_000_000], 4))?;
//! let output = client.queue(ArrayRequest::output("doubled", [1_000_000], 4))?;
//! let plan = broker.commit("solver")?;
//! let bytes_in: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
//! let mut bytes_out = vec![0; 4_000_000];
//! let report = plan
//!     .execution()
//!     .upload(input, &bytes_in[..])
//!     .download(output, &mut bytes_out[..])
//!     .run(|chunk, stream| {
//!         let (from, to) = (chunk.region(input)?, chunk.region_mut(output)?);
//!         stream.launch([from], [to], |[from], [to]: [&mut [f32]; 1]| {
//!             to.iter_mut().zip(from).for_each(|(to, from)| *to = 2.0 * from);
//!         })?;
//!         Ok(())
//!     })?;
//! assert!(report.chunks > 16);
//! # for (number, bytes) in doubled.iter_mut().zip(bytes_out.chunks(4)) {
//! #     *number = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
//! # }
//! assert!(doubled.iter().all(|&number| number == 3.0));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `metrics` | [`METRICS`], and [`Broker`] as an [`Owner`](vrampool::telemetry::Owner) of statistics |
//! | `serde` | `serde::Serialize` of all statistics and reports; durations in nanoseconds |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod builder;
mod chunk;
mod chunk_order;
mod client;
mod client_handle;
mod commit;
mod data;
mod error;
mod footprint;
mod handle;
mod host_array;
mod id;
#[cfg(feature = "metrics")]
mod metrics;
mod partition;
mod plan;
mod plan_array;
mod pressure;
mod progress;
mod request;
mod run;
mod share;
mod spill_directory;
mod spilled;
mod staging;
mod state;
mod stats;
mod transfer;

pub use builder::BrokerBuilder;
pub use chunk::Chunk;
pub use client::Client;
pub use client_handle::ClientHandle;
pub use error::{BrokerError, Stage};
pub use handle::Broker;
pub use host_array::{HostArray, HostBacking};
pub use id::{ArrayId, ClientId, DEFAULT_GROUP};
#[cfg(feature = "metrics")]
pub use metrics::METRICS;
pub use partition::{ChunkError, Partition};
pub use plan::{Execution, HostSink, HostSource, Plan};
pub use progress::{Progress, RunReport, StageSpan};
pub use request::{ArrayRequest, Role};
pub use share::{Share, ShareError};
pub use staging::stager::{Stager, Upload};
pub use stats::{BrokerCounts, BrokerStats, ClientStats, RegisteredClient};
