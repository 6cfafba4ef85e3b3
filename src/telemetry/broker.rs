//! What a broker exports: its shares, what is held of them, and what was done under pressure.

use super::facade;
use super::metric::MetricKind::{Counter, Gauge};
use super::metric::{Metric, metric};
use super::published::{Closing, Observed, Watch};
use super::sample::{Figures, Sample};
use super::series::Series;
use crate::broker::{Broker, BrokerCounts, BrokerStats, ClientId, LastFigures, RegisteredClient, WeakBroker};
use std::collections::BTreeMap;
use vrampool_backend::Backend;

/// Every metric that a broker exports. Clients of one name are one series: what they have together.
///
/// ```
/// assert!(vrampool::telemetry::BROKER_METRICS.iter().all(|metric| metric.name.starts_with("vrampool_broker_")));
/// ```
pub const BROKER_METRICS: &[Metric] = &[
    metric("vrampool_broker_clients", Gauge, &[], "Registered clients."),
    metric("vrampool_broker_held_bytes", Gauge, &[], "Device bytes that clients hold."),
    metric("vrampool_broker_idle_bytes", Gauge, &[], "Idle device bytes in the pool."),
    metric(
        "vrampool_broker_budget_bytes",
        Gauge,
        &[],
        "The cap on device bytes that clients hold; +Inf if unlimited.",
    ),
    metric("vrampool_broker_reserve_bytes", Gauge, &[], "Device bytes left to other programs."),
    metric("vrampool_broker_staging_bytes", Gauge, &[], "Bytes of pinned blocks for staged copies."),
    metric("vrampool_broker_peak_staging_bytes", Gauge, &[], "Peak of vrampool_broker_staging_bytes."),
    metric("vrampool_broker_pinned_bytes", Gauge, &["state"], "Pinned bytes, by state: in use or cached."),
    metric("vrampool_broker_pinned_limit_bytes", Gauge, &[], "The cap on vrampool_broker_pinned_bytes."),
    metric("vrampool_broker_spilled_bytes", Gauge, &[], "Bytes of host arrays in files."),
    metric("vrampool_broker_commits_total", Counter, &["outcome"], "Commits, by outcome."),
    metric(
        "vrampool_broker_commit_retries_total",
        Counter,
        &[],
        "Retries of commits because other programs took memory during allocation.",
    ),
    metric("vrampool_broker_evictions_total", Counter, &[], "Evictions of a client's memory."),
    metric("vrampool_broker_evicted_bytes_total", Counter, &[], "Bytes evicted from clients."),
    metric("vrampool_broker_runs_total", Counter, &["outcome"], "Runs of plans, by outcome."),
    metric("vrampool_broker_chunks_total", Counter, &[], "Completed chunks of runs."),
    metric(
        "vrampool_broker_shrinks_total",
        Counter,
        &[],
        "Reductions of the chunk size during a run because other clients or programs needed memory.",
    ),
    metric("vrampool_broker_copied_bytes_total", Counter, &[], "Bytes copied to and from the device."),
    metric(
        "vrampool_broker_waits_total",
        Counter,
        &["waited_for"],
        "Waits of commits for their turn, and of copies for a staging block.",
    ),
    metric(
        "vrampool_broker_client_share_bytes",
        Gauge,
        &["client"],
        "Device bytes that the client may hold.",
    ),
    metric("vrampool_broker_client_held_bytes", Gauge, &["client"], "Device bytes that the client holds."),
    metric(
        "vrampool_broker_client_peak_held_bytes",
        Gauge,
        &["client"],
        "Peak of vrampool_broker_client_held_bytes.",
    ),
    metric(
        "vrampool_broker_client_queued_requests",
        Gauge,
        &["client"],
        "Requests that are queued for a commit.",
    ),
    metric(
        "vrampool_broker_client_evictions_total",
        Counter,
        &["client"],
        "Evictions of the client's memory.",
    ),
    metric(
        "vrampool_broker_client_chunks_total",
        Counter,
        &["client"],
        "Completed chunks of runs of the client's group.",
    ),
];

/// Copies a broker's statistics to the current recorder, once, as [`publish`](super::publish) does a pool's.
/// Its pool is a pool like any, and is published as one.
///
/// ```
/// # use vrampool::{broker::Broker, host::HostDevice};
/// # fn main() -> Result<(), vrampool::broker::BrokerError> {
/// # let broker = Broker::builder(&HostDevice::new()).build()?;
/// vrampool::telemetry::describe();
/// vrampool::telemetry::publish_broker(&broker); // from the application's own timer, say
/// vrampool::telemetry::publish(&broker.pool());
/// # Ok(())
/// # }
/// ```
pub fn publish_broker<B: Backend>(broker: &Broker<B>) {
    let series = Series::of_broker(broker);
    BrokerFigures::of(broker, &mut ClientTallies::default())
        .samples(&mut |sample| facade::tell(&series, sample));
}

