"""vLLM's `CuMemAllocator` over vrampool's segments, and the ways to use it or the extension module in vLLM.

`vrampool.vllm_extension` takes the place of vLLM's extension module, below vLLM's own class; this module takes the place of
`vllm.device_allocator.cumem`. `install` does one of the two.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Literal

from . import _arguments, _native
from ._contents import Progress
from ._handle import Handle as _Handle
from ._sleeping import AllocationData, Segments
from ._torch_memory import TorchMemory
from .errors import BusyError, CaptureError, ConfigurationError, InvalidArgumentError
from .stats import SleepReport
from .torch._control import refuse_in_capture
from .vllm_extension import (
    Handle,
    forget_callbacks,
    init_module,
    python_create_and_map,
    python_unmap_and_release,
)

__all__ = [
    "DEFERRABLE_TAGS",
    "AllocationData",
    "CuMemAllocator",
    "Handle",
    "create_and_map",
    "forget_callbacks",
    "init_module",
    "install",
    "python_create_and_map",
    "python_unmap_and_release",
    "unmap_and_release",
]

#: Tags that wake only when they are named.
DEFERRABLE_TAGS = ("weights", "kv_cache")

#: Tags that exist before anything is allocated under them.
_CUSTOMARY_TAGS = ("default", *DEFERRABLE_TAGS, "runtime", "workspace", "cudagraph")

#: Of segments that are allocated in this context.
_TAG: ContextVar[Any] = ContextVar("vrampool_vllm_tag", default=None)

_PLACES = {"extension": ("vllm.cumem_allocator", "vrampool.vllm_extension"), "class": ("vllm.device_allocator.cumem", __name__)}


def install(what: Literal["extension", "class"] = "extension") -> None:
    """Puts vrampool in the place of a module of vLLM, before vLLM imports it: its extension module, or the module of its class.

    In each process of vLLM the environment variable `VRAMPOOL_VLLM` does the same, through vLLM's plugins.

    Raises: `ConfigurationError` for another word; `BusyError` when vLLM has imported its own module.
    """
    if what not in _PLACES:
        raise ConfigurationError(f"{what!r} is not a part of vLLM: use 'extension' or 'class'")
    name, own = _PLACES[what]
    module = importlib.import_module(own)
    if sys.modules.get(name) is module:
        return
    for theirs in (name, "vllm.device_allocator.cumem"):
        if theirs in sys.modules:
            raise BusyError(f"{theirs} is imported already: call vrampool.vllm.install before vLLM uses its allocator")
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)


def create_and_map(handle: Handle) -> None:
    """As `python_create_and_map`, with the handle as one argument."""
    python_create_and_map(*handle)


def unmap_and_release(handle: Handle) -> None:
    """As `python_unmap_and_release`, with the handle as one argument."""
    python_unmap_and_release(*handle)


class _Open:
    """A scope's use of a pool."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool


