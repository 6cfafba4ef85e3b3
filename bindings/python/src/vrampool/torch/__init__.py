"""vrampool below PyTorch.

The whole process, before the first use of CUDA:

    import vrampool.torch
    vrampool.torch.install(limit="60GiB")

Or a part of a program, with PyTorch's allocator on top:

    with vrampool.torch.mem_pool("weights"):
        model = Model().cuda()
"""

from ..service import start_metrics, stop_metrics
from ._control import (
    discard,
    empty_cache,
    get_per_process_memory_fraction,
    set_limit,
    set_per_process_memory_fraction,
    sleep,
    wake_up,
)
from ._devices import pool, pools, tag
from ._figures import memory_stats, reset_peak_memory_stats
from ._install import allocator, configure, install, is_configured, is_installed
from ._mem_pool import mem_pool, release_mem_pools
from ._snapshot import dump_snapshot, snapshot

__all__ = [
    "allocator",
    "configure",
    "discard",
    "dump_snapshot",
    "empty_cache",
    "get_per_process_memory_fraction",
    "install",
    "is_configured",
    "is_installed",
    "mem_pool",
    "memory_stats",
    "pool",
    "pools",
    "release_mem_pools",
    "reset_peak_memory_stats",
    "set_limit",
    "set_per_process_memory_fraction",
    "sleep",
    "snapshot",
    "start_metrics",
    "stop_metrics",
    "tag",
    "wake_up",
]
