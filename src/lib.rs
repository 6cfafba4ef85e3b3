#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(clippy::vec_box, reason = "a block's record is boxed wherever it is, so that it moves as one word")]

pub mod any;
pub mod arena;
pub mod broker;
mod cache;
mod environment;
mod error;
pub mod hooks;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod output;
mod pool;
#[cfg(feature = "trace")]
mod recorder;
pub mod sleep;
mod source;
mod staging;
mod streams;
mod sync;
#[cfg(feature = "trace")]
pub mod trace;

pub use arena::{
    Allowance, ArenaBuffer, ArenaBuilder, BlockState, Compaction, DeviceArena, Moved, Offload, SleepReport,
    SleepState, WakeReport,
};
pub use cache::oom_rung::Rung;
pub use cache::served_by::ServedBy;
pub use cache::size_class::SizeClasses;
pub use cache::size_class::fitted;
pub use cache::size_class::fitted::FittedClasses;
pub use cache::stats::{BucketStats, PoolStats};
pub use environment::UNLIMITED;
pub use error::{Error, Forbidden, OutOfMemory, Shortage};
pub use pool::Pool;
pub use pool::buffer::Buffer;
pub use pool::builder::Builder;
pub use pool::global::persistent_pool;
pub use pool::private_pool::{GraphBuffer, GraphMemory};
pub use sleep::{SleepBuffer, Sleeper};
pub use source::Source;
pub use staging::stager::{Stager, Upload};
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
