"""Statistics of pools, and reports of sleeps."""

from __future__ import annotations

from typing import NamedTuple


class PoolStats(NamedTuple):
    """A pool's statistics, all its tags together, from `Pool.stats`.

    Counts are since the pool was made; sizes are bytes. The values are not of one moment: other threads go on meanwhile.

    Attributes:
        hits: requests that were served from idle memory.
        misses: all other requests, failed ones included.
        bytes_requested: live bytes as they were requested.
        bytes_live: live bytes, rounded to size classes.
        bytes_cached: idle bytes.
        bytes_held: live and idle bytes.
        bytes_reserved: bytes that the source took from the device; with `source="arena"` the whole arena.
        bytes_allocated: bytes taken from the source in all, never reduced.
        peak_requested: the maximum of `bytes_requested` since the pool was made or `reset_peaks`. Peaks of several tags are added.
        peak_live: the maximum of `bytes_live`.
        peak_cached: the maximum of `bytes_cached`.
        peak_held: the maximum of `bytes_held`.
        peak_reserved: the maximum of `bytes_reserved`.
        max_cached_bytes: the cap on idle bytes of each tag; `vrampool.UNLIMITED` for none.
        max_buffers_per_bucket: the cap on idle blocks in one size class of one tag; `UNLIMITED` for none.
        limit: the hard cap on bytes taken from the device, all tags together; `UNLIMITED` for none.
        budget: the soft cap on the same, of each tag; `UNLIMITED` for none.
        live_buffers: live blocks.
        source_allocations: allocations of the source.
        source_frees: frees of the source.
        driver_calls: calls of the driver in all.
        mapping_calls: calls of the driver that map or unmap memory.
        mapping_nanoseconds: the time of those calls, in nanoseconds.
        drops_over_bytes: freed blocks that were not kept idle because of `max_cached_bytes`.
        drops_over_count: freed blocks that were not kept idle because of `max_buffers_per_bucket`.
        evictions: idle blocks that were released to make room, or by trimming.
        stream_waits: waits between streams on the device.
        failed_by_limit: requests that failed because of the limit.
        failed_by_device: requests that failed because the device had no memory.
        failed_by_backend: requests that failed for another reason of the driver's.
        failed_invalid: requests that could not be served at all, such as larger than the device.
        rung_evict: how often idle memory was released for a request.
        rung_wait: how often a request waited for pending work.
        rung_trim: how often all idle memory was released for a request.
        rung_compact: how often an arena was compacted for a request.
        rung_fail: how often all that did not help.
        bytes_private: bytes of private pools of CUDA graphs, also in `bytes_live`.
        bytes_asleep: bytes of live blocks that are asleep.
        bytes_backup: bytes of host memory that keep contents of sleeping blocks.
    """

    hits: int
    misses: int
    bytes_requested: int
    bytes_live: int
    bytes_cached: int
    bytes_held: int
    bytes_reserved: int
    bytes_allocated: int
    peak_requested: int
    peak_live: int
    peak_cached: int
    peak_held: int
    peak_reserved: int
    max_cached_bytes: int
    max_buffers_per_bucket: int
    limit: int
    budget: int
    live_buffers: int
    source_allocations: int
    source_frees: int
    driver_calls: int
    mapping_calls: int
    mapping_nanoseconds: int
    drops_over_bytes: int
    drops_over_count: int
    evictions: int
    stream_waits: int
    failed_by_limit: int
    failed_by_device: int
    failed_by_backend: int
    failed_invalid: int
    rung_evict: int
    rung_wait: int
    rung_trim: int
    rung_compact: int
    rung_fail: int
    bytes_private: int
    bytes_asleep: int
    bytes_backup: int

    @property
    def failures(self) -> int:
        """The number of failed requests."""
        return self.failed_by_limit + self.failed_by_device + self.failed_by_backend + self.failed_invalid

    @property
    def hit_rate(self) -> float:
        """The share of requests that were served from idle memory; 0.0 before the first one."""
        requests = self.hits + self.misses
        return self.hits / requests if requests else 0.0


class SleepReport(NamedTuple):
    """What a sleep or a wake did, in bytes.

    Attributes:
        physical: bytes released to the device, or taken from it.
        contents: bytes of blocks that were copied to the host, or back.
        discarded: bytes of blocks whose contents are gone.
        was_so: whether there was nothing to do, because all was asleep, or awake, already.
    """

    physical: int
    contents: int
    discarded: int
    was_so: bool
