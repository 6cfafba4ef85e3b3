//! The holders of a pool's memory, in metrics: its children, by tag, and lines of code. Each has a bounded number of
//! names, those with most bytes; the rest is `other`.
#![allow(unreachable_pub, reason = "`figures!` makes public structs")]

use super::owner_figures::OwnerFigures;
use crate::figures;
use crate::figures::{FigureLabel::Each, Group};
use crate::heap::child_blocks::ChildFigures;
use crate::heap::stats::table::PoolStats;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use vrampool_backend::Holder;

/// Most tags, and most lines, with series of their own.
const MOST_NAMES: usize = 16;

/// The name of the rest.
const OTHER: &str = "other";

figures! {
    /// Memory of the children of one tag. The sum over all tags is the pool's live memory.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct TagStats("tag_", Each("tag")) {
        Gauge live_bytes: u64, "bytes",
            "Bytes of live buffers of the children with a tag. `other`: of the pool itself, and of tags beyond the 16 \
             with most bytes. Only of pools with children.";
        Gauge idle_bytes: u64, "bytes",
            "Bytes that the children with a tag keep idle; of the pool they are live.";
        Gauge live_buffers: u64, "buffers", "Live buffers of the children with a tag, as for bytes.";
        Cap limit_bytes: Option<u64>, "bytes", "The sum of the limits of the children with a tag; unset if one of them has none, and of `other`.";
        Gauge share_bytes: u64, "bytes", "Bytes of the pool's limit that are the shares of the children with a tag.";
    }
}

figures! {
    /// Live memory that one line of code requested.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SiteStats("site_", Each("site")) {
        Gauge live_bytes: u64, "bytes",
            "Bytes of live buffers that a line of code requested. `other`: of lines beyond the 16 with most bytes. Only \
             of pools with a hook that counts them (`CallSites`); one hook of several pools counts all of them.";
        Gauge live_buffers: u64, "buffers", "Live buffers that a line of code requested, as for bytes.";
    }
}

/// Adds the figures of all holders.
pub(super) fn add(
    to: &mut OwnerFigures,
    stats: &PoolStats,
    children: &BTreeMap<Box<str>, ChildFigures>,
    lines: &[Holder],
) {
    let mut own =
        TagStats { live_bytes: stats.live_bytes, live_buffers: stats.live_buffers, ..TagStats::default() };
    for child in children.values() {
        // The statistics are of an earlier moment.
        own.live_bytes = own.live_bytes.saturating_sub(child.live_bytes + child.idle_bytes);
        own.live_buffers = own.live_buffers.saturating_sub(child.live_buffers + child.idle_buffers);
    }
    let tags = children.iter().map(|(tag, child)| {
        let ChildFigures { live_bytes, idle_bytes, live_buffers, limit, share, .. } = *child;
        let (limit_bytes, share_bytes) = (limit, share);
        (tag.to_string(), TagStats { live_bytes, idle_bytes, live_buffers, limit_bytes, share_bytes })
    });
    add_bounded(to, tags.collect(), own, |tag| tag.live_bytes + tag.idle_bytes);
    let lines = lines.iter().map(|line| {
        let stats = SiteStats { live_bytes: line.bytes, live_buffers: line.buffers };
        (line.site.to_string(), stats)
    });
    add_bounded(to, lines.collect(), SiteStats::default(), |line| line.live_bytes);
}

/// Adds the figures of those names that have most bytes, and those of the others to the rest.
fn add_bounded<G: Group>(
    to: &mut OwnerFigures,
    mut all: Vec<(String, G)>,
    mut rest: G,
    bytes: impl Fn(&G) -> u64,
) {
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|(_, group)| Reverse(bytes(group)));
    for (place, (name, group)) in all.iter().enumerate() {
        if place < MOST_NAMES && name != OTHER {
            to.add(name, group);
        } else {
            rest.merge(group);
        }
    }
    to.add(OTHER, &rest);
}
