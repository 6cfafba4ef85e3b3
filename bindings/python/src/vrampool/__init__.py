"""vrampool: a bounded caching pool for device memory.

* `vrampool.Pool`: a pool of one's own, on a GPU or on the host.
* `vrampool.torch`: the pool below all of PyTorch (`install`), or below a part of it (`mem_pool`).
* `vrampool.cupy`: the pool below CuPy.
* `vrampool.trace`: recordings of pools, and traces of other programs.
* `vrampool.vllm`: segments in the shape of vLLM's `cumem_allocator`.

Submodules are imported when they are first used. No GPU, PyTorch or CuPy is needed to import them; functions that need one raise
`UnavailableError` without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._arguments import UNLIMITED
from ._logging import flush_log, set_log_level
from .block import Block, BlockInfo, block_at
from .errors import (
    ArgumentOverflowError,
    ArgumentTypeError,
    AsleepError,
    BusyError,
    CaptureError,
    ClosedError,
    ConfigurationError,
    DeviceError,
    DeviceLostError,
    Error,
    ForkedError,
    InternalError,
    InvalidArgumentError,
    InvalidPointerError,
    MismatchError,
    OutOfMemoryError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from .memory import Memory, View, from_dlpack
from .pool import Pool
from .service import devices, get_include, get_library, library_version, start_metrics, stop_metrics
from .stats import PoolStats, SleepReport
from .stream import Stream

if TYPE_CHECKING:
    from . import cupy as cupy
    from . import torch as torch
    from . import trace as trace
    from . import vllm as vllm

__version__ = library_version()

__all__ = [
    "UNLIMITED",
    "ArgumentOverflowError",
    "ArgumentTypeError",
    "AsleepError",
    "Block",
    "BlockInfo",
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
    "flush_log",
    "from_dlpack",
    "get_include",
    "get_library",
    "library_version",
    "set_log_level",
    "start_metrics",
    "stop_metrics",
]

#: Imported when they are first used.
_SUBMODULES = ("cupy", "torch", "trace", "vllm")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
