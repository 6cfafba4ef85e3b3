//! What a pool has in memory, as JSON.

use crate::blocks::{self, Loan};
use crate::pool::{CPool, Tagged};
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
    /// So many bytes of it, whose memory is there.
    fn listed(&self, address: u64, bytes: u64, requested: u64) -> Value {
        json!({
            "address": address, "bytes": bytes, "requested": requested, "stream": self.stream, "state": self.state,
            "block": self.at,
        })
    }
}

impl CPool {
    pub(crate) fn snapshot(&self) -> Value {
        let mut by_tag: HashMap<String, Vec<Live>> = HashMap::new();
        blocks::each_of(self.handle, |address, held| {
            let Some(buffer) = held.loan.buffer() else { return };
            let state = if matches!(held.loan, Loan::Captured(_)) { "private" } else { "live" };
            let live = Live {
                bytes: buffer.capacity(),
                requested: held.loan.requested(),
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
        let listed = vec![block.listed(block.at, block.bytes, block.requested)];
        segments.insert(block.at, segment(tagged, block.at, block.bytes, kind, listed));
    }
}

/// The parts of an arena's range that have memory behind them. A stitched block is listed where its memory
/// is: one block for each of its parts.
fn arena_segments(tagged: &Tagged, live: &[Live], segments: &mut BTreeMap<u64, Value>) {
    let Some((arena, base)) = tagged.pool.arena().and_then(|arena| Some((arena, arena.base()?))) else {
        return;
    };
    let kind = if tagged.pool.source() == Source::Virtual { "virtual" } else { "arena" };
    let owners: BTreeMap<u64, (&Live, usize)> = live
        .iter()
        .flat_map(|block| {
            block.parts.iter().enumerate().map(move |(number, part)| (part.start, (block, number)))
        })
        .collect();
    let (spans, mapped) = (arena.blocks(), arena.mapped());
    let mut spans = spans.iter().peekable();
    for run in mapped {
        let mut listed = Vec::new();
        while let Some(span) = spans.peek() {
            if span.offset >= run.end {
                break;
            }
            let end = (span.offset + span.bytes).min(run.end);
            let start = span.offset.max(run.start);
            if start < end {
                let (address, bytes) = (base + start, end - start);
                listed.push(match (owners.get(&span.offset), span.state) {
                    (Some((block, number)), _) => {
                        let before: u64 =
                            block.parts[..*number].iter().map(|part| part.end - part.start).sum();
                        block.listed(address, bytes, block.requested.saturating_sub(before).min(bytes))
                    }
                    (None, SpanState::Free) => free(address, bytes, "free"),
                    (None, _) => free(address, bytes, "idle"),
                });
            }
            if span.offset + span.bytes > run.end {
                break;
            }
            spans.next();
        }
        let (address, bytes) = (base + run.start, run.end - run.start);
        segments.insert(address, segment(tagged, address, bytes, kind, listed));
    }
}

fn free(address: u64, bytes: u64, state: &str) -> Value {
    json!({ "address": address, "bytes": bytes, "requested": 0, "stream": 0, "state": state })
}

fn segment(tagged: &Tagged, address: u64, bytes: u64, kind: &str, blocks: Vec<Value>) -> Value {
    json!({ "address": address, "bytes": bytes, "kind": kind, "tag": tagged.tag, "blocks": blocks })
}
