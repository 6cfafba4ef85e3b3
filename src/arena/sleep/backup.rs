//! Contents of blocks in host memory while an arena sleeps.

use super::Offload;
use crate::arena::ArenaCore;
use crate::arena::mapping::pages::Extent;
use crate::staging::stored::{Stored, can_pin, on_a_stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use vrampool_backend::{Backend, BackendError, Region, RegionMut};

/// Largest piece of host memory, bytes.
const MOST: u64 = 256 << 20;

/// Most bytes of small blocks in one piece.
const MOST_SHARED: u64 = 64 << 20;

/// Blocks from this size on have their own piece, so that freeing a block releases its backup, bytes.
const ALONE_FROM: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Backups<B: Backend> {
    /// By offset in the range.
    chunks: Vec<Chunk<B>>,
}

#[derive(Debug)]
struct Chunk<B: Backend> {
    /// The extents of the arena's range in it, by offset, stored consecutively.
    parts: Vec<Extent>,
    /// Bytes of live blocks in it.
    live: u64,
    stored: Option<Stored<B>>,
}

impl<B: Backend> Default for Backups<B> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<B: Backend> Chunk<B> {
    fn end(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end())
    }
}

impl<B: Backend> Backups<B> {
    pub(super) fn bytes(&self) -> u64 {
        self.stored().map(Stored::bytes).sum()
    }

    fn stored(&self) -> impl Iterator<Item = &Stored<B>> {
        self.chunks.iter().filter_map(|chunk| chunk.stored.as_ref())
    }

    /// Forgets freed blocks. Returns memory without other contents.
    pub(super) fn forget(&mut self, extents: &[Extent]) -> Vec<Stored<B>> {
        let mut empty = Vec::new();
        for extent in extents {
            let first = self.chunks.partition_point(|chunk| chunk.end() <= extent.start);
            for chunk in &mut self.chunks[first..] {
                let start = chunk.parts.first().map_or(0, |part| part.start);
                if start >= extent.end() {
                    break;
                }
                // A block is entirely in parts, and no bytes of it are between the parts of a chunk.
                let bytes = extent.end().min(chunk.end()) - extent.start.max(start);
                chunk.live = chunk.live.saturating_sub(bytes);
                if chunk.live == 0 {
                    empty.extend(chunk.stored.take());
                }
            }
        }
        empty
    }

    /// Keeps only the given live blocks. Returns memory without their contents.
    pub(super) fn keep(&mut self, live: &[Extent]) -> Vec<Stored<B>> {
        let mut empty = Vec::new();
        for chunk in &mut self.chunks {
            chunk.live =
                chunk.parts.iter().flat_map(|&part| common(live, part)).map(|extent| extent.bytes).sum();
            if chunk.live == 0 {
                empty.extend(chunk.stored.take());
            }
        }
        empty
    }

    pub(super) fn into_stored(self) -> Vec<Stored<B>> {
        self.chunks.into_iter().filter_map(|chunk| chunk.stored).collect()
    }
}

/// The intersections of sorted extents with another extent.
fn common(extents: &[Extent], of: Extent) -> impl Iterator<Item = Extent> {
    let first = extents.partition_point(|extent| extent.end() <= of.start);
    extents[first..].iter().take_while(move |extent| extent.start < of.end()).map(move |extent| {
        let start = extent.start.max(of.start);
        Extent { start, bytes: extent.end().min(of.end()) - start }
    })
}

/// Joins adjacent extents, which are sorted by offset.
pub(super) fn merged(extents: &[Extent]) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    for &extent in extents {
        match merged.last_mut() {
            Some(last) if last.end() == extent.start => last.bytes += extent.bytes,
            _ => merged.push(extent),
        }
    }
    merged
}

/// Distributes extents, sorted by offset, over pieces of host memory.
fn pack(live: &[Extent]) -> Vec<Vec<Extent>> {
    let (mut chunks, mut open, mut open_bytes) = (Vec::new(), Vec::new(), 0);
    for &extent in live {
        if extent.bytes >= ALONE_FROM || open_bytes + extent.bytes > MOST_SHARED {
            chunks.push(merged(&std::mem::take(&mut open)));
            open_bytes = 0;
        }
        if extent.bytes < ALONE_FROM {
            open.push(extent);
            open_bytes += extent.bytes;
            continue;
        }
        let mut start = extent.start;
        while start < extent.end() {
            let bytes = MOST.min(extent.end() - start);
            chunks.push(vec![Extent { start, bytes }]);
            start += bytes;
        }
    }
    chunks.push(merged(&open));
    chunks.retain(|parts| !parts.is_empty());
    chunks
}

