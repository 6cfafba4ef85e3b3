"""Statistics in PyTorch's words, where it refuses them."""

from __future__ import annotations

import sys

from ..stats import PoolStats
from ._devices import pool_if_any, pools


#: Of a device that has no pool: nothing was asked for.
_NOTHING = PoolStats(*(0 for _ in PoolStats._fields))


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
    `.all.freed`. Keys that are not here have no meaning for this pool, which is not split into one for small blocks and one
    for large.
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
    return figures | {f"vrampool.{name}": int(getattr(stats, name)) for name in PoolStats._fields}


def _out_of_memory(stats: PoolStats) -> int:
    by_source = stats.failed_by_device + stats.failed_by_arena + stats.failed_by_fragmentation
    return stats.failed_by_limit + by_source + stats.failed_by_request + stats.failed_by_timeout


def memory_allocated(device: object = None) -> int:
    """Bytes that tensors have now, rounded to classes."""
    return _stats(device).live_bytes


def max_memory_allocated(device: object = None) -> int:
    """The most that `memory_allocated` was, since the beginning or `reset_peak_memory_stats`."""
    return _stats(device).peak_live_bytes


def memory_reserved(device: object = None) -> int:
    """Bytes taken from the device now."""
    return _stats(device).reserved_bytes


def max_memory_reserved(device: object = None) -> int:
    """The most that `memory_reserved` was, since the beginning or `reset_peak_memory_stats`."""
    return _stats(device).peak_reserved_bytes


def reset_peak_memory_stats(device: object = None) -> None:
    """Starts the peaks anew from what is there now."""
    if pools() and (pool := pool_if_any(device)) is not None:
        pool.reset_peaks()


def memory_summary(device: object = None, abbreviated: bool = False) -> str:
    """A table for people. `abbreviated` leaves vrampool's own figures out."""
    stats = _stats(device)
    rows = [
        ("allocated (live)", stats.live_bytes, stats.peak_live_bytes),
        ("requested", stats.requested_bytes, stats.peak_requested_bytes),
        ("idle", stats.idle_bytes, stats.peak_idle_bytes),
        ("held (live and idle)", stats.held_bytes, stats.peak_held_bytes),
        ("needed (live and in flight)", stats.needed_bytes, stats.peak_needed_bytes),
        ("reserved on the device", stats.reserved_bytes, stats.peak_reserved_bytes),
    ]
    line = f"|{'=' * 61}|"
    table = [line, f"| {'vrampool memory summary':<60}|", line, f"| {'bytes':<28}|{'now':>14} |{'peak':>14} |"]
    table += [f"| {name:<28}|{size_text(now):>14} |{size_text(peak):>14} |" for name, now, peak in rows]
    table.append(line)
    if not abbreviated:
        counts = [
            ("live blocks", stats.live_buffers),
            ("served by buckets", stats.served_by_bucket),
            ("served by the arena", stats.served_by_arena),
            ("served by the driver", stats.served_by_driver),
            ("driver calls", stats.memory_calls),
            ("waits between streams", stats.stream_waits),
            ("of these, for reused memory", stats.reuse_waits),
            ("out of memory, by the limit", stats.failed_by_limit),
            ("out of memory, in all", _out_of_memory(stats)),
        ]
        table += [f"| {name:<28}|{count:>14} |{'':>14} |" for name, count in counts]
        table += [f"| {'limit':<28}|{size_text(stats.limit_bytes):>14} |{'':>14} |", line]
    return "\n".join(table) + "\n"


def size_text(bytes: int) -> str:
    """Bytes for people: `1.5 MiB`; `unlimited` for no cap."""
    if bytes == 2**64 - 1:
        return "unlimited"
    size, units = float(bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
