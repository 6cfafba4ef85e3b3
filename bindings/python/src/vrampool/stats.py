"""Statistics of pools, and reports of sleeps."""

from __future__ import annotations

import ctypes
from typing import NamedTuple


class PoolStats(NamedTuple):
    # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
    """A pool's statistics, all its tags together, from `Pool.stats`.

    Counts are since the pool was created; sizes are bytes. The values are not one consistent snapshot while other
    threads use the pool. Peaks of several tags are added. Caps are each tag's, `limit_bytes` is that of all tags
    together; an unset cap is `vrampool.UNLIMITED`.

    Attributes:
        live_buffers: Live buffers.
        requested_bytes: Requested bytes of live buffers, before rounding.
        live_bytes: Bytes of live buffers, rounded to their classes.
        idle_bytes: Bytes idle in buckets.
        held_bytes: Live and idle bytes.
        in_flight_bytes: Freed bytes that device work still uses, as far as markers show. Markers are recorded once two
            streams use the pool. Blocks in magazines are not included.
        needed_bytes: Live bytes and bytes in flight.
        reserved_bytes: Bytes that the source took from the device: the whole region of an arena, the mapped bytes of a
            virtual source.
        in_transit_bytes: Bytes reserved for pending requests to the source, and bytes being released to it. They count
            against the limit and the budget, together with held bytes.
        waiting_requests: Requests that wait for memory, by `allocate_timeout`.
        waiting_bytes: Bytes of the waiting requests, rounded to their classes. Later requests get only what the limit
            leaves beside them, except in the turns of `allocate_timeout`.
        oldest_wait_nanoseconds: How long the first of the waiting requests has waited; 0 without any.
        stream_waits: Waits that the pool inserted between streams: for data that another stream writes or reads, and
            for memory that another stream used before.
        reuse_waits: Waits that the pool inserted because it reused memory before another stream's work on it was
            complete. They delay work that shares no data, and are part of the stream waits.
        memory_calls: Driver calls for memory: allocations, frees and mappings.
        source_allocations: Requests served by the source: those that no bucket served.
        source_frees: Allocations released by the source.
        source_allocated_bytes: Total bytes taken from the source, never reduced.
        served_by_bucket: Requests served from a bucket.
        served_by_arena: Requests served by an arena from memory that it had reserved before, without a driver call.
        served_by_driver: Requests served with at least one driver call: an allocation, or memory mapped or unmapped.
        mapping_calls: Device calls to create, map, unmap and release virtual memory.
        mapping_nanoseconds: Time of the mapping calls.
        mappings: Mappings of physical memory: each piece counts as often as it is mapped. At most 4 per page of the
            limit, plus 1024.
        stitched_ranges: Stitched ranges, live or idle.
        arena_free_bytes: Bytes that the arena reserved and that no live block has.
        arena_largest_free_bytes: The largest request that these bytes serve; all of them in a virtual source, which
            joins them.
        address_bytes: Bytes of addresses reserved by an arena or a virtual source; at most 8 times the limit of a
            virtual source.
        peak_requested_bytes: The highest requested bytes of live buffers.
        peak_live_bytes: The highest live bytes.
        peak_idle_bytes: An upper bound of idle bytes: a block counts as idle if a magazine has a slot for it.
        peak_held_bytes: The highest held bytes.
        peak_reserved_bytes: The highest reserved bytes, whatever made them grow: requests of this pool, the program's
            own requests to the arena, or a wake.
        peak_needed_bytes: The highest needed bytes; at least the peak of live bytes.
        peak_limit_bytes: The smallest limit that the source would have needed: the highest end of a live block in an
            arena of fixed size, the peak of reserved bytes for other sources.
        max_cached_bytes: The cap on idle bytes. `UNLIMITED` if unset.
        max_buffers_per_bucket: The cap on idle buffers in one bucket. `UNLIMITED` if unset.
        limit_bytes: The hard cap on the sum of held bytes and bytes in transit. `UNLIMITED` if unset.
        budget_bytes: The soft cap on the same sum. `UNLIMITED` if unset.
        released_by_byte_cap: Freed buffers that were not kept because of the cap on idle bytes.
        released_by_bucket_cap: Freed buffers that were not kept because of the cap on idle buffers in one bucket.
        released_evicted: Idle buffers released to make room, or by trimming.
        failed_by_limit: Requests that failed because of the pool's limit.
        failed_by_device: Requests that failed because the device was out of memory.
        failed_by_arena: Requests that failed because the arena was full.
        failed_by_fragmentation: Requests that failed although enough memory was free, because no free range was large
            enough.
        failed_by_request: Requests of more than the limit or the arena ever allows.
        failed_by_timeout: Requests that waited for memory until their deadline.
        failed_by_backend: Requests that failed because of another error of the device, or of a call that a capture
            forbids.
        failed_closed: Requests of a closed pool.
        failed_invalid: Invalid requests: no matching size class, or a stream of another device.
        last_failure_by_limit: The time of the latest failure because of the pool's limit.
        last_failure_by_device: The time of the latest failure because the device was out of memory.
        last_failure_by_arena: The time of the latest failure because the arena was full.
        last_failure_by_fragmentation: The time of the latest failure because of fragmentation.
        last_failure_by_request: The time of the latest request of more than is ever allowed.
        last_failure_by_timeout: The time of the latest request that waited until its deadline.
        last_failure_by_backend: The time of the latest failure because of another error of the device.
        last_failure_closed: The time of the latest request of a closed pool.
        last_failure_invalid: The time of the latest invalid request.
        device_errors_allocate: Errors of allocations and mappings.
        device_errors_order: Errors of events and waits, which order work of different streams.
        device_errors_copy: Errors of copies and fills of buffers.
        device_errors_memory_info: Errors of queries of the device's free memory, which metrics make.
        rung_evict: Times that idle buffers were released to stay within the limit or the budget.
        rung_wait: Times that a thread waited for memory that another thread was releasing, or for its turn to ask a
            device that was out of memory.
        rung_trim: Times that idle memory was released because the device was out of memory, and the request was
            retried: the least recently requested classes, then all idle memory, then that of other pools.
        rung_compact: Times that holes of the arena were closed, and the request was retried.
        rung_fail: Times that all steps failed and an error was returned.
        wait_within_10us: Number of times of at most 10 µs.
        wait_within_100us: Number of longer times, of at most 100 µs.
        wait_within_1ms: Number of longer times, of at most 1 ms.
        wait_within_10ms: Number of longer times, of at most 10 ms.
        wait_within_100ms: Number of longer times, of at most 100 ms.
        wait_within_1s: Number of longer times, of at most 1 s.
        wait_within_10s: Number of longer times, of at most 10 s.
        wait_within_100s: Number of longer times, of at most 100 s.
        wait_longer: Number of times of more than 100 s.
        wait_nanoseconds: The sum of all times.
        driver_within_10us: Number of times of at most 10 µs.
        driver_within_100us: Number of longer times, of at most 100 µs.
        driver_within_1ms: Number of longer times, of at most 1 ms.
        driver_within_10ms: Number of longer times, of at most 10 ms.
        driver_within_100ms: Number of longer times, of at most 100 ms.
        driver_within_1s: Number of longer times, of at most 1 s.
        driver_within_10s: Number of longer times, of at most 10 s.
        driver_within_100s: Number of longer times, of at most 100 s.
        driver_longer: Number of times of more than 100 s.
        driver_nanoseconds: The sum of all times.
        allocation_within_10us: Number of times of at most 10 µs.
        allocation_within_100us: Number of longer times, of at most 100 µs.
        allocation_within_1ms: Number of longer times, of at most 1 ms.
        allocation_within_10ms: Number of longer times, of at most 10 ms.
        allocation_within_100ms: Number of longer times, of at most 100 ms.
        allocation_within_1s: Number of longer times, of at most 1 s.
        allocation_within_10s: Number of longer times, of at most 10 s.
        allocation_within_100s: Number of longer times, of at most 100 s.
        allocation_longer: Number of times of more than 100 s.
        allocation_nanoseconds: The sum of all times.
        private_bytes: Bytes in private pools of CUDA graphs, live or kept for their graphs, of virtual memory whole
            pages, and bytes of released private pools that wait for the device.
        asleep_bytes: Bytes of live blocks that are asleep.
        backup_bytes: Bytes of host memory that keep contents of sleeping blocks.
    """

    live_buffers: int
    requested_bytes: int
    live_bytes: int
    idle_bytes: int
    held_bytes: int
    in_flight_bytes: int
    needed_bytes: int
    reserved_bytes: int
    in_transit_bytes: int
    waiting_requests: int
    waiting_bytes: int
    oldest_wait_nanoseconds: int
    stream_waits: int
    reuse_waits: int
    memory_calls: int
    source_allocations: int
    source_frees: int
    source_allocated_bytes: int
    served_by_bucket: int
    served_by_arena: int
    served_by_driver: int
    mapping_calls: int
    mapping_nanoseconds: int
    mappings: int
    stitched_ranges: int
    arena_free_bytes: int
    arena_largest_free_bytes: int
    address_bytes: int
    peak_requested_bytes: int
    peak_live_bytes: int
    peak_idle_bytes: int
    peak_held_bytes: int
    peak_reserved_bytes: int
    peak_needed_bytes: int
    peak_limit_bytes: int
    max_cached_bytes: int
    max_buffers_per_bucket: int
    limit_bytes: int
    budget_bytes: int
    released_by_byte_cap: int
    released_by_bucket_cap: int
    released_evicted: int
    failed_by_limit: int
    failed_by_device: int
    failed_by_arena: int
    failed_by_fragmentation: int
    failed_by_request: int
    failed_by_timeout: int
    failed_by_backend: int
    failed_closed: int
    failed_invalid: int
    last_failure_by_limit: int
    last_failure_by_device: int
    last_failure_by_arena: int
    last_failure_by_fragmentation: int
    last_failure_by_request: int
    last_failure_by_timeout: int
    last_failure_by_backend: int
    last_failure_closed: int
    last_failure_invalid: int
    device_errors_allocate: int
    device_errors_order: int
    device_errors_copy: int
    device_errors_memory_info: int
    rung_evict: int
    rung_wait: int
    rung_trim: int
    rung_compact: int
    rung_fail: int
    wait_within_10us: int
    wait_within_100us: int
    wait_within_1ms: int
    wait_within_10ms: int
    wait_within_100ms: int
    wait_within_1s: int
    wait_within_10s: int
    wait_within_100s: int
    wait_longer: int
    wait_nanoseconds: int
    driver_within_10us: int
    driver_within_100us: int
    driver_within_1ms: int
    driver_within_10ms: int
    driver_within_100ms: int
    driver_within_1s: int
    driver_within_10s: int
    driver_within_100s: int
    driver_longer: int
    driver_nanoseconds: int
    allocation_within_10us: int
    allocation_within_100us: int
    allocation_within_1ms: int
    allocation_within_10ms: int
    allocation_within_100ms: int
    allocation_within_1s: int
    allocation_within_10s: int
    allocation_within_100s: int
    allocation_longer: int
    allocation_nanoseconds: int
    private_bytes: int
    asleep_bytes: int
    backup_bytes: int
    # End of the generated lines.

    def __str__(self) -> str:
        """The figures that are not 0, a line each; `repr` has all."""
        return "\n".join(f"{name}: {value}" for name, value in zip(self._fields, self) if value)

    @property
    def failures(self) -> int:
        """The number of failed requests."""
        return sum(int(getattr(self, name)) for name in self._fields if name.startswith("failed_"))

    @property
    def hit_rate(self) -> float:
        """The share of served requests that made no driver call; 0.0 before the first one."""
        return self._share(self.served_by_bucket + self.served_by_arena)

    @property
    def bucket_hit_rate(self) -> float:
        """The share of served requests that buckets served; 0.0 before the first one. An arena serves their misses."""
        return self._share(self.served_by_bucket)

    def _share(self, part: int) -> float:
        served = self.served_by_bucket + self.served_by_arena + self.served_by_driver
        return part / served if served else 0.0


