"""Statistics of pools, and reports of sleeps."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _native


class PoolStats(NamedTuple):
    """A pool's statistics, its tags, children and brokers together, from `Pool.stats`.

    Counts are since the pool was created; sizes are bytes. The values are not one consistent snapshot while other
    threads use the pool. Peaks of several tags are added. Caps are each tag's, `limit_bytes` is that of all tags
    together; an unset cap is `vrampool.UNLIMITED`.
    """

    # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
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
    """Results of a sleep or a wake."""

    # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
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


# As the library describes them.
for _of, _figures in ((PoolStats, _native.figures_of_pools()), (SleepReport, _native.figures_of_sleep())):
    _lines = "".join(f"        {name}: {help}\n" for name, help in _figures)
    _of.__doc__ = f"{(_of.__doc__ or '').rstrip()}\n\n    Attributes:\n{_lines}"
