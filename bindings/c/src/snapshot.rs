//! What a pool has in memory, as JSON.

use crate::blocks;
use crate::memory::Memory;
use crate::pool::CPool;
use crate::private::{Id, Private};
use crate::tags::Tagged;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use vrampool::any::AnyDevice;
use vrampool::arena::SpanState;
use vrampool::internal;
use vrampool::settings::Effective;
use vrampool::{Backend, Pool, Source};

/// By address.
type Segments = BTreeMap<u64, Value>;

/// A live block, as it is listed.
struct Live {
    bytes: u64,
    requested: u64,
    stream: usize,
    state: &'static str,
    /// Where in an arena its memory is.
    parts: Vec<Range<u64>>,
    /// Its address, which is another one than that of its memory where it is stitched.
    at: u64,
    /// The private pool that it is of.
    pool: Option<Id>,
}

/// A part of a segment as PyTorch's interface has it: `vrampool_torch_span`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Span {
    /// Where its segment begins.
    pub segment: u64,
    /// Bytes of its segment.
    pub segment_bytes: u64,
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that were requested; 0 where it is not live.
    pub requested: u64,
    /// The stream that it was allocated for.
    pub stream: u64,
    /// The private pool that it is of: the first number.
    pub pool_first: u64,
    /// The second number; both are 0 without a private pool.
    pub pool_second: u64,
    /// 1 for a live block.
    pub is_live: u64,
    /// 1 where the memory of its segment is virtual.
    pub is_virtual: u64,
}

/// The live blocks of a pool, in no order, each a segment of its own.
pub(crate) fn live_spans(handle: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    blocks::each_of(handle, |address, held| {
        let Some(buffer) = held.memory.buffer() else { return };
        let bytes = buffer.capacity();
        let (pool_first, pool_second) = private_of(&held.memory).unwrap_or_default();
        spans.push(Span {
            segment: address,
            segment_bytes: bytes,
            address,
            bytes,
            requested: held.memory.requested(),
            stream: held.stream as u64,
            pool_first,
            pool_second,
            is_live: 1,
            is_virtual: 0,
        });
    });
    spans
}

fn private_of(memory: &Memory) -> Option<Id> {
    match memory {
        Memory::Captured(captured) => captured.home.listed_id(),
        _ => None,
    }
}

/// A span of a segment, from their text.
fn span_of(segment: &Value, block: &Value) -> Span {
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_default();
    let is_live = matches!(block["state"].as_str(), Some("live" | "private"));
    Span {
        segment: number(segment, "address"),
        segment_bytes: number(segment, "bytes"),
        address: number(block, "address"),
        bytes: number(block, "bytes"),
        requested: if is_live { number(block, "requested") } else { 0 },
        stream: number(block, "stream"),
        pool_first: block["private_pool"][0].as_u64().unwrap_or_default(),
        pool_second: block["private_pool"][1].as_u64().unwrap_or_default(),
        is_live: is_live.into(),
        is_virtual: (segment["kind"] == "virtual").into(),
    }
}

impl Live {
    /// The block, whose memory takes so many bytes.
    fn listed(&self, bytes: u64) -> Value {
        let mut listed = json!({
            "address": self.at, "bytes": bytes, "requested": self.requested.min(bytes), "stream": self.stream,
            "state": self.state, "block": self.at,
        });
        note_private(&mut listed, self.pool);
        listed
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
    /// All spans of all segments, in the order of their addresses.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let blocks = |segment: &Value| segment["blocks"].as_array().cloned().unwrap_or_default();
        let spans = |segment: &Value| {
            blocks(segment).into_iter().map(|block| span_of(segment, &block)).collect::<Vec<_>>()
        };
        self.segments().values().flat_map(spans).collect()
    }

    pub(crate) fn snapshot(&self) -> Value {
        let device = &self.home.device;
        let settings: BTreeMap<_, _> =
            self.tags().iter().map(|of| (of.tag.clone(), settings_of(&of.pool))).collect();
        json!({
            "version": 1,
            "pool": self.main.pool.name(),
            "device": device.properties().name,
            "backend": device.backend(),
            "source": self.main.pool.source().name(),
            "limit": self.limit(),
            "settings": settings,
            "segments": self.segments().into_values().collect::<Vec<_>>(),
        })
    }