impl<B: Backend> ArenaCore<B> {
    /// Copies live extents, sorted by offset, to the host: all copies in sequence, then one wait.
    pub(super) fn back_up(
        &self,
        range: &B::Memory,
        live: &[Extent],
        offload: Offload,
    ) -> Result<Backups<B>, BackendError> {
        if offload == Offload::Discard || live.is_empty() {
            return Ok(Backups::default());
        }
        let mut pins = offload == Offload::Pinned && can_pin(&self.device);
        let mut backups = Backups::default();
        on_a_stream(&self.device, |stream| {
            for parts in pack(live) {
                let bytes = parts.iter().map(|part| part.bytes).sum();
                let mut stored = Stored::new(&self.device, bytes, &mut pins)?;
                let mut at = 0;
                for part in &parts {
                    let source = Region::new(range, part.start, part.bytes, stream)?;
                    stored.save(&self.device, stream, source, at)?;
                    at += part.bytes;
                }
                backups.chunks.push(Chunk { parts, live: bytes, stored: Some(stored) });
            }
            Ok::<(), BackendError>(())
        })?;
        Ok(backups)
    }

    /// Copies backups of live extents, sorted by offset, back to the range, and waits. Returns the bytes.
    pub(super) fn restore(
        &self,
        range: &B::Memory,
        backups: &Backups<B>,
        live: &[Extent],
    ) -> Result<u64, BackendError> {
        if backups.stored().next().is_none() {
            return Ok(0);
        }
        let (live, mut restored) = (merged(live), 0);
        on_a_stream(&self.device, |stream| {
            for chunk in &backups.chunks {
                let Some(stored) = &chunk.stored else { continue };
                let mut at = 0;
                for &part in &chunk.parts {
                    for extent in common(&live, part) {
                        let from = at + (extent.start - part.start);
                        let destination = RegionMut::new(range, extent.start, extent.bytes, stream)?;
                        stored.restore(&self.device, stream, from, destination)?;
                        restored += extent.bytes;
                    }
                    at += part.bytes;
                }
            }
            Ok::<(), BackendError>(())
        })?;
        Ok(restored)
    }
}

/// Pinned memory that a separate thread releases, because that takes as long as copying it. Only a later use
/// of pinned memory, and the drop of the arena, wait for that thread.
#[derive(Debug, Default)]
pub(in crate::arena) struct GivingBack {
    bytes: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl GivingBack {
    /// Bytes that remain.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn wait(&self) {
        let thread = self.thread.lock().take();
        // The thread does not panic, because a drop does not fail.
        let _ = thread.map(JoinHandle::join);
    }

    /// Drops the memory; its pinned part later.
    pub(super) fn take<B: Backend>(&self, stored: Vec<Stored<B>>) {
        let (pinned, pageable): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|stored| matches!(stored, Stored::Pinned(_)));
        drop(pageable);
        if pinned.is_empty() {
            return;
        }
        self.wait();
        let bytes = Arc::clone(&self.bytes);
        bytes.fetch_add(pinned.iter().map(Stored::bytes).sum(), Ordering::Relaxed);
        let give_back = move || {
            for stored in pinned {
                let given = stored.bytes();
                drop(stored);
                bytes.fetch_sub(given, Ordering::Relaxed);
            }
        };
        // If no thread can be created, the closure and its contents are dropped here.
        let spawned = std::thread::Builder::new().name("vrampool backups".into()).spawn(give_back);
        match spawned {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(_) => self.bytes.store(0, Ordering::Relaxed),
        }
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No byte is missing or duplicated, no piece is too large, and large blocks share no piece.
        #[test]
        fn packed_extents_are_the_live_ones(
            sizes in prop::collection::vec((any::<bool>(), prop_oneof![1..4096u64, 1..MOST_SHARED, 1..3 * MOST]), 0..40),
        ) {
            let mut end = 0;
            let live: Vec<_> = sizes.iter().map(|&(apart, bytes)| {
                let start = end + u64::from(apart);
                end = start + bytes;
                Extent { start, bytes }
            }).collect();
            let chunks = pack(&live);
            let parts: Vec<_> = chunks.iter().flatten().copied().collect();
            prop_assert_eq!(merged(&parts), merged(&live));
            for parts in &chunks {
                let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
                prop_assert!(0 < bytes && bytes <= MOST);
                let span = Extent { start: parts[0].start, bytes: parts[parts.len() - 1].end() - parts[0].start };
                let inside: Vec<_> = live.iter().filter(|block| block.start < span.end() && span.start < block.end()).collect();
                prop_assert!(inside.len() == 1 || inside.iter().all(|block| block.bytes < ALONE_FROM));
            }
        }
    }
}
