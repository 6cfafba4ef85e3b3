"""vrampool: a bounded caching pool for device memory.

* `vrampool.Pool`: a pool of one's own, on a GPU or on the host.
* `vrampool.Broker`: batches of arrays in chunks that fit the device; `vrampool.broker` has the rest of it.
* `vrampool.torch`: the pool below all of PyTorch (`install`), or below a part of it (`mem_pool`).
* `vrampool.cupy`: the pool below CuPy.
* `vrampool.trace`: recordings of pools, and traces of other programs.
* `vrampool.vllm`: segments in the shape of vLLM's `cumem_allocator`.

Submodules are imported when they are first used. No GPU, PyTorch or CuPy is needed to import them; functions that need one raise
`UnavailableError` without it.
"""

from __future__ import annotations

# The first of them, which loads the second from where it shall be.
from . import _library, _native
from ._arguments import UNLIMITED
from .block import Block, BlockInfo, block_at
from .errors import *
from .memory import Memory, View, from_dlpack
from .pool import Pool
from .service import devices, get_include, get_library, start_metrics, stop_metrics
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import broker as broker
    from . import cupy as cupy
    from . import torch as torch
    from . import trace as trace
    from . import vllm as vllm
    from ._logging import set_log_level as set_log_level
    from .broker import Broker as Broker
    from .stats import PoolStats as PoolStats
    from .stats import SleepReport as SleepReport

__version__ = _native.VERSION

__all__ = [
    "UNLIMITED",
    "ArgumentOverflowError",
    "ArgumentTypeError",
    "AsleepError",
    "Block",
    "BlockInfo",
    "Broker",
    "BusyError",
    "CaptureError",
    "ClosedError",
    "ConfigurationError",
    "DeviceError",
    "DeviceLostError",
    "Error",
    "ForkedError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPointerError",
    "Memory",
    "MismatchError",
    "OutOfMemoryError",
    "Pool",
    "PoolStats",
    "SleepReport",
    "Stream",
    "TooLargeError",
    "UnavailableError",
    "UnsupportedError",
    "View",
    "block_at",
    "devices",
    "from_dlpack",
    "get_include",
    "get_library",
    "set_log_level",
    "start_metrics",
    "stop_metrics",
]

#: Imported when they are first used.
_SUBMODULES = ("broker", "cupy", "torch", "trace", "vllm")

#: Where the other names come from, when they are first used.
_ELSEWHERE = {
    "Broker": "broker",
    "PoolStats": "stats",
    "SleepReport": "stats",
    "set_log_level": "_logging",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_ELSEWHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELSEWHERE, *_SUBMODULES})
