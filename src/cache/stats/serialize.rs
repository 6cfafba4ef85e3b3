//! Statistics of a pool as serialized: one flat record, whose names stay when fields are grouped.

use super::PoolStats;
use super::groups::{Caps, Failures, Peaks, Releases, SourceStats, VirtualMemoryStats};
use crate::cache::oom_rung::Rung;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::time::Duration;

impl Serialize for PoolStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Without `..`: a new field does not compile until it is written here.
        let Self {
            hits,
            misses,
            live_buffers,
            requested_bytes,
            live_bytes,
            idle_bytes,
            held_bytes,
            stream_waits,
            source,
            virtual_memory,
            peak,
            caps,
            released,
            failed,
            rungs,
            buckets,
        } = self;
        let SourceStats {
            kind,
            served_by_arena,
            served_by_driver,
            allocations,
            frees,
            allocated_bytes,
            in_transit_bytes,
            reserved_bytes,
        } = source;
        let mut record = serializer.serialize_struct("PoolStats", 40)?;
        record.serialize_field("hits", hits)?;
        record.serialize_field("misses", misses)?;
        record.serialize_field("served_by_arena", served_by_arena)?;
        record.serialize_field("served_by_driver", served_by_driver)?;
        record.serialize_field("requested_bytes", requested_bytes)?;
        record.serialize_field("live_bytes", live_bytes)?;
        record.serialize_field("idle_bytes", idle_bytes)?;
        record.serialize_field("held_bytes", held_bytes)?;
        record.serialize_field("in_transit_bytes", in_transit_bytes)?;
        record.serialize_field("source", kind)?;
        record.serialize_field("reserved_bytes", reserved_bytes)?;
        record.serialize_field("allocated_bytes", allocated_bytes)?;
        write_peaks(peak, &mut record)?;
        write_caps(caps, &mut record)?;
        record.serialize_field("live_buffers", live_buffers)?;
        record.serialize_field("source_allocations", allocations)?;
        record.serialize_field("source_frees", frees)?;
        write_releases(released, &mut record)?;
        record.serialize_field("stream_waits", stream_waits)?;
        write_virtual_memory(virtual_memory, &mut record)?;
        write_failures(failed, &mut record)?;
        record.serialize_field("rungs", &ByName(rungs))?;
        record.serialize_field("buckets", buckets)?;
        record.end()
    }
}

fn write_peaks<R: SerializeStruct>(peak: &Peaks, record: &mut R) -> Result<(), R::Error> {
    let Peaks { requested_bytes, live_bytes, idle_bytes, held_bytes, reserved_bytes, needed_bytes } = peak;
    record.serialize_field("peak_requested_bytes", requested_bytes)?;
    record.serialize_field("peak_live_bytes", live_bytes)?;
    record.serialize_field("peak_idle_bytes", idle_bytes)?;
    record.serialize_field("peak_held_bytes", held_bytes)?;
    record.serialize_field("peak_reserved_bytes", reserved_bytes)?;
    record.serialize_field("peak_needed_bytes", needed_bytes)
}

fn write_caps<R: SerializeStruct>(caps: &Caps, record: &mut R) -> Result<(), R::Error> {
    let Caps { max_cached_bytes, max_buffers_per_bucket, limit, budget } = caps;
    record.serialize_field("max_cached_bytes", max_cached_bytes)?;
    record.serialize_field("max_buffers_per_bucket", max_buffers_per_bucket)?;
    record.serialize_field("limit", limit)?;
    record.serialize_field("budget", budget)
}

fn write_releases<R: SerializeStruct>(released: &Releases, record: &mut R) -> Result<(), R::Error> {
    let Releases { by_byte_cap, by_bucket_cap, evicted } = released;
    record.serialize_field("drops_over_bytes", by_byte_cap)?;
    record.serialize_field("drops_over_count", by_bucket_cap)?;
    record.serialize_field("evictions", evicted)
}

fn write_virtual_memory<R: SerializeStruct>(
    virtual_memory: &VirtualMemoryStats,
    record: &mut R,
) -> Result<(), R::Error> {
    let VirtualMemoryStats { calls, time, mappings, stitched_ranges, address_bytes } = virtual_memory;
    record.serialize_field("mapping_calls", calls)?;
    record.serialize_field("mapping_nanoseconds", &Nanoseconds(time))?;
    record.serialize_field("mappings", mappings)?;
    record.serialize_field("stitched_ranges", stitched_ranges)?;
    record.serialize_field("address_bytes", address_bytes)
}

fn write_failures<R: SerializeStruct>(failed: &Failures, record: &mut R) -> Result<(), R::Error> {
    let Failures { by_limit, by_device, by_backend, invalid } = failed;
    record.serialize_field("failed_by_limit", by_limit)?;
    record.serialize_field("failed_by_device", by_device)?;
    record.serialize_field("failed_by_backend", by_backend)?;
    record.serialize_field("failed_invalid", invalid)
}

struct Nanoseconds<'a>(&'a Duration);

impl Serialize for Nanoseconds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::serialize::nanoseconds(self.0, serializer)
    }
}

struct ByName<'a>(&'a [u64; Rung::ALL.len()]);

impl Serialize for ByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Rung::ALL.iter().zip(self.0).map(|(rung, count)| (rung.name(), count)))
    }
}
