//! Statistics as text: a line each, with names and units of its figures.

use vrampool::arena::{Compaction, DeviceArena};
use vrampool::broker::{Broker, Client, RunReport};
use vrampool::hooks::{CallSite, CallSites};
use vrampool::host::HostDevice;
use vrampool::sleep::{SleepReport, SleepUsage, WakeReport};
use vrampool::{Backend, Error, Pool, PoolStats};

#[test]
fn a_pools_statistics_are_one_line_or_one_for_each_class() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(1 << 20).build()?;
    drop(pool.allocate(1000, &stream)?);
    let _live = pool.allocate(1000, &stream)?;
    assert!(pool.allocate(2 << 20, &stream).is_err());
    let stats = pool.stats();
    let line = "hit rate 0.33 (hits 1, misses 2), live 1.0 KiB in 1 buffers (requested 1000 B), idle 0 B, \
                held 1.0 KiB, reserved 1.0 KiB (source direct), limit 1.0 MiB, failed 1, invalid 0";
    assert_eq!(stats.to_string(), line);
    let bucket = "class 1.0 KiB: hits 1, misses 1, idle 0 B in 0 buffers";
    assert_eq!(stats.buckets[0].to_string(), bucket);
    assert_eq!(format!("{stats:#}").lines().nth(1), Some(format!("    {bucket}").as_str()));
    let unlimited = Pool::new(&device)?.stats().to_string();
    assert!(unlimited.contains("no limit"), "{unlimited}");
    Ok(())
}

#[test]
fn all_other_statistics_are_a_line() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let (mut sleep, mut wake, mut usage) =
        (SleepReport::default(), WakeReport::default(), SleepUsage::default());
    (sleep.freed_bytes, sleep.backed_up_bytes, wake.restored_bytes, usage.live_bytes) =
        (3 << 20, 1 << 20, 1 << 10, 5);
    assert_eq!(sleep.to_string(), "freed 3.0 MiB, backed up 1.0 MiB, discarded 0 B");
    sleep.was_asleep = true;
    assert!(sleep.to_string().ends_with(" (already asleep)"));
    assert_eq!(wake.to_string(), "mapped 0 B, restored 1.0 KiB");
    assert_eq!(usage.to_string(), "mapped 0 B, live 5 B, asleep 0 B, backups 0 B, addresses 0 B");

    let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
    let compacted =
        arena.compact(1 << 20, &stream, |moved| assert!(moved.to_string().contains("from offset")))?;
    assert_eq!(compacted, Compaction::default());
    assert_eq!(compacted.to_string(), "moved 0 B in 0 blocks, held in place 0 blocks");

    let sites = CallSites::new();
    assert!(CallSite::default().to_string().starts_with("all: requests 0 (failed 0), used 0 B"));
    assert!(sites.report().to_string().contains("all"));

    let broker = Broker::builder(&device).build().expect("a broker");
    let text = broker.stats().to_string();
    assert!(text.starts_with("clients 0, held 0 B, ") && text.contains("commits granted 0"), "{text}");
    let client = broker.register(Client::new("solver")).expect("a client");
    let listed = broker.clients();
    let text = listed[0].to_string();
    assert!(text.contains("solver, group default: held 0 B of "), "{text}");
    drop(client);
    assert!(RunReport::default().to_string().starts_with("runs 0 in 0 chunks on 0 streams in "));
    let info = device.memory_info()?;
    assert_eq!(info.to_string(), format!("{} of {} bytes free", info.free_bytes, info.total_bytes));
    assert!(!PoolStats::default().to_string().contains('\n'));
    Ok(())
}

