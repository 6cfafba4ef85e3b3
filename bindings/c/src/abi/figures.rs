//! Figures, caps and metrics.

use crate::boundary::{self, Out, Text, exports, guard_anywhere};
use crate::failure::{Failure, Status};
use crate::figures::Stats;
use crate::{broker, metrics, registry, segment_place};
use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use vrampool::Backend;

exports! {
    fn vrampool_get_stats(pool: u64, stats: Out<'_, Stats>) {
        stats.answer_known("stats", || registry::with(pool, |pool| Ok(pool.stats())))
    }

    fn vrampool_get_stats_json(pool: u64, json: Out<'_, *mut c_char>) {
        json.answer("json", || Ok(boundary::give_text(registry::get(pool)?.stats_json().to_string())))
    }

    fn vrampool_reset_peaks(pool: u64) {
        registry::get(pool)?.tags().iter().for_each(|tagged| tagged.pool.reset_peaks());
        Ok(())
    }

    fn vrampool_trim(pool: u64, cached_bytes: u64, released: Out<'_, u64>) {
        released.set(registry::get(pool)?.trim(cached_bytes));
        Ok(())
    }

    fn vrampool_decay(pool: u64, released: Out<'_, u64>) {
        let pool = registry::get(pool)?;
        let awake = pool.tags().into_iter().filter(|tagged| !tagged.is_asleep());
        let (mut decayed, mut failed) = (0, None);
        for tagged in awake {
            match tagged.pool.decay() {
                Ok(bytes) => decayed += bytes,
                Err(error) => {
                    log::warn!("tag {}: unused memory was not released: {error}", tagged.tag);
                    failed = Some(Failure::from(error));
                }
            }
        }
        // An error says that nothing was released.
        match failed.filter(|_| decayed == 0) {
            Some(failure) => return Err(failure),
            None => released.set(decayed),
        }
        Ok(())
    }

    fn vrampool_get_limit(pool: u64, bytes: Out<'_, u64>) {
        bytes.answer("bytes", || registry::with(pool, |pool| Ok(pool.limit())))
    }

    fn vrampool_set_limit(pool: u64, bytes: u64) {
        registry::get(pool)?.set_limit(bytes)
    }

    fn vrampool_memory_info(pool: u64, free_bytes: Out<'_, u64>, total_bytes: Out<'_, u64>) {
        let info = registry::get(pool)?.home.device.memory_info()?;
        free_bytes.set(info.free_bytes);
        total_bytes.set(info.total_bytes);
        Ok(())
    }

    fn vrampool_pool_backend(pool: u64, name: Out<'_, *const c_char>) {
        name.answer("name", || {
            let home = registry::home_of(pool)?;
            let known = [c"host", c"cuda", c"opencl", c"wgpu"];
            let backend = home.device.properties().backend.as_bytes();
            let known = known.into_iter().find(|name| name.to_bytes() == backend);
            Ok(known.unwrap_or(c"unknown").as_ptr())
        })
    }

    fn vrampool_pool_device(pool: u64, number: Out<'_, c_int>) {
        number.answer("number", || Ok(registry::home_of(pool)?.number()))
    }

    fn vrampool_snapshot(pool: u64, json: Out<'_, *mut c_char>) {
        json.answer("json", || Ok(boundary::give_text(registry::get(pool)?.snapshot().to_string())))
    }

    fn vrampool_start_metrics(address: Text<'_>) {
        start_metrics(address).map(drop)
    }

    fn vrampool_start_metrics_at(address: Text<'_>, served_at: Out<'_, *mut c_char>) {
        served_at.answer("served_at", || Ok(boundary::give_text(start_metrics(address)?.to_string())))
    }

    extern "C" fn vrampool_stop_metrics() -> Status {
        guard_anywhere(|| {
            metrics::stop();
            Ok(())
        })
    }
}

fn start_metrics(address: Text<'_>) -> Result<SocketAddr, Failure> {
    metrics::start(address.optional("address")?, |served| {
        registry::pools().iter().for_each(|pool| served.add(pool));
        registry::sleeping().iter().for_each(|sleeping| served.add(sleeping));
        segment_place::served().iter().for_each(|segments| served.add(segments));
        broker::all().iter().for_each(|broker| served.add(broker));
    })
}
