"""The interface of the package `torch_memory_saver`, which SGLang, verl and slime use, over vrampool's segments.

`install` puts this module in its place in one process. For all processes of a program, put the folder that
`python -m vrampool.memory_saver` prints first on `PYTHONPATH`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from . import _arguments, _native
from ._contents import Progress
from ._handle import Handle as _Handle
from ._sleeping import AllocationData, Segments
from ._torch_memory import TorchMemory
from .errors import (
    AsleepError,
    BusyError,
    ConfigurationError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)
from .stats import SleepReport
from .torch._control import refuse_in_capture
from .vllm_extension import Handle, python_create_and_map, python_unmap_and_release

__all__ = ["TorchMemorySaver", "configure_subprocess", "install", "torch_memory_saver"]

_MODES = ("torch", "preload")

#: Values of environment variables that stand for no.
_NO = ("", "0", "false", "no")

#: The tag of the region that this context is in, and whether its contents are kept.
_REGION: ContextVar[Any] = ContextVar("vrampool_memory_saver_region", default=None)


def _region() -> tuple[str, bool] | None:
    return _native.current(_REGION)  # type: ignore[no-any-return]


class TorchMemorySaver(_Handle):
    """Memory of PyTorch's that is paused and resumed at its addresses; the instance of the process is `torch_memory_saver`.

    A pause waits for the work that uses the memory. A pause or a resume is for all memory that it names or none, and each failure is an
    exception.
    """

    def __init__(self) -> None:
        self._mode = "torch"
        self._margin = 0
        self._retains = os.environ.get("TMS_RETAIN_CPU_BACKUP", "1").lower() not in _NO
        self._saver: _Saver | None = None

    def _used(self) -> _Saver:
        if self._saver is None:
            _refuse_default_region()
            self._saver = _Saver()
        self._saver._segments.claim()
        self._saver._segments.keeps_host_memory = self._retains
        return self._saver

    @property
    def enabled(self) -> bool:
        return True

    @property
    def hook_mode(self) -> str:
        """`torch` or `preload`. Both allocate from pools of PyTorch's, and nothing is preloaded: memory outside of regions and captures
        is never paused, nor is memory that other libraries allocate within them."""
        return self._mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise ConfigurationError(f"hook_mode={mode!r} is no mode: use one of {', '.join(_MODES)}")
        if self._saver is not None and mode != self._mode:
            raise BusyError("hook_mode is set before the first region")
        self._mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes of the device that allocations in regions leave free; 0 by default."""
        return self._margin

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, bytes: int) -> None:
        self._margin = _arguments.size(bytes, "memory_margin_bytes")

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether pinned host memory of backups stays for the next pause after a resume; `True` by default. Without it a resume takes
        twice as long, because the memory is released, and the next pause longer."""
        return self._retains

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, retains: bool) -> None:
        self._retains = bool(retains)

    def set_disk_backup_dir(self, path: str) -> None:
        """Is refused.

        Raises: `UnsupportedError`.
        """
        raise UnsupportedError(f"set_disk_backup_dir({path!r}): backups are in host memory; use enable_cpu_backup")

    @contextlib.contextmanager
    def region(
        self,
        tag: str = "default",
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Memory that this thread allocates within the scope has the tag; with `enable_cpu_backup`, its contents outlast a pause.

        Scopes nest. `cpu_backup_backend` is not used: backups are in pinned memory.

        Raises: `UnsupportedError` for `enable_disk_backup`, `AsleepError` for a tag that is paused.
        """
        if enable_disk_backup:
            raise UnsupportedError("enable_disk_backup: backups are in host memory; use enable_cpu_backup")
        saver = self._used()
        with saver.allocating(tag, enable_cpu_backup, self._margin), saver.torch.cuda.use_mem_pool(saver.pool(tag, enable_cpu_backup)):
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = "default",
        enable_cpu_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """As `torch.cuda.graph`, with memory that can be paused. Captures with one `pool` share memory. `cpu_backup_backend` is
        not used.

        Raises: `AsleepError` for a tag that is paused.
        """
        saver = self._used()
        with (
            saver.allocating(tag, enable_cpu_backup, self._margin),
            saver.torch.cuda.graph(
                cuda_graph, pool=saver.graph_pool(pool).id, stream=stream, capture_error_mode=capture_error_mode
            ),
        ):
            yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within a region, memory that is allocated in this scope is PyTorch's own, and is not paused.

        Raises: `InvalidArgumentError` outside of regions, `UnsupportedError` for a pool that is kept.
        """
        if not dispose_mem_pool_after_use:
            raise UnsupportedError("dispose_mem_pool_after_use=False: the pool of the scope is always released")
        if _region() is None:
            raise InvalidArgumentError("disable() is for use within a region of this context")
        torch = self._used().torch
        with _native.Scope(_REGION, None), torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            yield

    def pause(self, tag: str | None = None, progress: Progress | None = None) -> SleepReport:
        """Releases the physical memory of a tag, or of all tags that are not paused. Without memory nothing is done. `progress` is
        called with the copied bytes and the bytes in all, after each piece. Memory that an interrupted call left is released or mapped by
        the next one.

        Raises: `AsleepError` for a tag that is paused, or if all are; `CaptureError` during a capture.
        """
        return self._used().pause(_tag(tag), progress)

    def resume(self, tag: str | None = None, progress: Progress | None = None) -> SleepReport:
        """Maps the memory of a tag, or of all paused tags, and restores the contents that were kept; others are undefined. `progress` is
        as that of `pause`.

        Raises: `OutOfMemoryError`, and the memory stays paused; `InvalidArgumentError` for a tag that is not paused, or if none is.
        """
        return self._used().resume(_tag(tag), progress)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The contents of a contiguous tensor whose memory is paused, in host memory; with `zero_copy`, the backup itself, which is valid
        until the resume. `None` while the memory is not paused.

        Raises: `InvalidArgumentError` for a tensor without a backup.
        """
        address = x.data_ptr()
        data = self._used().segment_of(address, x.nbytes)
        if data is not None and not data.is_asleep:
            return None
        if data is None or data.cpu_backup_tensor is None or not x.is_contiguous():
            raise InvalidArgumentError(
                "the tensor has no backup: it is contiguous and in a region with enable_cpu_backup, or there is none"
            )
        offset = address - data.handle[2]
        found = data.cpu_backup_tensor[offset : offset + x.nbytes].view(x.dtype).view(x.shape)
        return found if zero_copy else found.clone()