    /// The segments by their addresses.
    fn segments(&self) -> Segments {
        // By the names of tags' pools, and private pools.
        let mut by_pool: HashMap<(String, usize), Vec<Live>> = HashMap::new();
        blocks::each_of(self.handle, |address, held| {
            let Some(buffer) = held.memory.buffer() else { return };
            let (state, private) = match &held.memory {
                Memory::Captured(captured) => ("private", Arc::as_ptr(&captured.home).addr()),
                _ => ("live", 0),
            };
            let live = Live {
                bytes: buffer.capacity(),
                requested: held.memory.requested(),
                stream: held.stream,
                state,
                parts: internal::parts(buffer),
                at: address,
                pool: private_of(&held.memory),
            };
            by_pool.entry((buffer.pool_name().to_owned(), private)).or_default().push(live);
        });
        let mut segments = Segments::new();
        for private in self.captures.all() {
            let own = &private.own;
            let key = (own.pool.name().to_owned(), Arc::as_ptr(&private).addr());
            let live = by_pool.remove(&key).unwrap_or_default();
            match own.pool.arena() {
                Some(arena) if arena.is_growing() => {
                    arena_segments(own, Some(&*private), &live, &mut segments)
                }
                // The tag's arena, which lists it.
                Some(_) => by_pool.entry((private.above.pool.name().to_owned(), 0)).or_default().extend(live),
                None => own_segments(own, &live, &mut segments),
            }
        }
        for tagged in self.tags() {
            let live = by_pool.remove(&(tagged.pool.name().to_owned(), 0)).unwrap_or_default();
            match tagged.pool.arena() {
                Some(_) => arena_segments(&tagged, None, &live, &mut segments),
                None => own_segments(&tagged, &live, &mut segments),
            }
        }
        segments
    }
}

/// Each setting of a pool as it was built, and its origin.
fn settings_of(pool: &Pool<AnyDevice>) -> BTreeMap<&'static str, Value> {
    let of_one = |of: &Effective| json!({ "value": of.text, "origin": of.origin.to_string() });
    pool.settings().iter().map(|of| (of.setting.name, of_one(of))).collect()
}

/// Each block is an allocation of its own.
fn own_segments(tagged: &Tagged, live: &[Live], segments: &mut Segments) {
    let kind = tagged.pool.source().name();
    for block in live {
        let listed = vec![block.listed(block.bytes)];
        segments.insert(block.at, segment(tagged, block.at, block.bytes, kind, listed));
    }
}

/// The parts of an arena's range that have memory behind them. The memory of a stitched block is listed at the block's
/// address, and not where its pieces are.
fn arena_segments(tagged: &Tagged, private: Option<&Private>, live: &[Live], segments: &mut Segments) {
    let Some((arena, base)) = tagged.pool.arena().and_then(|arena| Some((arena, arena.base()?))) else {
        return;
    };
    let kind = if tagged.pool.source() == Source::Virtual { "virtual" } else { "arena" };
    let owners: BTreeMap<u64, &Live> =
        live.iter().flat_map(|block| block.parts.iter().map(move |part| (part.start, block))).collect();
    // Bytes of stitched blocks that have memory behind them, by address.
    let mut stitched: BTreeMap<u64, (&Live, u64)> = BTreeMap::new();
    // A private pool keeps what is free in its arena.
    let (state, pending) = if private.is_some() { ("idle", Vec::new()) } else { ("free", arena.pending()) };
    let (spans, mapped, id) = (arena.blocks(), arena.mapped(), private.and_then(Private::listed_id));
    let mut spans = spans.iter().peekable();
    for run in mapped {
        let mut part = Part::new(base + run.start, base, &pending);
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
                        part = Part::new(address + bytes, base, &pending);
                    }
                    (Some(block), _) => part.add(bytes, block.listed(bytes)),
                    (None, SpanState::Free) => part.add(bytes, free(address, bytes, state, id)),
                    (None, _) => part.add(bytes, free(address, bytes, "idle", id)),
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

/// Addresses in a row that have memory behind them, their blocks, and the arena's pending frees.
struct Part<'a> {
    address: u64,
    bytes: u64,
    blocks: Vec<Value>,
    base: u64,
    pending: &'a [Range<u64>],
}

impl<'a> Part<'a> {
    fn new(address: u64, base: u64, pending: &'a [Range<u64>]) -> Self {
        Self { address, bytes: 0, blocks: Vec::new(), base, pending }
    }

    fn add(&mut self, bytes: u64, block: Value) {
        self.bytes += bytes;
        self.blocks.push(block);
    }

    fn end(self, tagged: &Tagged, kind: &str, segments: &mut Segments) {
        if self.bytes == 0 {
            return;
        }
        let end = self.address + self.bytes;
        let within = |of: &Range<u64>| {
            let (start, end) = ((self.base + of.start).max(self.address), (self.base + of.end).min(end));
            (start < end).then(|| json!({ "address": start, "bytes": end - start }))
        };
        let mut listed = segment(tagged, self.address, self.bytes, kind, self.blocks);
        listed["pending"] = self.pending.iter().filter_map(within).collect();
        segments.insert(self.address, listed);
    }
}

fn free(address: u64, bytes: u64, state: &str, id: Option<Id>) -> Value {
    let mut free = json!({ "address": address, "bytes": bytes, "requested": 0, "stream": 0, "state": state });
    note_private(&mut free, id);
    free
}

fn note_private(listed: &mut Value, id: Option<Id>) {
    if let Some((first, second)) = id {
        listed["private_pool"] = json!([first, second]);
    }
}

fn segment(tagged: &Tagged, address: u64, bytes: u64, kind: &str, blocks: Vec<Value>) -> Value {
    json!({ "address": address, "bytes": bytes, "kind": kind, "tag": tagged.tag, "blocks": blocks })
}
