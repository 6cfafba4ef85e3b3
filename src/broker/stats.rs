//! Statistics of a broker and of its clients.

use super::ClientId;
use bytesize::ByteSize;
use std::fmt;

/// Memory figures of a client, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientStats {
    /// The part of the device that it may hold.
    pub proportion: f64,
    /// The same in bytes.
    pub cap_bytes: u64,
    /// Bytes held, including rounding.
    pub held_bytes: u64,
    /// The highest value of `held`.
    pub peak_held_bytes: u64,
    /// Evictions of its memory.
    pub evictions: u64,
    /// Completed chunks of its groups' runs.
    pub chunks: u64,
    /// Queued requests.
    pub queued: usize,
}

/// Sums of the clients' shares, as parts of the device from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ShareSums {
    /// The sum of fixed shares.
    pub fixed: f64,
    /// The part that fixed shares leave to automatic clients.
    pub automatic: f64,
}

/// A client, as [`Broker::clients`](super::Broker::clients) lists it.
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

/// Bytes granted by a broker, and its counters. Not one consistent snapshot: accounts are read one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct BrokerStats {
    /// Registered clients.
    pub clients: usize,
    /// Device bytes that clients hold, including rounding.
    pub held_bytes: u64,
    /// Idle bytes in the pool.
    pub idle_bytes: u64,
    /// Limit on the bytes that all clients hold; `None` if there is none.
    pub budget_bytes: Option<u64>,
    /// Bytes left to other programs.
    pub reserve_bytes: u64,
    /// Bytes of pinned blocks for copies.
    pub staging_bytes: u64,
    /// The highest value of `staging`.
    pub peak_staging_bytes: u64,
    /// Pinned bytes in use.
    pub pinned_live_bytes: u64,
    /// Pinned bytes kept for reuse.
    pub pinned_retained_bytes: u64,
    /// Limit on pinned bytes.
    pub pinned_budget_bytes: u64,
    /// Bytes of host arrays in files.
    pub spilled_bytes: u64,
    /// Counters of operations.
    pub counts: BrokerCounts,
}

/// Figures of a broker that has ended.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "for publishers"))]
pub(crate) struct LastFigures {
    pub(crate) stats: BrokerStats,
    /// The most recently deregistered clients with their counters.
    pub(crate) clients: Vec<RegisteredClient>,
}

/// Counters of a broker since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BrokerCounts {
    /// Granted commits, including those at the start of runs.
    pub commits_granted: u64,
    /// Commits that failed because not even one run fits, or the device has too little memory after all.
    pub commits_short: u64,
    /// Commits that failed for other reasons, such as an empty queue or a running group.
    pub commits_refused: u64,
    /// Retries of commits because others took memory between the query of free memory and the allocation.
    pub retries: u64,
    /// Evictions of a client's memory.
    pub evictions: u64,
    /// Bytes of evicted memory.
    pub evicted_bytes: u64,
    /// Successful runs of plans.
    pub runs: u64,
    /// Runs of plans that failed after their start.
    pub failed_runs: u64,
    /// Completed chunks.
    pub chunks: u64,
    /// Reductions of the chunk size during a run.
    pub shrinks: u64,
    /// Bytes copied to and from the device.
    pub copied_bytes: u64,
    /// Waits of commits for other commits.
    pub turn_waits: u64,
    /// Waits of copies for a staging block.
    pub staging_waits: u64,
}

impl fmt::Display for ClientStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [held, cap, peak] = [self.held_bytes, self.cap_bytes, self.peak_held_bytes].map(ByteSize);
        let Self { evictions, chunks, queued, .. } = self;
        write!(f, "held {held} of {cap} ({:.1} % of the device), peak {peak}, ", 100.0 * self.proportion)?;
        write!(f, "evictions {evictions}, chunks {chunks}, queued {queued}")
    }
}

impl fmt::Display for RegisteredClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, group {}: {}", self.id, self.name, self.group, self.stats)
    }
}

impl fmt::Display for BrokerStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [held, idle, reserve, staging] =
            [self.held_bytes, self.idle_bytes, self.reserve_bytes, self.staging_bytes].map(ByteSize);
        write!(f, "clients {}, held {held}, ", self.clients)?;
        match self.budget_bytes {
            None => f.write_str("no budget, ")?,
            Some(budget) => write!(f, "budget {}, ", ByteSize(budget))?,
        }
        write!(f, "idle {idle}, reserve {reserve}, staging {staging}, ")?;
        let [live, retained, spilled] =
            [self.pinned_live_bytes, self.pinned_retained_bytes, self.spilled_bytes].map(ByteSize);
        write!(f, "pinned {live} live and {retained} retained, spilled {spilled}; {}", self.counts)
    }
}

impl fmt::Display for BrokerCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits_granted, commits_short, commits_refused, runs, failed_runs, .. } = self;
        write!(f, "commits granted {commits_granted}, short {commits_short}, refused {commits_refused}, ")?;
        write!(f, "runs {runs}, failed runs {failed_runs}, chunks {}, ", self.chunks)?;
        write!(f, "evictions {}, copied {}", self.evictions, ByteSize(self.copied_bytes))
    }
}

impl BrokerCounts {
    /// Returns the sum of these counters and earlier ones.
    #[cfg(feature = "metrics")]
    pub(crate) fn counting_on(&self, before: &Self) -> Self {
        Self {
            commits_granted: self.commits_granted + before.commits_granted,
            commits_short: self.commits_short + before.commits_short,
            commits_refused: self.commits_refused + before.commits_refused,
            retries: self.retries + before.retries,
            evictions: self.evictions + before.evictions,
            evicted_bytes: self.evicted_bytes + before.evicted_bytes,
            runs: self.runs + before.runs,
            failed_runs: self.failed_runs + before.failed_runs,
            chunks: self.chunks + before.chunks,
            shrinks: self.shrinks + before.shrinks,
            copied_bytes: self.copied_bytes + before.copied_bytes,
            turn_waits: self.turn_waits + before.turn_waits,
            staging_waits: self.staging_waits + before.staging_waits,
        }
    }
}
