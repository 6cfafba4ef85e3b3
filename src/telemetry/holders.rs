//! The holders of a pool's memory, in metrics: its children, by name, and lines of code. Each has a bounded number of
//! names, those with most bytes; the rest is `other`.
#![allow(unreachable_pub, reason = "`figures!` makes public structs")]

use super::owner_figures::OwnerFigures;
use crate::figures;
use crate::figures::{FigureLabel::Each, Group};
use crate::heap::stats::PoolStats;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use vrampool_backend::Holder;

/// Most children, and most lines, with series of their own.
const MOST_NAMES: usize = 16;

/// The name of the rest.
const OTHER: &str = "other";

figures! {
    /// Memory of the children of one name. The sum over all names is the pool's live memory.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ChildStats("child_", Each("child")) {
        Gauge live_bytes: u64, "bytes",
            "Bytes of live buffers of the children of a name. `other`: of the pool itself, and of names beyond the 16 \
             with most bytes. Only of pools with children.";
        Gauge idle_bytes: u64, "bytes", "Idle bytes of the children of a name. `other`: as for live ones.";
        Gauge live_buffers: u64, "buffers", "Live buffers of the children of a name, as for bytes.";
        Cap limit_bytes: Option<u64>, "bytes", "The sum of the limits of the children of a name; unset if one of them has none, and of `other`.";
        Gauge share_bytes: u64, "bytes", "Bytes of the pool's limit that are the shares of the children of a name.";
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
    children: Vec<(String, PoolStats, u64)>,
    lines: &[Holder],
) {
    let of_name = |stats: &PoolStats, limit_bytes, share_bytes| {
        let PoolStats { live_bytes, idle_bytes, live_buffers, .. } = *stats;
        ChildStats { live_bytes, idle_bytes, live_buffers, limit_bytes, share_bytes }
    };
    let (mut own, mut names) = (of_name(stats, None, 0), BTreeMap::<String, ChildStats>::new());
    for (name, stats, share) in children {
        let more = of_name(&stats, stats.caps.limit_bytes, share);
        // The pool's figures were read at another moment.
        own.live_bytes = own.live_bytes.saturating_sub(more.live_bytes);
        own.idle_bytes = own.idle_bytes.saturating_sub(more.idle_bytes);
        own.live_buffers = own.live_buffers.saturating_sub(more.live_buffers);
        names
            .entry(name)
            .and_modify(|sum| {
                sum.merge(&more);
                sum.limit_bytes =
                    sum.limit_bytes.zip(more.limit_bytes).map(|(one, two)| one.saturating_add(two));
            })
            .or_insert(more);
    }
    add_bounded(to, names.into_iter().collect(), own, |of| of.live_bytes + of.idle_bytes);
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
