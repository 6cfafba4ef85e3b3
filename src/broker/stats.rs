//! Statistics of a broker and of its clients.

use super::ClientId;

/// Memory figures of a client, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientStats {
    /// The part of the device that it may hold.
    pub proportion: f64,
    /// The same in bytes.
    pub cap: u64,
    /// Bytes held, including rounding.
    pub held: u64,
    /// The most it held.
    pub peak_held: u64,
    /// Evictions of its memory.
    pub evictions: u64,
    /// Chunks of its group's runs that are done, since it is in that group or any before.
    pub chunks: u64,
    /// Requests that are queued.
    pub queued: usize,
}

/// A client, as [`Broker::clients`](super::Broker::clients) lists it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RegisteredClient {
    /// The client's id.
    pub id: ClientId,
    /// Its name, which others may have too.
    pub name: String,
    /// The group it is in.
    pub group: String,
    /// Its memory figures.
    pub stats: ClientStats,
}

/// What a broker has given out, in bytes, and what it did since it was made. Not one consistent snapshot:
/// accounts are read one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct BrokerStats {
    /// Clients that are registered.
    pub clients: usize,
    /// Device bytes that they hold, including rounding.
    pub held: u64,
    /// Idle bytes in the pool.
    pub idle: u64,
    /// Limit on the bytes that all clients hold; [`UNLIMITED`](crate::UNLIMITED) if unset.
    pub budget: u64,
    /// Bytes left to other programs.
    pub reserve: u64,
    /// Pinned blocks for copies.
    pub staging: u64,
    /// The most of them at a time.
    pub peak_staging: u64,
    /// Pinned bytes in use.
    pub pinned_live: u64,
    /// Pinned bytes that are kept for reuse.
    pub pinned_retained: u64,
    /// The most pinned bytes there may be.
    pub pinned_budget: u64,
    /// Bytes of the host's arrays that are in files.
    pub spilled: u64,
    /// Counters of operations.
    pub counts: BrokerCounts,
}

/// The figures of a broker that ended.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "for publishers"))]
pub(crate) struct LastFigures {
    pub(crate) stats: BrokerStats,
    /// The clients that deregistered last, with their counts.
    pub(crate) clients: Vec<RegisteredClient>,
}

/// Counters of a broker since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BrokerCounts {
    /// Commits that were granted, those that a run begins with included.
    pub commits_granted: u64,
    /// Commits that failed because not even one run fits, or the device has too little after all.
    pub commits_short: u64,
    /// Commits that failed otherwise: nothing was queued, say, or the group was running.
    pub commits_refused: u64,
    /// How often others took memory between the question what is free and the allocation, so that a commit
    /// tried again.
    pub retries: u64,
    /// Evictions of a client's memory.
    pub evictions: u64,
    /// Bytes of that.
    pub evicted_bytes: u64,
    /// Runs of plans that ended well.
    pub runs: u64,
    /// Runs of plans that failed after they began.
    pub failed_runs: u64,
    /// Chunks that are done.
    pub chunks: u64,
    /// Reductions of the chunk size during a run.
    pub shrinks: u64,
    /// Bytes copied to the device and from it.
    pub bytes_copied: u64,
    /// Waits of commits for other commits.
    pub turn_waits: u64,
    /// Waits of copies for a staging block.
    pub staging_waits: u64,
}

impl BrokerCounts {
    /// The same on top of what another had counted.
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
            bytes_copied: self.bytes_copied + before.bytes_copied,
            turn_waits: self.turn_waits + before.turn_waits,
            staging_waits: self.staging_waits + before.staging_waits,
        }
    }
}