#[cfg(feature = "trace")]
#[test]
fn figures_of_traces_are_a_line() -> Result<(), Box<dyn std::error::Error>> {
    use vrampool::trace::{Replay, Trace};
    let text = "op,id,size,stream,t_us\na,0,3000,0,0\nf,0,3000,0,5\na,1,1000,0,7\n";
    let trace = Trace::parse(text.as_bytes())?;
    let summary = trace.summary().to_string();
    let figures = "allocations 2, frees 1, never freed 1, streams 1, sizes 2, requested 3.9 KiB (peak 2.9 KiB, largest 2.9 KiB)";
    assert!(summary.ends_with(figures), "{summary}");
    let range = trace.size_ranges()[1].to_string();
    assert_eq!(range, "2048 to 4095 bytes: allocations 1 (50.0 %), requested 2.9 KiB");
    let passes = Replay::new(&trace).run(&Pool::new(&HostDevice::new())?)?;
    let pass = passes[0].to_string();
    assert!(
        pass.starts_with("pass 0: operations 3 of ") && pass.contains("peaks: requested 2.9 KiB, "),
        "{pass}"
    );
    Ok(())
}

#[cfg(feature = "serde")]
mod json {
    use std::time::Duration;
    use vrampool::PoolStats;
    use vrampool::broker::{Broker, Client, RunReport};
    use vrampool::host::HostDevice;
    use vrampool::sleep::SleepReport;

    /// As it was when the fields had no groups. Programs read it, so nothing of it changes.
    const POOL: &str = r#"{"hits":0,"misses":0,"served_by_arena":0,"served_by_driver":0,"requested_bytes":0,"live_bytes":0,
        "idle_bytes":0,"held_bytes":0,"in_transit_bytes":0,"source":"direct","reserved_bytes":0,"allocated_bytes":0,
        "peak_requested_bytes":0,"peak_live_bytes":0,"peak_idle_bytes":0,"peak_held_bytes":0,"peak_reserved_bytes":0,
        "peak_needed_bytes":0,"max_cached_bytes":null,"max_buffers_per_bucket":null,"limit":null,"budget":null,
        "live_buffers":0,"source_allocations":0,"source_frees":0,"drops_over_bytes":0,"drops_over_count":0,
        "evictions":0,"stream_waits":0,"mapping_calls":0,"mapping_nanoseconds":0,"mappings":0,"stitched_ranges":0,
        "address_bytes":0,"failed_by_limit":0,"failed_by_device":0,"failed_by_backend":0,"failed_invalid":0,
        "rungs":{"evict":0,"wait":0,"trim":0,"compact":0,"fail":0},"buckets":[]}"#;

    #[test]
    fn a_pools_statistics_are_one_flat_record() {
        let lines: String = POOL.lines().map(str::trim).collect();
        assert_eq!(serde_json::to_string(&PoolStats::default()).expect("JSON"), lines);
        let mut stats = PoolStats::default();
        (stats.source.allocations, stats.released.by_byte_cap, stats.released.by_bucket_cap) = (1, 2, 3);
        (stats.virtual_memory.calls, stats.virtual_memory.time) = (4, Duration::from_nanos(5));
        (stats.peak.live_bytes, stats.caps.limit, stats.failed.by_device) = (6, Some(7), 8);
        let json = serde_json::to_value(&stats).expect("JSON");
        for (name, value) in [
            ("source_allocations", 1),
            ("drops_over_bytes", 2),
            ("drops_over_count", 3),
            ("mapping_calls", 4),
            ("mapping_nanoseconds", 5),
            ("peak_live_bytes", 6),
            ("limit", 7),
            ("failed_by_device", 8),
        ] {
            assert_eq!(json[name], value, "{name}: {json}");
        }
        let peak = serde_json::to_value(stats.peak).expect("JSON");
        assert_eq!(peak["live_bytes"], 6, "a group alone has the names of its fields");
    }

    #[test]
    fn durations_are_nanoseconds_and_clients_have_their_names() {
        let mut report = RunReport::default();
        report.elapsed = Duration::from_micros(3);
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["elapsed_nanoseconds"], 3000, "{json}");
        let json = serde_json::to_value(SleepReport::default()).expect("JSON");
        assert_eq!(json["freed_bytes"], 0, "{json}");
        let broker = Broker::builder(&HostDevice::new()).build().expect("a broker");
        let _client = broker.register(Client::new("solver")).expect("a client");
        let json = serde_json::to_value(broker.clients()).expect("JSON");
        assert_eq!(json[0]["name"], "solver", "{json}");
        assert_eq!(json[0]["stats"]["held_bytes"], 0, "{json}");
    }
}
