"""vrampool: a bounded caching pool for device memory.

* `vrampool.Pool`: a pool of one's own, on a GPU or on the host.
* `vrampool.torch`: the pool below all of PyTorch (`install`), or below a part of it (`mem_pool`).
* `vrampool.cupy`: the pool below CuPy.
* `vrampool.trace`: recordings of pools, and traces of other programs.
* `vrampool.vllm`: segments in the shape of vLLM's `cumem_allocator`.

Nothing here needs a GPU, PyTorch or CuPy to be imported; what lacks one says so when it is called.
"""

from ._library import UNLIMITED
from ._logging import flush_log, set_log_level
from .errors import (
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
from .pool import Block, BlockInfo, Pool, Stream, block_at
from .service import devices, library_version, start_metrics, stop_metrics
from .stats import PoolStats, SleepReport

__version__ = library_version()

__all__ = [
    "UNLIMITED",
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
    "MismatchError",
    "OutOfMemoryError",
    "Pool",
    "PoolStats",
    "SleepReport",
    "Stream",
    "TooLargeError",
    "UnavailableError",
    "UnsupportedError",
    "block_at",
    "devices",
    "flush_log",
    "library_version",
    "set_log_level",
    "start_metrics",
    "stop_metrics",
]
