//! Contents of blocks in host memory while an arena sleeps.

use crate::copies::copying;
use crate::error::Error;
use crate::host_copy::{HostCopy, can_pin};
use crate::offload::Offload;
use crate::progress::Progress;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use vrampool::Backend;

/// Largest piece of host memory, bytes.
const MOST: u64 = 256 << 20;

/// Most bytes of small blocks in one piece.
const MOST_SHARED: u64 = 64 << 20;

/// Blocks from this size on have their own piece, so that freeing a block releases its backup, bytes.
const ALONE_FROM: u64 = 16 << 20;

/// An extent of an arena's range, bytes.
type Extent = Range<u64>;

/// The contents of one sleep.
#[derive(Debug)]
pub(super) struct Backups<B: Backend> {
    /// By offset in the range. Not locked during copies, so that a free does not wait.
    chunks: Mutex<Vec<Chunk<B>>>,
}

/// A piece of host memory.
#[derive(Debug)]
struct Chunk<B: Backend> {
    /// The extents of the arena's range in it, by offset, stored consecutively.
    parts: Arc<[Extent]>,
    /// Bytes of live blocks in it.
    live: u64,
    stored: Option<Arc<HostCopy<B>>>,
}

impl<B: Backend> Default for Backups<B> {
    fn default() -> Self {
        Self { chunks: Mutex::default() }
    }
}

impl<B: Backend> Backups<B> {
    /// Copies live extents of an arena's range, sorted by offset, to the host.
    pub(super) fn save(
        device: &B,
        range: &B::Memory,
        live: &[Extent],
        offload: Offload,
        progress: &Progress<'_>,
    ) -> Result<Self, Error> {
        if offload == Offload::Discard || live.is_empty() {
            return Ok(Self::default());
        }
        let mut pins = offload == Offload::Pinned && can_pin(device);
        let chunk = |parts: Vec<Extent>| {
            let live = parts.iter().map(bytes_of).sum();
            Chunk { parts: parts.into(), live, stored: None }
        };
        let mut chunks: Vec<Chunk<B>> = pack(live).into_iter().map(chunk).collect();
        let total = chunks.iter().map(|chunk| chunk.live).sum();
        let saved = copying(device, progress, total, |copies| {
            for Chunk { parts, live, .. } in &chunks {
                copies.open(HostCopy::with(device, *live, &mut pins)?);
                let mut at = 0;
                for part in parts.iter() {
                    copies.save(range, part.start, at, bytes_of(part))?;
                    at += bytes_of(part);
                }
            }
            Ok(())
        })?;
        for (chunk, stored) in chunks.iter_mut().zip(saved) {
            chunk.stored = Some(Arc::new(stored));
        }
        Ok(Self { chunks: Mutex::new(chunks) })
    }

    /// Copies the contents of live extents, sorted by offset, back to the range, and waits. Returns the bytes.
    pub(super) fn restore(
        &self,
        device: &B,
        range: &B::Memory,
        live: &[Extent],
        progress: &Progress<'_>,
    ) -> Result<u64, Error> {
        let chunk = |chunk: &Chunk<B>| Some((Arc::clone(&chunk.parts), Arc::clone(chunk.stored.as_ref()?)));
        let chunks: Vec<_> = self.chunks.lock().iter().filter_map(chunk).collect();
        let total: u64 = chunks.iter().map(|(_, stored)| stored.bytes()).sum();
        if total == 0 {
            return Ok(0);
        }
        let (live, mut restored) = (merged(live), 0);
        copying(device, progress, total, |copies| {
            for (parts, stored) in &chunks {
                let mut at = 0;
                for part in parts.iter() {
                    for extent in common(&live, part) {
                        let from = at + (extent.start - part.start);
                        copies.restore(stored, from, range, extent.start, bytes_of(&extent))?;
                        restored += bytes_of(&extent);
                    }
                    at += bytes_of(part);
                }
            }
            Ok(())
        })?;
        Ok(restored)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks.lock().iter().filter_map(|chunk| chunk.stored.as_ref()).map(|stored| stored.bytes()).sum()
    }

