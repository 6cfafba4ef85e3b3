//! What is measured: a scene with blocks of one size, from one source, in one rule of size classes.

use crate::options::Options;
use crate::scene::Scene;
use vrampool::backend::Capabilities;
use vrampool::{Backend, Error, Pool, SizeClasses, Source};

/// The most that the arena of a pool may take.
const MOST_ARENA_BYTES: u64 = 16 << 30;
/// Arenas that exist at the same time: that of the one pool, and those of the others, which share the same
/// number of bytes.
const ARENAS: u64 = 2;

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) scene: Scene,
    pub(crate) block_bytes: u64,
    pub(crate) source: Source,
    pub(crate) classes: SizeClasses,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self { scene, block_bytes, source, classes, .. } = self;
        format!("{scene}, {block_bytes} bytes, {source}, {classes}")
    }

    /// A pool that has `share` of the bytes that an arena may take, such as 4 for a quarter.
    pub(crate) fn pool<B: Backend>(&self, device: &B, share: usize) -> Result<Pool<B>, Error> {
        let builder = Pool::builder(device)
            .source(self.source)
            .size_classes(self.classes.clone())
            .max_cached_bytes(None);
        let builder = match self.source {
            Source::Arena => builder.limit(arena_bytes(device)? / share as u64),
            _ => builder,
        };
        builder.build()
    }
}

/// The selected cases that the device has the source for.
pub(crate) fn cases<B: Backend>(device: &B, options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &scene in &options.scenes {
        for &block_bytes in &options.sizes {
            for &source in options.sources.iter().filter(|&&source| has(device, source)) {
                for classes in &options.classes {
                    cases.push(Case { scene, block_bytes, source, classes: classes.clone() });
                }
            }
        }
    }
    cases
}

fn has<B: Backend>(device: &B, source: Source) -> bool {
    match source {
        Source::Virtual => device.virtual_memory().is_some(),
        Source::Driver => device.properties().capabilities.contains(Capabilities::STREAM_ORDERED),
        _ => true,
    }
}

fn arena_bytes<B: Backend>(device: &B) -> Result<u64, Error> {
    let free = device.memory_info()?.free_bytes;
    let most = MOST_ARENA_BYTES.min(device.properties().max_allocation);
    // A quarter stays free for what is not in arenas.
    Ok(most.min(free / 4 * 3 / ARENAS) >> 21 << 21)
}
