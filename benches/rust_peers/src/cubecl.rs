//! CubeCL's memory management as its CUDA runtime configures it: one for each stream, an alignment of 512 bytes, and pages of at most a
//! quarter of the device. Without its locks, server channel and stream tracking.

use crate::Peer;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
    PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ALIGNMENT: u64 = 512;
/// An H100's.
const DEVICE: u64 = 80 << 30;

/// A preset of pools.
#[derive(Clone, Copy)]
pub enum Preset {
    /// The default where blocks can be cut from pages.
    Adaptive,
    /// One page for each block.
    Exclusive,
}

/// What a request may change.
#[derive(Clone, Copy)]
pub enum Updates {
    /// Pages may be released: outside of captures.
    Cleanup,
    /// Pages may be added only: while a stream is captured.
    AddOnly,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adaptive => "adaptive",
            Self::Exclusive => "exclusive",
        })
    }
}

impl fmt::Display for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cleanup => "",
            Self::AddOnly => "-add-only",
        })
    }
}

/// Bytes of all streams.
#[derive(Default)]
struct Total {
    bytes: AtomicU64,
    peak: AtomicU64,
}

/// Counts.
struct Counting {
    sizes: HashMap<StorageId, u64>,
    total: Arc<Total>,
    held: u64,
}

impl ComputeStorage for Counting {
    type Resource = ();

    fn alignment(&self) -> usize {
        ALIGNMENT as usize
    }

    fn get(&mut self, _: &StorageHandle) -> Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let id = StorageId::new();
        self.sizes.insert(id, size);
        self.held += size;
        let bytes = self.total.bytes.fetch_add(size, Ordering::Relaxed) + size;
        self.total.peak.fetch_max(bytes, Ordering::Relaxed);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        let size = self.sizes.remove(&id).unwrap_or(0);
        self.held -= size;
        self.total.bytes.fetch_sub(size, Ordering::Relaxed);
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.held
    }
}

/// A memory management for each stream.
pub struct CubeCl {
    streams: Vec<MemoryManagement<Counting>>,
    failures: ErrorGraph,
    total: Arc<Total>,
    preset: Preset,
    update: PageUpdate,
    logger: Arc<ServerLogger>,
}

impl CubeCl {
    /// Nothing is held.
    pub fn new(preset: Preset, updates: Updates) -> Self {
        let update = match updates {
            Updates::Cleanup => PageUpdate::Allow,
            Updates::AddOnly => PageUpdate::AddOnly,
        };
        Self {
            streams: Vec::new(),
            failures: ErrorGraph::default(),
            total: Arc::default(),
            preset,
            update,
            logger: Arc::default(),
        }
    }

    fn create_stream(&mut self) {
        let configuration = match self.preset {
            Preset::Adaptive => MemoryConfiguration::Adaptive,
            Preset::Exclusive => MemoryConfiguration::ExclusivePages,
        };
        let storage = Counting { sizes: HashMap::new(), total: Arc::clone(&self.total), held: 0 };
        let properties =
            cubecl_ir::MemoryDeviceProperties::new(DEVICE / 4, ALIGNMENT).with_max_memory(DEVICE);
        self.streams.push(MemoryManagement::from_configuration(
            storage,
            &properties,
            configuration,
            Arc::clone(&self.logger),
            MemoryManagementOptions::new("GPU"),
        ));
    }
}

impl Peer for CubeCl {
    type Block = ManagedMemoryHandle;

    fn allocate(&mut self, bytes: u64, stream: usize) -> Result<ManagedMemoryHandle, Box<dyn Error>> {
        while self.streams.len() <= stream {
            self.create_stream();
        }
        let reserved = self.streams[stream].reserve(bytes, self.update, &mut self.failures);
        reserved.map_err(|error| format!("{bytes} bytes: {error}").into())
    }

    fn free(&mut self, block: ManagedMemoryHandle, _: usize) {
        drop(block);
    }

    fn take_peak(&mut self) -> u64 {
        let bytes = self.total.bytes.load(Ordering::Relaxed);
        self.total.peak.swap(bytes, Ordering::Relaxed)
    }
}