class CuMemAllocator(_Handle):
    """vLLM's class of this name, over vrampool's segments; one for the process, by `get_instance`.

    Differs where vLLM's loses something: a sleep waits for the work that uses the memory, and a sleep or a wake is for all allocations
    or none.
    """

    default_tag = "default"
    instance: CuMemAllocator | None = None

    @classmethod
    def get_instance(cls) -> CuMemAllocator:
        """The allocator of the process.

        Raises: `UnavailableError` without PyTorch, `BusyError` where vrampool is PyTorch's allocator already, or another allocator of
        segments is in use.
        """
        if cls.instance is None:
            cls.instance = cls()
        return cls.instance

    def __init__(self) -> None:
        self._memory = TorchMemory()
        self._torch, self._allocator = self._memory.torch, self._memory.allocator
        self._tags: set[str] = set(_CUSTOMARY_TAGS)
        # By their names in this module, where tests of vLLM replace them.
        self._segments = Segments(self._memory, self._on_malloc, lambda of: create_and_map(of), lambda of: unmap_and_release(of))
        self._segments.start()
        self.pointer_to_data = self._segments.by_address
        #: For each tag, the pools of its scopes that have segments, with their allocator.
        self.allocator_and_pools: dict[str, list[tuple[Any, Any]]] = {}
        self._graph_pool: Any = None
        # Pools that a scope allocates from, while it refers to them. The lock is held for no call of PyTorch's.
        self._open: weakref.WeakSet[_Open] = weakref.WeakSet()
        self._pools_lock = threading.Lock()
        atexit.register(self.release_pools)

    @property
    def current_tag(self) -> str:
        """The tag of segments that are allocated now, in this context: each thread and each asyncio task has its own."""
        return _native.current(_TAG) or self.default_tag

    @current_tag.setter
    def current_tag(self, tag: str) -> None:
        _native.assign(_TAG, tag)

    def _on_malloc(self, handle: Handle) -> None:
        tag = self.current_tag
        self._tags.add(tag)
        self._segments.add(handle, tag)

    def _tagged(self, tag: str) -> _native.Scope:
        self._tags.add(tag)
        return _native.Scope(_TAG, tag)

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Segments that are allocated within the scope, by this thread, have this tag. Scopes nest.

        Each scope has a pool of PyTorch's of its own, which lives as long as its segments. Memory that a pool of the tag does not use is
        released when the tag is entered again, and when the scope ends.

        Raises: `ArgumentTypeError` for a tag that is not text.
        """
        name = self.default_tag if tag is None else _arguments.text(tag, "tag").decode()
        self._segments.claim()
        with self._memory.without_expandable_segments():
            self._trim(name)
            pool = self._memory.new_pool()
            in_use = _Open(pool)
            with self._pools_lock:
                self._open.add(in_use)
                self.allocator_and_pools.setdefault(name, []).append((pool, self._allocator))
            try:
                with self._tagged(name), self._torch.cuda.use_mem_pool(pool):
                    yield
            finally:
                del pool, in_use
                self._trim(name)

    def _trim(self, tag: str) -> None:
        """Releases unused segments of a tag's pools that no scope allocates from, and the pools without other segments."""
        if self._memory.is_capturing():
            return
        with self._pools_lock:
            in_use = [of.pool for of in self._open]
            entries = [entry for entry in self.allocator_and_pools.get(tag, []) if entry[0] not in in_use]
            del in_use
        ended = []
        with contextlib.suppress(CaptureError):
            ended = [entry for entry in entries if entry[0] is not self._graph_pool and not self._segments.trim(entry[0].snapshot())]
        with self._pools_lock:
            left = [entry for entry in self.allocator_and_pools.get(tag, []) if entry not in ended]
            if left:
                self.allocator_and_pools[tag] = left
            else:
                self.allocator_and_pools.pop(tag, None)
        # Without the lock: PyTorch releases them.
        del entries, ended

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[Any]:
        """The id of a pool for the memory of CUDA graphs, for `torch.cuda.graph(graph, pool=...)` within the scope.

        Its segments have the tag `cudagraph`. The pool stays until `release_pools`.
        """
        self._segments.claim()
        if self._graph_pool is None:
            self._graph_pool = self._memory.new_pool()
            self.allocator_and_pools.setdefault("cudagraph", []).insert(0, (self._graph_pool, self._allocator))
        with self._tagged("cudagraph"):
            yield self._graph_pool.id

    def sleep(
        self, offload_tags: tuple[str, ...] | list[str] | str | None = None, progress: Progress | None = None
    ) -> SleepReport:
        """Releases the physical memory of all segments; contents of those with these tags (by default `default`) are kept.

        All of them sleep, or none. Contents that were to be discarded may be lost where the device fails. `progress` is called with the
        copied bytes and the bytes in all, after each piece. Pinned host memory of contents stays for the next sleep, until the segment
        is freed.

        Raises: `InvalidArgumentError` for a tag that does not exist; `CaptureError` during a capture.
        """
        kept = (self.default_tag,) if offload_tags is None else self._known(offload_tags, "offload_tags")
        refuse_in_capture(self._torch)
        report = self._segments.sleep(self._segments.select(lambda data: True), lambda data: data.tag in kept, progress)
        self._memory.release_idle()
        return report

    def discard(self, tags: tuple[str, ...] | list[str] | str) -> SleepReport:
        """Releases the physical memory of segments with these tags, without their contents.

        Raises: as `sleep`.
        """
        of = self._known(tags, "tags")
        refuse_in_capture(self._torch)
        return self._segments.sleep(self._segments.select(lambda data: data.tag in of), lambda data: False)

    def _known(self, tags: tuple[str, ...] | list[str] | str, name: str) -> tuple[str, ...]:
        """Tags that exist: that a scope had, or that are customary."""
        of = _arguments.tags(tags, name)
        for tag in of:
            if tag not in self._tags:
                known = ", ".join(sorted(self._tags))
                raise InvalidArgumentError(f"{tag!r} in {name} is not a tag: nothing was allocated under it; use one of {known}")
        return of

    def wake_up(self, tags: list[str] | tuple[str, ...] | str | None = None, progress: Progress | None = None) -> SleepReport:
        """Maps segments with these tags, and all that are neither `weights` nor `kv_cache`, and restores their contents; all segments
        without `tags`. All of them or none. Segments that another thread frees meanwhile are left out. `progress` is as that of
        `sleep`.

        Raises: `OutOfMemoryError`; `InvalidArgumentError` for a tag that does not exist.
        """
        named = None if tags is None else self._known(tags, "tags")
        return self._segments.wake(
            self._segments.select(lambda data: named is None or data.tag in named or data.tag not in DEFERRABLE_TAGS), progress
        )

    def get_current_usage(self) -> int:
        """Bytes of all segments, those that sleep included."""
        return sum(data.handle[1] for data in self._segments.select(lambda data: True))

    def release_pools(self) -> None:
        """Releases PyTorch's pools; a segment is freed with the last tensor in it. May be called again."""
        with self._pools_lock:
            pools, self._graph_pool = list(self.allocator_and_pools.values()), None
            self.allocator_and_pools.clear()
        pools.clear()

    def close(self) -> None:
        """As `release_pools`."""
        self.release_pools()