def _tag(tag: str | None) -> str | None:
    """Raises: `ArgumentTypeError` for a tag that is no text."""
    return None if tag is None else _arguments.text(tag, "tag").decode()


def _refuse_default_region() -> None:
    """Raises: `UnsupportedError` where the environment asks for memory outside of regions to be paused."""
    if os.environ.get("TMS_INIT_ENABLE", "0").lower() not in _NO:
        raise UnsupportedError(
            "TMS_INIT_ENABLE: memory outside of regions is not paused, because nothing is preloaded; unset it, and allocate in "
            "torch_memory_saver.region(...), or let all memory sleep by vrampool.torch.install and vrampool.torch.sleep"
        )


class _Saver:
    """The segments of all regions."""

    def __init__(self) -> None:
        self._memory = TorchMemory()
        self.torch, self._margin = self._memory.torch, 0
        self._segments = Segments(
            self._memory, self._on_malloc, lambda of: python_create_and_map(*of), lambda of: python_unmap_and_release(*of)
        )
        self._segments.start()
        self._pools: dict[tuple[str, bool, int], Any] = {}
        self._graph_pools: dict[Any, Any] = {}
        atexit.register(self.release_pools)

    @property
    def current_tag(self) -> str:
        """The tag of segments that are allocated now."""
        return (_region() or ("default", False))[0]

    def _on_malloc(self, handle: Handle) -> None:
        device, size, _, _ = handle
        if self._margin and (free := self.torch.cuda.mem_get_info(device)[0]) < size + self._margin:
            raise OutOfMemoryError(
                f"{size} bytes would leave less than memory_margin_bytes={self._margin} free of the {free} bytes on device {device}"
            )
        self._segments.add(handle, *(_region() or ("default", False)))

    def pool(self, tag: str, is_kept: bool) -> Any:
        """The pool of a tag's regions on the current device; it stays, so that regions reuse memory that was freed."""
        key = (tag, is_kept, self.torch.cuda.current_device())
        if key not in self._pools:
            self._pools[key] = self._memory.new_pool()
        return self._pools[key]

    def graph_pool(self, shared: Any) -> Any:
        """A pool for a capture: one for each pool that captures share, itself included."""
        if shared is not None and shared in self._graph_pools:
            return self._graph_pools[shared]
        pool = self._memory.new_pool()
        self._graph_pools[pool.id] = pool
        if shared is not None:
            self._graph_pools[shared] = pool
        return pool

    @contextlib.contextmanager
    def allocating(self, tag: str, is_kept: bool, margin: int) -> Iterator[None]:
        _arguments.text(tag, "tag")
        if any(data.is_asleep for data in self._of(tag)):
            raise AsleepError(f"tag {tag} is paused; resume it before more memory is allocated under it")
        self._margin = margin
        with _native.Scope(_REGION, (tag, is_kept)), self._memory.without_expandable_segments():
            yield

    def _of(self, tag: str | None) -> list[AllocationData]:
        """The segments of a tag, or of all."""
        return self._segments.select(lambda data: tag in (None, data.tag))

    def pause(self, tag: str | None, progress: Progress | None) -> SleepReport:
        refuse_in_capture(self.torch)
        of = self._of(tag)
        if of and all(data.is_asleep for data in of):
            raise AsleepError("no tag is left to pause" if tag is None else f"tag {tag} is paused already")
        return self._segments.sleep(of, lambda data: data.is_kept, progress)

    def resume(self, tag: str | None, progress: Progress | None) -> SleepReport:
        of = self._of(tag)
        if of and not any(data.is_asleep for data in of):
            raise InvalidArgumentError("no memory is paused" if tag is None else f"tag {tag} is not paused")
        return self._segments.wake(of, progress)

    def segment_of(self, address: int, size: int) -> AllocationData | None:
        """The segment that contains these bytes."""
        for data in self._segments.select(lambda data: data.handle[2] <= address):
            if address + size <= data.handle[2] + data.handle[1]:
                return data
        return None

    def release_pools(self) -> None:
        self._pools.clear()
        self._graph_pools.clear()


#: The instance of the process.
torch_memory_saver = TorchMemorySaver()


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Nothing has to be preloaded into processes that are started within the scope."""
    yield


def install() -> None:
    """Puts this module in the place of `torch_memory_saver` in this process.

    Raises: `BusyError` where that package is imported already.
    """
    own = sys.modules[__name__]
    if sys.modules.setdefault("torch_memory_saver", own) is not own:
        raise BusyError("torch_memory_saver is imported already: call vrampool.memory_saver.install first")


if __name__ == "__main__":
    print(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shims"))