    /// Bytes of live blocks in it.
    pub(super) fn live(&self) -> u64 {
        self.chunks.lock().iter().map(|chunk| chunk.live).sum()
    }

    /// Forgets freed blocks. Returns memory without other contents, to be dropped.
    pub(super) fn forget(&self, freed: &[Extent]) -> Vec<Arc<HostCopy<B>>> {
        let mut empty = Vec::new();
        let mut chunks = self.chunks.lock();
        for extent in freed {
            let first = chunks.partition_point(|chunk| chunk.span().end <= extent.start);
            for chunk in &mut chunks[first..] {
                let span = chunk.span();
                if span.start >= extent.end {
                    break;
                }
                // A block is entirely in parts, and no bytes of it are between the parts of a chunk.
                chunk.live = chunk.live.saturating_sub(bytes_of(&overlap(extent, &span)));
                if chunk.live == 0 {
                    empty.extend(chunk.stored.take());
                }
            }
        }
        empty
    }

    /// Forgets everything. Returns its memory.
    pub(super) fn take(&self) -> Vec<Arc<HostCopy<B>>> {
        std::mem::take(&mut *self.chunks.lock()).into_iter().filter_map(|chunk| chunk.stored).collect()
    }
}

impl<B: Backend> Chunk<B> {
    fn span(&self) -> Extent {
        let start = self.parts.first().map_or(0, |part| part.start);
        start..self.parts.last().map_or(start, |part| part.end)
    }
}

pub(super) fn bytes_of(extent: &Extent) -> u64 {
    extent.end - extent.start
}

/// The intersection of two extents that have one.
fn overlap(one: &Extent, other: &Extent) -> Extent {
    one.start.max(other.start)..one.end.min(other.end)
}

/// The intersections of sorted extents with another extent.
fn common(extents: &[Extent], of: &Extent) -> impl Iterator<Item = Extent> {
    let first = extents.partition_point(|extent| extent.end <= of.start);
    extents[first..].iter().take_while(|extent| extent.start < of.end).map(|extent| overlap(extent, of))
}

/// Joins adjacent extents, which are sorted by offset.
fn merged(extents: &[Extent]) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if last.end == extent.start => last.end = extent.end,
            _ => merged.push(extent.clone()),
        }
    }
    merged
}

/// Distributes extents, sorted by offset, over pieces of host memory.
fn pack(live: &[Extent]) -> Vec<Vec<Extent>> {
    let (mut chunks, mut open, mut open_bytes) = (Vec::new(), Vec::new(), 0);
    for extent in live {
        let bytes = bytes_of(extent);
        if bytes >= ALONE_FROM || open_bytes + bytes > MOST_SHARED {
            chunks.push(merged(&std::mem::take(&mut open)));
            open_bytes = 0;
        }
        if bytes < ALONE_FROM {
            open.push(extent.clone());
            open_bytes += bytes;
            continue;
        }
        let mut start = extent.start;
        while start < extent.end {
            let end = extent.end.min(start + MOST);
            chunks.push(vec![Extent { start, end }]);
            start = end;
        }
    }
    chunks.push(merged(&open));
    chunks.retain(|parts| !parts.is_empty());
    chunks
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
            let live: Vec<_> = sizes.iter().map(|&(has_gap, bytes)| {
                let start = end + u64::from(has_gap);
                end = start + bytes;
                start..end
            }).collect();
            let chunks = pack(&live);
            let parts: Vec<_> = chunks.iter().flatten().cloned().collect();
            prop_assert_eq!(merged(&parts), merged(&live));
            for parts in &chunks {
                let bytes: u64 = parts.iter().map(bytes_of).sum();
                prop_assert!(0 < bytes && bytes <= MOST);
                let span = parts[0].start..parts[parts.len() - 1].end;
                let inside: Vec<_> = live.iter().filter(|block| block.start < span.end && span.start < block.end).collect();
                prop_assert!(inside.len() == 1 || inside.iter().all(|block| bytes_of(block) < ALONE_FROM));
            }
        }
    }
}