/// What all clients of a name have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    share: u64,
    held: u64,
    peak: u64,
    queued: u64,
    counted: Counted,
}

/// What only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    evictions: u64,
    chunks: u64,
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.evictions += other.evictions;
        self.chunks += other.chunks;
    }
}

/// How many names of clients that are gone are remembered. Beyond that all are forgotten: their series end.
const MOST_GONE_CLIENTS: usize = 1024;

/// Clients by name, those that are gone included: a counter never falls, so what they counted stays, as long
/// as the broker is there.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientTallies {
    gone: BTreeMap<String, Counted>,
    seen: BTreeMap<ClientId, (String, Counted)>,
}

impl ClientTallies {
    /// What is to be published of `clients` and of those that were seen before and are gone. One that came
    /// and went since the last time was not seen.
    pub(super) fn take_in(&mut self, clients: &[RegisteredClient]) -> BTreeMap<String, Tally> {
        let seen = clients.iter().map(|client| {
            let counted = Counted { evictions: client.stats.evictions, chunks: client.stats.chunks };
            (client.id, (client.name.clone(), counted))
        });
        for (id, (name, counted)) in std::mem::replace(&mut self.seen, seen.collect()) {
            if !self.seen.contains_key(&id) {
                self.gone.entry(name).or_default().add(counted);
            }
        }
        if self.gone.len() > MOST_GONE_CLIENTS {
            self.gone.clear();
        }
        let gone =
            self.gone.iter().map(|(name, &counted)| (name.clone(), Tally { counted, ..Tally::default() }));
        let mut tallies: BTreeMap<_, _> = gone.collect();
        for RegisteredClient { id, name, stats, .. } in clients {
            let tally = tallies.entry(name.clone()).or_default();
            tally.share = tally.share.saturating_add(stats.cap_bytes);
            tally.held += stats.held_bytes;
            tally.peak += stats.peak_held_bytes;
            tally.queued += stats.queued as u64;
            if let Some((_, counted)) = self.seen.get(id) {
                tally.counted.add(*counted);
            }
        }
        tallies
    }
}

/// A broker's statistics, and those of its clients by name.
#[derive(Debug, Clone)]
pub(super) struct BrokerFigures {
    stats: BrokerStats,
    clients: BTreeMap<String, Tally>,
}

impl BrokerFigures {
    fn of<B: Backend>(broker: &Broker<B>, clients: &mut ClientTallies) -> Self {
        Self { stats: broker.stats(), clients: clients.take_in(&broker.listed_clients()) }
    }
}

/// A broker of any backend, not kept alive.
pub(super) struct WatchedBroker<B: Backend> {
    broker: WeakBroker<B>,
    clients: ClientTallies,
}

impl<B: Backend> WatchedBroker<B> {
    pub(super) fn new(broker: &Broker<B>) -> Self {
        Self { broker: broker.downgrade(), clients: ClientTallies::default() }
    }
}

impl<B: Backend> Watch<BrokerFigures> for WatchedBroker<B> {
    fn observe(&mut self) -> Observed<BrokerFigures> {
        if let Some(broker) = self.broker.upgrade() {
            let figures = BrokerFigures::of(&broker, &mut self.clients);
            return Observed::There(figures, broker.into_last().map(|last| Box::new(last) as Closing));
        }
        // In this order: a broker writes its last figures before it lets go of them.
        let is_final = self.broker.is_final();
        match self.broker.last() {
            Some(LastFigures { stats, clients }) => {
                let clients = self.clients.take_in(clients);
                Observed::Gone(Some(BrokerFigures { stats: stats.clone(), clients }))
            }
            None if is_final => Observed::Gone(None),
            None => Observed::Ending,
        }
    }

    fn is_there(&self) -> bool {
        self.broker.is_there()
    }

    fn place(&self) -> usize {
        self.broker.place()
    }
}

impl Figures for BrokerFigures {
    fn counting_on(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        sum.stats.counts = sum.stats.counts.counting_on(&before.stats.counts);
        for (name, earlier) in &before.clients {
            sum.clients.entry(name.clone()).or_default().counted.add(earlier.counted);
        }
        sum
    }

