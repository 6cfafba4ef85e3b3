//! Sleep and wake of several arenas: all of them or none.

use crate::arena::{Falling, SleepArena, Waking};
use crate::error::Error;
use crate::offload::Offload;
use crate::progress::{self, OnProgress, Progress};
use crate::reports::{Clock, SleepReport};
use std::time::{Duration, Instant};
use vrampool::Backend;
use vrampool::backend::{fork, logging};
use vrampool::figures::Group;

impl<B: Backend> SleepArena<B> {
    /// Releases all physical memory to the device, and keeps the addresses. As [`sleep_all`], without a wait for
    /// regions.
    ///
    /// Waits on the host for all work that uses the blocks. Blocks stay live at their addresses, and
    /// [`wake`](Self::wake) restores them; with [`Offload::Discard`] their contents are undefined then. A second sleep
    /// does nothing and reports that.
    ///
    /// # Errors
    /// As [`DeviceArena::detach`](vrampool::arena::DeviceArena::detach), and [`Error::HostMemory`] if the host has no
    /// memory for the backup. The arena is then awake, with all contents. If the device fails again during the
    /// reversal, it is asleep with them.
    pub fn sleep(&self, offload: Offload) -> Result<SleepReport, Error> {
        sleep_all([(self, offload)], Duration::ZERO, &|_| ())
    }

    /// Takes physical memory for all live blocks at their addresses, and restores backed-up contents. As [`wake_all`].
    ///
    /// A second wake does nothing and reports that. Pinned memory of the backups is released after the call
    /// by a separate thread, because releasing many GiB takes longer than the copy.
    /// [`backup_bytes`](Self::backup_bytes) returns the bytes that remain.
    ///
    /// # Errors
    /// As [`DeviceArena::attach`](vrampool::arena::DeviceArena::attach). The arena is then asleep with all backups, and
    /// a later wake can succeed.
    pub fn wake(&self) -> Result<SleepReport, Error> {
        wake_all([self], &|_| ())
    }
}

/// Puts arenas to sleep, each with the treatment of its contents, after a wait of at most `timeout` for
/// regions of blocks to end. An arena that occurs twice counts once.
///
/// From the start of the wait on, new regions and allocations wait for the end of the sleep, so that they cannot put it
/// off. A thread that asks for another region while it has one therefore waits until the timeout; the sleep then fails.
///
/// Sleeping arenas are unchanged, with or without their contents. If all arenas are asleep this has no effect, and the
/// report says so.
///
/// `on_progress` is called on this thread, after each piece that is copied. Uses of blocks of these tags by
/// other threads wait meanwhile, so it must not wait for such a thread. Within it these tags are asleep, and a sleep or
/// a wake is [`Error::Busy`].
///
/// # Errors
/// As [`SleepArena::sleep`], also if a region still exists after `timeout`. Every arena is then unchanged.
pub fn sleep_all<'a, B: Backend>(
    arenas: impl IntoIterator<Item = (&'a SleepArena<B>, Offload)>,
    timeout: Duration,
    on_progress: OnProgress<'_>,
) -> Result<SleepReport, Error> {
    progress::check()?;
    // No wait in a browser, where no other thread could end a region meanwhile and there is no such clock.
    let timeout = if cfg!(target_family = "wasm") { Duration::ZERO } else { timeout };
    let end = (!timeout.is_zero()).then(Instant::now).and_then(|now| now.checked_add(timeout));
    let left = || end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
    let begin = Clock::start();
    let arenas = in_order(arenas, |(arena, _)| arena);
    // If one arena fails, all previous ones wake again: no memory is released before all are ready.
    let mut detached = Vec::new();
    for (arena, offload) in arenas {
        detached.extend(arena.begin_sleep(left())?.map(|arena| (arena, offload)));
    }
    let kept = detached.iter().filter(|(_, offload)| *offload != Offload::Discard);
    let progress = Progress::new(kept.map(|(arena, _)| arena.live()).sum(), on_progress);
    let falling = detached.into_iter().map(|(arena, offload)| arena.save(offload, &progress));
    let falling = falling.collect::<Result<Vec<_>, _>>()?;
    let mut report = SleepReport { no_op: falling.is_empty(), ..SleepReport::default() };
    falling.into_iter().map(Falling::commit).for_each(|of| report.merge(&of));
    let report = begin.stop(report);
    logging::info!("asleep: {report}");
    Ok(report)
}

/// Wakes arenas. If all are awake this has no effect, and the report says so. `on_progress` is as that of
/// [`sleep_all`].
///
/// # Errors
/// As [`SleepArena::wake`]. Every arena is then unchanged, and a later wake can succeed.
pub fn wake_all<'a, B: Backend>(
    arenas: impl IntoIterator<Item = &'a SleepArena<B>>,
    on_progress: OnProgress<'_>,
) -> Result<SleepReport, Error> {
    progress::check()?;
    fork::check()?;
    let begin = Clock::start();
    let arenas = in_order(arenas, |arena| arena);
    let progress = Progress::new(arenas.iter().map(|arena| arena.kept_bytes()).sum(), on_progress);
    // If one arena fails, all previous ones sleep again: no backup is released before all are ready.
    let mut waking = Vec::new();
    for arena in arenas {
        waking.extend(arena.begin_wake(&progress)?);
    }
    let mut report = SleepReport { no_op: waking.is_empty(), ..SleepReport::default() };
    waking.into_iter().map(Waking::commit).for_each(|of| report.merge(&of));
    let report = begin.stop(report);
    logging::info!("awake: {report}");
    Ok(report)
}

/// Arenas in one order for all threads, each once: a change holds the locks of all of them.
fn in_order<'a, T, B: Backend>(
    arenas: impl IntoIterator<Item = T>,
    arena: impl Fn(&T) -> &'a SleepArena<B>,
) -> Vec<T> {
    let mut arenas: Vec<_> = arenas.into_iter().collect();
    arenas.sort_by_key(|of| arena(of).rank());
    arenas.dedup_by_key(|of| arena(of).rank());
    arenas
}
