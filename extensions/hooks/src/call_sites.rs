//! A profile of requests by source line.

use bytesize::ByteSize;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::panic::Location;
use vrampool::figures;
use vrampool::figures::{FigureLabel, Group};
use vrampool::hooks::{Holder, Hook, HookEvent, Outcome};

/// Counts the requests of each source line, and the driver's allocations for them: CuPy's `LineProfileHook`, to
/// the depth of one line. The line is the caller's of the pool; a function with `#[track_caller]` passes on its
/// own caller's.
///
/// Memory that was requested while the hook was not [entered](crate::Scoped), or before a
/// [`clear`](Self::clear), is not counted as live.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::{Backend, Pool, host::HostDevice};
/// use vrampool_hooks::CallSites;
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let sites = Arc::new(CallSites::new());
/// let pool = Pool::builder(&device).hook(Arc::clone(&sites)).build()?;
/// let _live = pool.allocate(1000, &stream)?;
/// let report = sites.report();
/// assert_eq!((report.rows().len(), report.total().live_bytes), (1, 1024));
/// println!("{report}"); // a row for each line of code
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[doc(alias = "LineProfileHook")]
pub struct CallSites {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sites: FxHashMap<&'static Location<'static>, CallSite>,
    /// The counted requests whose memory is live.
    live: FxHashSet<u64>,
}

figures! {
    /// Counts of one source line.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct CallSite("call_site_", FigureLabel::None) {
        Counter requests: u64, "requests", "Requests.";
        Counter failures: u64, "requests", "Failed requests.";
        Counter requested_bytes: u64, "bytes", "Requested bytes, without failed requests.";
        Counter used_bytes: u64, "bytes", "The same, rounded up.";
        Counter driver_allocations: u64, "allocations", "The driver's allocations for the requests.";
        Counter acquired_bytes: u64, "bytes", "Bytes of these allocations.";
        Gauge live_buffers: u64, "buffers", "Live buffers.";
        Gauge live_bytes: u64, "bytes", "Live bytes, rounded up.";
        Peak peak_bytes: u64, "bytes", "The most live bytes at once; in a total, the sum over the lines.";
        + others {
            /// The source location; `None` for a total.
            #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
            pub site: Option<&'static Location<'static>>,
        }
    }
}

/// The counts of [`CallSites`], as rows or as a table.
///
/// ```text
///       used   acquired       live       peak   requests   failures  site
///  192.0 KiB  128.0 KiB   64.0 KiB  128.0 KiB          3          0  all
///  128.0 KiB   64.0 KiB        0 B   64.0 KiB          2          0  src/main.rs:12:27
///   64.0 KiB   64.0 KiB   64.0 KiB   64.0 KiB          1          0  src/main.rs:15:22
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CallSiteReport {
    rows: Vec<CallSite>,
}

impl CallSite {
    fn holder(&self) -> Option<Holder> {
        let live = self.site.filter(|_| self.live_buffers > 0);
        live.map(|site| Holder::new(site, self.live_buffers, self.live_bytes))
    }
}

impl CallSites {
    /// Counts from zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn report(&self) -> CallSiteReport {
        let mut rows: Vec<_> = self.counts.lock().sites.values().copied().collect();
        rows.sort_unstable_by(|one, other| {
            let by_bytes = other.used_bytes.cmp(&one.used_bytes);
            by_bytes.then(other.requests.cmp(&one.requests)).then(one.site.cmp(&other.site))
        });
        CallSiteReport { rows }
    }

    /// Resets all counts.
    pub fn clear(&self) {
        *self.counts.lock() = Counts::default();
    }
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(
    site: &Option<&'static Location<'static>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&site.map(ToString::to_string), serializer)
}

impl Counts {
    fn of(&mut self, event: &HookEvent<'_>) -> &mut CallSite {
        let fresh = CallSite { site: Some(event.site), ..CallSite::default() };
        self.sites.entry(event.site).or_insert(fresh)
    }
}

impl Hook for CallSites {
    fn name(&self) -> &str {
        "call sites"
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        let mut counts = self.counts.lock();
        let site = counts.of(event);
        site.requests += 1;
        if event.outcome == Outcome::Failed {
            site.failures += 1;
            return;
        }
        site.requested_bytes = site.requested_bytes.saturating_add(event.requested_bytes);
        site.used_bytes = site.used_bytes.saturating_add(event.rounded_bytes);
        site.live_buffers += 1;
        site.live_bytes += event.rounded_bytes;
        site.peak_bytes = site.peak_bytes.max(site.live_bytes);
        counts.live.insert(event.id);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        if event.outcome == Outcome::Done {
            let mut counts = self.counts.lock();
            let site = counts.of(event);
            site.driver_allocations += 1;
            site.acquired_bytes = site.acquired_bytes.saturating_add(event.rounded_bytes);
        }
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        let mut counts = self.counts.lock();
        if counts.live.remove(&event.id) {
            let site = counts.of(event);
            site.live_buffers -= 1;
            site.live_bytes -= event.rounded_bytes;
        }
    }

    fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<_> = self.counts.lock().sites.values().filter_map(CallSite::holder).collect();
        holders.sort_unstable_by(|one, other| other.bytes.cmp(&one.bytes).then(one.site.cmp(other.site)));
        holders
    }
}

impl CallSiteReport {
    /// Returns a row for each source line, most used bytes first.
    #[must_use]
    pub fn rows(&self) -> &[CallSite] {
        &self.rows
    }

    /// Returns the sum of all rows.
    #[must_use]
    pub fn total(&self) -> CallSite {
        let mut total = CallSite::default();
        self.rows.iter().for_each(|row| total.merge(row));
        total
    }
}

impl fmt::Display for CallSiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["used", "acquired", "live", "peak", "requests", "failures"];
        heads.iter().try_for_each(|head| write!(f, "{head:>10} "))?;
        writeln!(f, " site")?;
        for row in std::iter::once(&self.total()).chain(&self.rows) {
            for bytes in [row.used_bytes, row.acquired_bytes, row.live_bytes, row.peak_bytes] {
                write!(f, "{:>10} ", ByteSize(bytes).to_string())?;
            }
            let site = row.site.map_or("all".into(), ToString::to_string);
            writeln!(f, "{:>10} {:>10}  {site}", row.requests, row.failures)?;
        }
        Ok(())
    }
}