class CStats(ctypes.Structure):
    """`vrampool_stats`."""

    _fields_ = [("struct_size", ctypes.c_size_t), *((name, ctypes.c_uint64) for name in PoolStats._fields)]


class SleepReport(NamedTuple):
    # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
    """Results of a sleep or a wake.

    Attributes:
        physical_bytes: Bytes of physical memory that a sleep released to the device, or a wake took from it.
        copied_bytes: Bytes of blocks that a sleep copied to the host, or a wake copied back.
        discarded_bytes: Bytes of blocks whose contents a sleep discarded.
        no_op: Whether nothing was done, because all of the memory was asleep, or awake, already. Backups are
            unchanged.
        nanoseconds: Time of the call, the wait for work included.
    """

    physical_bytes: int
    copied_bytes: int
    discarded_bytes: int
    no_op: bool
    nanoseconds: int
    # End of the generated lines.

    @property
    def seconds(self) -> float:
        """The time of the call."""
        return self.nanoseconds / 1e9

    @property
    def copied_bytes_per_second(self) -> float:
        """The rate of the copies over the whole call; 0.0 for a call that took no time."""
        return self.copied_bytes / self.seconds if self.nanoseconds else 0.0


class CSleepReport(ctypes.Structure):
    """`vrampool_sleep_report`."""

    _fields_ = [("struct_size", ctypes.c_size_t), *((name, ctypes.c_uint64) for name in SleepReport._fields)]