    fn closed(&self) -> Self {
        let BrokerStats {
            counts, budget_bytes, reserve_bytes, peak_staging_bytes, pinned_budget_bytes, ..
        } = self.stats;
        let stats = BrokerStats {
            counts,
            budget_bytes,
            reserve_bytes,
            peak_staging_bytes,
            pinned_budget_bytes,
            ..BrokerStats::default()
        };
        let counted = |tally: &Tally| Tally { counted: tally.counted, ..Tally::default() };
        let clients = self.clients.iter().map(|(name, tally)| (name.clone(), counted(tally))).collect();
        Self { stats, clients }
    }

    fn samples(&self, to: &mut dyn FnMut(Sample<'_>)) {
        let Self { stats, clients } = self;
        for (name, value) in [
            ("vrampool_broker_clients", stats.clients as u64),
            ("vrampool_broker_held_bytes", stats.held_bytes),
            ("vrampool_broker_idle_bytes", stats.idle_bytes),
            ("vrampool_broker_reserve_bytes", stats.reserve_bytes),
            ("vrampool_broker_staging_bytes", stats.staging_bytes),
            ("vrampool_broker_peak_staging_bytes", stats.peak_staging_bytes),
            ("vrampool_broker_pinned_limit_bytes", stats.pinned_budget_bytes),
            ("vrampool_broker_spilled_bytes", stats.spilled_bytes),
        ] {
            to(Sample::gauge(name, value as f64));
        }
        let budget = stats.budget_bytes.map_or(f64::INFINITY, |budget| budget as f64);
        to(Sample::gauge("vrampool_broker_budget_bytes", budget));
        for (state, bytes) in [("live", stats.pinned_live_bytes), ("retained", stats.pinned_retained_bytes)] {
            to(Sample::gauge("vrampool_broker_pinned_bytes", bytes as f64).with("state", state));
        }
        counters(stats.counts, to);
        clients.iter().for_each(|(client, tally)| tally.samples(client, to));
    }
}

fn counters(counts: BrokerCounts, to: &mut dyn FnMut(Sample<'_>)) {
    let BrokerCounts {
        commits_granted,
        commits_short,
        commits_refused,
        retries,
        evictions,
        evicted_bytes,
        runs,
        failed_runs,
        chunks,
        shrinks,
        copied_bytes,
        turn_waits,
        staging_waits,
    } = counts;
    for (name, value) in [
        ("vrampool_broker_commit_retries_total", retries),
        ("vrampool_broker_evictions_total", evictions),
        ("vrampool_broker_evicted_bytes_total", evicted_bytes),
        ("vrampool_broker_chunks_total", chunks),
        ("vrampool_broker_shrinks_total", shrinks),
        ("vrampool_broker_copied_bytes_total", copied_bytes),
    ] {
        to(Sample::count(name, value));
    }
    for (name, key, of, value) in [
        ("vrampool_broker_commits_total", "outcome", "granted", commits_granted),
        ("vrampool_broker_commits_total", "outcome", "short", commits_short),
        ("vrampool_broker_commits_total", "outcome", "refused", commits_refused),
        ("vrampool_broker_runs_total", "outcome", "done", runs),
        ("vrampool_broker_runs_total", "outcome", "failed", failed_runs),
        ("vrampool_broker_waits_total", "waited_for", "turn", turn_waits),
        ("vrampool_broker_waits_total", "waited_for", "staging", staging_waits),
    ] {
        to(Sample::count(name, value).with(key, of));
    }
}

impl Tally {
    fn samples(&self, client: &str, to: &mut dyn FnMut(Sample<'_>)) {
        for (name, value) in [
            ("vrampool_broker_client_share_bytes", self.share),
            ("vrampool_broker_client_held_bytes", self.held),
            ("vrampool_broker_client_peak_held_bytes", self.peak),
            ("vrampool_broker_client_queued_requests", self.queued),
        ] {
            to(Sample::gauge(name, value as f64).with("client", client));
        }
        let Counted { evictions, chunks } = self.counted;
        to(Sample::count("vrampool_broker_client_evictions_total", evictions).with("client", client));
        to(Sample::count("vrampool_broker_client_chunks_total", chunks).with("client", client));
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::broker::Client;
    use crate::host::HostDevice;

    #[test]
    fn names_of_clients_that_come_and_go_are_bounded() {
        let broker = Broker::builder(&HostDevice::new()).build().expect("a broker");
        let _weak = broker.downgrade();
        let mut tallies = ClientTallies::default();
        for round in 0..10 {
            for number in 0..200 {
                drop(broker.register(Client::new(format!("{round}-{number}"))).expect("a client"));
            }
            let listed = broker.listed_clients();
            let told = tallies.take_in(&listed);
            assert!(
                listed.iter().all(|client| told.contains_key(&client.name)),
                "those that are listed are told"
            );
            assert!(tallies.gone.len() <= MOST_GONE_CLIENTS && tallies.seen.len() <= listed.len());
        }
    }
}
