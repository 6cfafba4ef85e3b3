//! Figures, caps and metrics.

use crate::boundary::{self, Out, Text, guard};
use crate::failure::{Failure, Status};
use crate::figures::Stats;
use crate::{metrics, registry};
use std::ffi::c_char;
use vrampool::Backend;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_get_stats(pool: u64, stats: Out<'_, Stats>) -> Status {
    guard(|| {
        stats.size("stats")?;
        let of = registry::with(pool, |pool| Ok(pool.stats()))?;
        stats.set_versioned(of, "stats")
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_get_stats_json(pool: u64, json: Out<'_, *mut c_char>) -> Status {
    guard(|| {
        json.check("json")?;
        let stats = registry::get(pool)?.stats_json();
        json.set(boundary::give_text(stats.to_string()));
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_reset_peaks(pool: u64) -> Status {
    guard(|| {
        registry::get(pool)?.tags().iter().for_each(|tagged| tagged.pool.reset_peaks());
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_trim(pool: u64, cached_bytes: u64, given_back: Out<'_, u64>) -> Status {
    guard(|| {
        given_back.set(registry::get(pool)?.trim(cached_bytes));
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_decay(pool: u64, given_back: Out<'_, u64>) -> Status {
    guard(|| {
        let pool = registry::get(pool)?;
        let awake = pool.tags().into_iter().filter(|tagged| !tagged.is_asleep());
        let decayed =
            awake.into_iter().try_fold(0, |sum, tagged| Ok::<_, Failure>(sum + tagged.pool.decay()?))?;
        given_back.set(decayed);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_get_limit(pool: u64, bytes: Out<'_, u64>) -> Status {
    guard(|| {
        bytes.check("bytes")?;
        bytes.set(registry::with(pool, |pool| Ok(pool.limit()))?);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_set_limit(pool: u64, bytes: u64) -> Status {
    guard(|| registry::get(pool)?.set_limit(bytes))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_memory_info(
    pool: u64,
    free_bytes: Out<'_, u64>,
    total_bytes: Out<'_, u64>,
) -> Status {
    guard(|| {
        let info = registry::home_of(pool)?.device.memory_info()?;
        free_bytes.set(info.free_bytes);
        total_bytes.set(info.total_bytes);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_snapshot(pool: u64, json: Out<'_, *mut c_char>) -> Status {
    guard(|| {
        json.check("json")?;
        let snapshot = registry::get(pool)?.snapshot();
        json.set(boundary::give_text(snapshot.to_string()));
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_start_metrics(address: Text<'_>) -> Status {
    guard(|| metrics::start(address.optional("address")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_stop_metrics() -> Status {
    guard(|| {
        metrics::stop();
        Ok(())
    })
}
