"""What a pool tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolStats:
    """A pool's statistics, all its tags together; counts are since the pool was made, sizes are bytes.

    They are not of one moment: other threads go on while they are read.
    """

    #: Requests served from idle memory, and the others, failed ones included.
    hits: int
    misses: int
    #: Bytes live as they were asked for, and rounded to classes.
    bytes_requested: int
    bytes_live: int
    #: Bytes idle; bytes live and idle; and bytes that the source took from the device: of `source="arena"` the whole arena.
    bytes_cached: int
    bytes_held: int
    bytes_reserved: int
    #: Bytes taken from the source in all, never reduced.
    bytes_allocated: int
    #: The most that each was, since the pool was made or `reset_peaks`. With tags the sum of the tags' own peaks.
    peak_requested: int
    peak_live: int
    peak_cached: int
    peak_held: int
    peak_reserved: int
    #: Caps; `UNLIMITED` for none. `limit` bounds all tags together, the others each tag by itself.
    max_cached_bytes: int
    max_buffers_per_bucket: int
    limit: int
    budget: int
    #: Blocks that are live.
    live_buffers: int
    #: What the source allocated and got back, calls of the driver in all, and of those for mapping memory, with their time.
    source_allocations: int
    source_frees: int
    driver_calls: int
    mapping_calls: int
    mapping_nanoseconds: int
    #: Blocks not kept idle for a cap's sake; given back to make room or by trimming; waits put between streams.
    drops_over_bytes: int
    drops_over_count: int
    evictions: int
    stream_waits: int
    #: Requests that failed: by the limit, by the device's memory, by another failure, because they were wrong.
    failed_by_limit: int
    failed_by_device: int
    failed_by_backend: int
    failed_invalid: int
    #: How often each rung of the ladder was climbed that leads to an out-of-memory.
    rung_evict: int
    rung_wait: int
    rung_trim: int
    rung_compact: int
    rung_fail: int
    #: Bytes in private pools (of CUDA graphs), also in `bytes_live`.
    bytes_private: int
    #: Bytes of live blocks that are asleep, and of host memory that holds contents of theirs.
    bytes_asleep: int
    bytes_backup: int

    @property
    def failures(self) -> int:
        """Requests that failed, for whatever reason."""
        return self.failed_by_limit + self.failed_by_device + self.failed_by_backend + self.failed_invalid

    @property
    def hit_rate(self) -> float:
        """The share of requests that were served from idle memory; 0.0 before the first one."""
        requests = self.hits + self.misses
        return self.hits / requests if requests else 0.0


@dataclass(frozen=True)
class SleepReport:
    """What a sleep or a wake did, bytes."""

    #: Given back to the device, or taken from it.
    physical: int
    #: Of blocks copied to the host, or back.
    contents: int
    #: Of blocks whose contents are gone.
    discarded: int
    #: There was nothing to do, because it was so already.
    was_so: bool
