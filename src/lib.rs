#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(clippy::vec_box, reason = "a block's record is boxed wherever it is, so that it moves as one word")]

mod announce;
pub mod any;
pub mod arena;
mod block;
pub mod broker;
mod buckets;
mod budget;
mod buffer;
mod builder;
mod capture;
mod checksum;
mod depot;
mod device_arena;
mod ended;
mod environment;
mod error;
mod exchange;
mod file_size;
pub mod fitted;
mod graph_memory;
pub mod hooks;
mod lanes;
mod last;
mod locked_depot;
mod magazine;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(all(test, model))]
mod model;
pub mod output;
mod pool;
mod promise;
mod rack;
mod readers;
mod records;
mod registry;
mod request;
mod served_by;
mod shared;
mod size_class;
pub mod sleep;
mod source;
mod spares;
mod stager;
mod stats;
mod sync;
mod tally;
#[cfg(feature = "trace")]
pub mod trace;
mod turns;

pub use budget::UNLIMITED;
pub use buffer::Buffer;
pub use builder::Builder;
pub use device_arena::{
    Allowance, ArenaBuffer, ArenaBuilder, BlockState, Compaction, DeviceArena, Moved, Offload, SleepReport,
    SleepState, WakeReport,
};
pub use error::{Error, Forbidden, OutOfMemory, Shortage};
pub use fitted::FittedClasses;
pub use graph_memory::{GraphBuffer, GraphMemory};
pub use pool::Pool;
pub use registry::persistent_pool;
pub use served_by::ServedBy;
pub use size_class::SizeClasses;
pub use sleep::{SleepBuffer, Sleeper};
pub use source::Source;
pub use stager::{Stager, Upload};
pub use stats::{BucketStats, PoolStats, Rung};
/// For the C ABI, whose blocks are behind such a lock too.
#[cfg(not(model))]
#[doc(hidden)]
pub use sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
pub use vrampool_backend as backend;
pub use vrampool_backend::{
    Backend, BackendError, Event, Hook, HookEvent, Memory, MemoryKind, Outcome, Placement, Region, RegionMut,
    Stream, Usage,
};
#[cfg(feature = "cuda")]
pub use vrampool_cuda as cuda;
#[cfg(feature = "host")]
pub use vrampool_host as host;
#[cfg(feature = "opencl")]
pub use vrampool_opencl as opencl;
#[cfg(feature = "wgpu")]
pub use vrampool_wgpu as wgpu;

#[cfg(all(test, feature = "host"))]
mod thread_safety {
    fn crosses_threads<T: Send + Sync>() {}

    #[test]
    fn what_users_share_between_threads_can_be_shared() {
        crosses_threads::<crate::Pool<crate::host::HostDevice>>();
        crosses_threads::<crate::Buffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Stager<crate::host::HostDevice>>();
        crosses_threads::<crate::DeviceArena<crate::host::HostDevice>>();
        crosses_threads::<crate::ArenaBuffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Pool<crate::any::AnyDevice>>();
        crosses_threads::<crate::Sleeper<crate::host::HostDevice>>();
        crosses_threads::<crate::SleepBuffer<crate::host::HostDevice>>();
        crosses_threads::<crate::Error>();
        crosses_threads::<crate::broker::Broker<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::ClientHandle<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::Plan<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::HostArray<crate::host::HostDevice>>();
        crosses_threads::<crate::broker::BrokerError>();
    }
}
