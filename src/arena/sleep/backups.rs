//! Contents of blocks in host memory while an arena sleeps.

use crate::arena::mapping::pages::Extent;
use crate::staging::stored::Stored;
use vrampool_backend::Backend;

/// Largest piece of host memory, bytes.
const MOST: u64 = 256 << 20;

/// Most bytes of small blocks in one piece.
const MOST_SHARED: u64 = 64 << 20;

/// Blocks from this size on have their own piece, so that freeing a block releases its backup, bytes.
const ALONE_FROM: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Backups<B: Backend> {
    /// By offset in the range.
    pub(super) chunks: Vec<Chunk<B>>,
}

#[derive(Debug)]
pub(super) struct Chunk<B: Backend> {
    /// The extents of the arena's range in it, by offset, stored consecutively.
    pub(super) parts: Vec<Extent>,
    /// Bytes of live blocks in it.
    pub(super) live: u64,
    pub(super) stored: Option<Stored<B>>,
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

    pub(super) fn stored(&self) -> impl Iterator<Item = &Stored<B>> {
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
pub(super) fn common(extents: &[Extent], of: Extent) -> impl Iterator<Item = Extent> {
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
pub(super) fn pack(live: &[Extent]) -> Vec<Vec<Extent>> {
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
