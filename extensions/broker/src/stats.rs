//! Statistics of a broker and of its clients.

use crate::id::ClientId;
use std::collections::BTreeMap;
use vrampool::figures;
use vrampool::figures::FigureLabel::{Each, None as Plain};

figures! {
    /// Memory figures of a client, bytes.
    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct ClientStats("broker_client_", Each("client")) {
        Setting proportion: f64, "", "The part of the device that the client may hold, 0 to 1.";
        Gauge cap_bytes: u64, "bytes", "Device bytes that the client may hold.";
        Gauge held_bytes: u64, "bytes", "Device bytes that the client holds, including rounding.";
        Gauge peak_held_bytes: u64, "bytes", "The highest held bytes of the client.";
        Counter evictions: u64, "times", "Evictions of the client's memory.";
        Counter chunks: u64, "chunks", "Completed chunks of runs of the client's groups.";
        Gauge queued: usize, "requests", "Requests that are queued for a commit.";
    }
}

/// A client, as [`Broker::clients`](crate::Broker::clients) lists it.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RegisteredClient {
    /// The client's id.
    pub id: ClientId,
    /// Its name, not necessarily unique.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its memory figures.
    pub stats: ClientStats,
}

figures! {
    /// Bytes granted by a broker, and its counters. Not one consistent snapshot: accounts are read one by one.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[must_use]
    pub struct BrokerStats("broker_", Plain) {
        Gauge clients: usize, "clients", "Registered clients.";
        Gauge held_bytes: u64, "bytes", "Device bytes that clients hold, including rounding.";
        Gauge idle_bytes: u64, "bytes", "Idle device bytes in the pool.";
        Cap budget_bytes: Option<u64>, "bytes", "The cap on device bytes that all clients hold.";
        Constant reserve_bytes: u64, "bytes", "Device bytes left to other programs.";
        Gauge staging_bytes: u64, "bytes", "Bytes of pinned blocks for staged copies.";
        Peak peak_staging_bytes: u64, "bytes", "The highest staging bytes.";
        Gauge pinned_live_bytes: u64, "bytes", "Pinned bytes in use.";
        Gauge pinned_retained_bytes: u64, "bytes", "Pinned bytes kept for reuse.";
        Constant pinned_budget_bytes: u64, "bytes", "The cap on pinned bytes.";
        Gauge spilled_bytes: u64, "bytes", "Bytes of host arrays in files.";
        + groups {
            "Counters of operations." counts: BrokerCounts;
        }
    }
}

/// Figures of a broker that has ended.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "for publishers"))]
pub(crate) struct LastFigures {
    pub(crate) stats: BrokerStats,
    pub(crate) clients: BTreeMap<String, ClientStats>,
}

figures! {
    /// Counters of a broker since its creation.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct BrokerCounts("broker_", Plain) {
        Counter commits_granted: u64, "commits", "Granted commits, including those at the start of runs.";
        Counter commits_short: u64, "commits",
            "Commits that failed because not even one run fits, or the device has too little memory after all.";
        Counter commits_refused: u64, "commits",
            "Commits that failed for other reasons, such as an empty queue or a running group.";
        Counter retries: u64, "times",
            "Retries of commits because others took memory between the query of free memory and the allocation.";
        Counter evictions: u64, "times", "Evictions of a client's memory.";
        Counter evicted_bytes: u64, "bytes", "Bytes evicted from clients.";
        Counter runs: u64, "runs", "Successful runs of plans.";
        Counter failed_runs: u64, "runs", "Runs of plans that failed after their start.";
        Counter chunks: u64, "chunks", "Completed chunks of runs.";
        Counter shrinks: u64, "times",
            "Reductions of the chunk size during a run, because other clients or programs needed memory.";
        Counter copied_bytes: u64, "bytes", "Bytes copied to and from the device.";
        Counter turn_waits: u64, "waits", "Waits of commits for other commits.";
        Counter staging_waits: u64, "waits", "Waits of copies for a staging block.";
    }
}
