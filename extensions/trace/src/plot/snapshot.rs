//! Snapshots of pools, as C and Python write them, as pictures.

use super::drawing::{Block, Drawing};
use crate::error::TraceFault;
use crate::file::origin::{Origin, Origins};
use bytesize::ByteSize;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::{self, Read};

/// What a picture shows of a snapshot.
#[derive(Deserialize)]
struct Snapshot {
    pool: String,
    device: String,
    source: String,
    limit: u64,
    segments: Vec<Segment>,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(flatten)]
    extent: Extent,
    tag: String,
    blocks: Vec<Span>,
    #[serde(default)]
    pending: Vec<Extent>,
}

#[derive(Deserialize)]
struct Span {
    #[serde(flatten)]
    extent: Extent,
    requested: u64,
    stream: u64,
    state: String,
}

#[derive(Deserialize, Clone, Copy)]
struct Extent {
    address: u64,
    bytes: u64,
}

impl Extent {
    fn contains(self, part: Self) -> bool {
        let end = |of: Self| of.address.checked_add(of.bytes);
        self.address <= part.address && end(part).is_some_and(|last| Some(last) <= end(self))
    }
}

pub(super) fn read(json: impl Read) -> Result<Drawing, TraceFault> {
    let wrong = |error: io::Error| TraceFault::Snapshot(error);
    let snapshot: Snapshot =
        serde_json::from_reader(io::BufReader::new(json)).map_err(|error| wrong(error.into()))?;
    let (mut blocks, mut idle, mut pending, mut pages) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut origins, mut streams) = (Origins::default(), HashMap::new());
    for Segment { extent: segment, tag, blocks: spans, pending: freed } in &snapshot.segments {
        let parts = spans.iter().map(|span| span.extent).chain(freed.iter().copied());
        if !parts.into_iter().all(|part| segment.contains(part)) {
            let text = format!("a part of the segment at {:#x} is outside of it", segment.address);
            return Err(wrong(io::Error::other(text)));
        }
        pages.push((segment.address, segment.bytes));
        pending.extend(freed.iter().map(|extent| (extent.address, extent.bytes)));
        let origin = origins.number(Origin::new(tag, ""));
        for &Span { extent: Extent { address, bytes: capacity }, requested: size, stream, ref state } in spans
        {
            if matches!(state.as_str(), "live" | "private") {
                let next = streams.len() as u64;
                let stream = *streams.entry(stream).or_insert(next);
                let address = Some(address);
                blocks.push(Block { start: 0, events: 0, size, capacity, stream, address, origin });
            } else if state == "idle" {
                idle.push((address, capacity));
            }
        }
    }
    let requested = sum(blocks.iter().map(|block| block.size));
    let live = sum(blocks.iter().map(|block| block.capacity));
    let of = |extents: &[(u64, u64)]| sum(extents.iter().map(|(_, bytes)| *bytes));
    let (idle_bytes, reserved) = (of(&idle), of(&pages));
    let figures = [
        ("requested", requested),
        ("live", live),
        ("idle", idle_bytes),
        ("pending frees", of(&pending)),
        ("mapped", reserved),
    ];
    Ok(Drawing {
        name: snapshot.pool,
        settings: format!("{}, {} source, at one moment", snapshot.device, snapshot.source),
        figures: figures.map(|(name, bytes)| (name, ByteSize(bytes).to_string())).into(),
        // The largest number is no limit.
        limit: snapshot.limit.checked_add(1).map_or(0, |limit| limit - 1),
        times: vec![0],
        requested: vec![requested],
        blocks,
        origins: origins.list(),
        pages: vec![(0, pages)],
        kept: Some([idle, pending]),
        samples: vec![[0, live, live.saturating_add(idle_bytes), reserved, 0, 0, 0]],
    })
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
