"""Statistics in PyTorch's words, where it refuses them."""

from __future__ import annotations

import sys

from ..stats import PoolStats
from ._devices import pool_if_any, pools


#: Of a device that has no pool: nothing was asked for.
_NOTHING = PoolStats(*(0 for _ in PoolStats._fields))


class _Figures(dict[str, int]):
    """0 for keys that are not in it: PyTorch's `memory_summary` reads all of PyTorch's."""

    def __missing__(self, _: str) -> int:
        return 0


def _stats(device: object) -> PoolStats:
    """A device's statistics: zeros while it has no pool, which asking does not make."""
    # Without a GPU PyTorch names no device.
    pool = pool_if_any(device) if pools() else None
    return _NOTHING if pool is None else pool.stats()


def _has_gpu() -> bool:
    """Whether PyTorch, where it is loaded, finds a GPU."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.cuda.is_available())


def memory_stats(device: object = None) -> dict[str, int]:
    """Statistics of a device's pool under PyTorch's keys, and all of vrampool's as `vrampool.<name>`.

    All are 0 for a device without requests so far: the call opens no device. Without a GPU the dict is empty, as PyTorch's.

    `allocated_bytes`, `active_bytes`: live, rounded to classes; `requested_bytes`: live, as asked for; `reserved_bytes`:
    taken from the device; `inactive_split_bytes`: in pages that live blocks are in, so that the device cannot have them.
    `allocation`, `active`: blocks. Each as `.all.current` and, where the pool keeps it, `.all.peak`, `.all.allocated` and
    `.all.freed`. Other keys have no meaning for this pool, which is not split into one for small blocks and one for large: their
    value is 0.
    """
    if not pools() and not _has_gpu():
        return {}
    stats = _stats(device)
    made = stats.served_by_bucket + stats.source_allocations
    figures = {
        "active.all.allocated": made,
        "active.all.current": stats.live_buffers,
        "active.all.freed": made - stats.live_buffers,
        "active_bytes.all.current": stats.live_bytes,
        "active_bytes.all.peak": stats.peak_live_bytes,
        "allocated_bytes.all.current": stats.live_bytes,
        "allocated_bytes.all.peak": stats.peak_live_bytes,
        "allocation.all.allocated": made,
        "allocation.all.current": stats.live_buffers,
        "allocation.all.freed": made - stats.live_buffers,
        "inactive_split_bytes.all.current": max(stats.reserved_bytes - stats.held_bytes, 0),
        "num_alloc_retries": stats.rung_evict,
        "num_device_alloc": stats.source_allocations,
        "num_device_free": stats.source_frees,
        "num_ooms": _out_of_memory(stats),
        "num_sync_all_streams": stats.rung_wait,
        "requested_bytes.all.current": stats.requested_bytes,
        "requested_bytes.all.peak": stats.peak_requested_bytes,
        "reserved_bytes.all.current": stats.reserved_bytes,
        "reserved_bytes.all.peak": stats.peak_reserved_bytes,
    }
    return _Figures(figures | {f"vrampool.{name}": int(getattr(stats, name)) for name in PoolStats._fields})


def _out_of_memory(stats: PoolStats) -> int:
    by_source = stats.failed_by_device + stats.failed_by_arena + stats.failed_by_fragmentation
    return stats.failed_by_limit + by_source + stats.failed_by_request + stats.failed_by_timeout


def reset_peak_memory_stats(device: object = None) -> None:
    """Starts the peaks anew from what is there now."""
    if pools() and (pool := pool_if_any(device)) is not None:
        pool.reset_peaks()
