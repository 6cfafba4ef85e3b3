//! What a pool has in memory, as JSON.

use crate::blocks;
use crate::memory::Memory;
use crate::pool::CPool;
use crate::tags::Tagged;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use vrampool::arena::SpanState;
use vrampool::internal;
use vrampool::{Backend, Source};

/// A live block, as it is listed.
struct Live {
    bytes: u64,
    requested: u64,
    stream: usize,
    state: &'static str,
    /// Where in an arena its memory is.
    parts: Vec<std::ops::Range<u64>>,
    /// Its address, which is another one than that of its memory where it is stitched.
    at: u64,
}

impl Live {
    /// The block, whose memory takes so many bytes.
    fn listed(&self, bytes: u64) -> Value {
        json!({
            "address": self.at, "bytes": bytes, "requested": self.requested.min(bytes), "stream": self.stream,
            "state": self.state, "block": self.at,
        })
    }

    /// Whether its address is another one than that of its memory, in an arena with that base.
    fn is_stitched(&self, base: u64) -> bool {
        !matches!(self.parts.as_slice(), [part] if base + part.start == self.at)
    }

    fn part_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

impl CPool {
    pub(crate) fn snapshot(&self) -> Value {
        let mut by_tag: HashMap<String, Vec<Live>> = HashMap::new();
        blocks::each_of(self.handle, |address, held| {
            let Some(buffer) = held.memory.buffer() else { return };
            let state = if matches!(held.memory, Memory::Captured(_)) { "private" } else { "live" };
            let live = Live {
                bytes: buffer.capacity(),
                requested: held.memory.requested(),
                stream: held.stream,
                state,
                parts: internal::parts(buffer),
                at: address,
            };
            by_tag.entry(buffer.pool_name().to_owned()).or_default().push(live);
        });
        let mut segments = BTreeMap::new();
        for tagged in self.tags() {
            let live = by_tag.remove(tagged.pool.name()).unwrap_or_default();
            match tagged.pool.arena() {
                Some(_) => arena_segments(&tagged, &live, &mut segments),
                None => own_segments(&tagged, &live, &mut segments),
            }
        }
        let device = &self.home.device;
        json!({
            "version": 1,
            "pool": self.main.pool.name(),
            "device": device.properties().name,
            "backend": device.backend(),
            "source": self.main.pool.source().name(),
            "limit": self.limit(),
            "segments": segments.into_values().collect::<Vec<_>>(),
        })
    }
}

/// Each block is an allocation of its own.
fn own_segments(tagged: &Tagged, live: &[Live], segments: &mut BTreeMap<u64, Value>) {
    let kind = tagged.pool.source().name();
    for block in live {
        let listed = vec![block.listed(block.bytes)];
        segments.insert(block.at, segment(tagged, block.at, block.bytes, kind, listed));
    }
}

/// The parts of an arena's range that have memory behind them. The memory of a stitched block is listed at the block's
/// address, and not where its pieces are.
fn arena_segments(tagged: &Tagged, live: &[Live], segments: &mut BTreeMap<u64, Value>) {
    let Some((arena, base)) = tagged.pool.arena().and_then(|arena| Some((arena, arena.base()?))) else {
        return;
    };
    let kind = if tagged.pool.source() == Source::Virtual { "virtual" } else { "arena" };
    let owners: BTreeMap<u64, &Live> =
        live.iter().flat_map(|block| block.parts.iter().map(move |part| (part.start, block))).collect();
    // Bytes of stitched blocks that have memory behind them, by address.
    let mut stitched: BTreeMap<u64, (&Live, u64)> = BTreeMap::new();
    let (spans, mapped) = (arena.blocks(), arena.mapped());
    let mut spans = spans.iter().peekable();
    for run in mapped {
        let mut part = Part::new(base + run.start);
        while let Some(span) = spans.peek() {
            if span.offset >= run.end {
                break;
            }
            let end = (span.offset + span.bytes).min(run.end);
            let start = span.offset.max(run.start);
            if start < end {
                let (address, bytes) = (base + start, end - start);
                match (owners.get(&span.offset), span.state) {
                    (Some(block), _) if block.is_stitched(base) => {
                        stitched.entry(block.at).or_insert((block, 0)).1 += bytes;
                        part.end(tagged, kind, segments);
                        part = Part::new(address + bytes);
                    }
                    (Some(block), _) => part.add(bytes, block.listed(bytes)),
                    (None, SpanState::Free) => part.add(bytes, free(address, bytes, "free")),
                    (None, _) => part.add(bytes, free(address, bytes, "idle")),
                }
            }
            if span.offset + span.bytes > run.end {
                break;
            }
            spans.next();
        }
        part.end(tagged, kind, segments);
    }
    for (address, (block, bytes)) in stitched {
        if bytes == block.part_bytes() {
            segments.insert(address, segment(tagged, address, bytes, kind, vec![block.listed(bytes)]));
        }
    }
}

/// Addresses in a row that have memory behind them, and their blocks.
struct Part {
    address: u64,
    bytes: u64,
    blocks: Vec<Value>,
}

impl Part {
    fn new(address: u64) -> Self {
        Self { address, bytes: 0, blocks: Vec::new() }
    }

    fn add(&mut self, bytes: u64, block: Value) {
        self.bytes += bytes;
        self.blocks.push(block);
    }

    fn end(self, tagged: &Tagged, kind: &str, segments: &mut BTreeMap<u64, Value>) {
        if self.bytes > 0 {
            segments.insert(self.address, segment(tagged, self.address, self.bytes, kind, self.blocks));
        }
    }
}

fn free(address: u64, bytes: u64, state: &str) -> Value {
    json!({ "address": address, "bytes": bytes, "requested": 0, "stream": 0, "state": state })
}

fn segment(tagged: &Tagged, address: u64, bytes: u64, kind: &str, blocks: Vec<Value>) -> Value {
    json!({ "address": address, "bytes": bytes, "kind": kind, "tag": tagged.tag, "blocks": blocks })
}
