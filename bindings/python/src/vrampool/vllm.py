"""Segments in the shape of vLLM's `cumem_allocator`: memory whose physical side a caller takes away and gives back.

`init_module`, `python_create_and_map`, `python_unmap_and_release`, `my_malloc` and `my_free` are what vLLM's extension module
has; `CuMemAllocator` is the part of its Python class that programs use. Contents are not kept by the former: copy them
before.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._abi import FreeCallback, MallocCallback
from ._handle import Handle as _Handle
from ._library import LIBRARY, PATH
from .errors import BusyError, InvalidArgumentError, InvalidPointerError
from .stream import Stream
from .torch import _install

if TYPE_CHECKING:
    from ._arguments import Size

#: Device, bytes, address, number: what names a segment.
Handle = tuple[int, int, int, int]

#: Tags that wake only when they are named.
DEFERRABLE_TAGS = ("weights", "kv_cache")

_log = logging.getLogger("vrampool")

#: Of segments that are allocated in this context.
_TAG: ContextVar[str] = ContextVar("vrampool_vllm_tag", default="default")

#: The callbacks that C holds.
_told: tuple[Any, Any] | None = None
_handles: dict[int, Handle] = {}


def init_module(python_malloc_callback: Callable[[Handle], object], python_free_callback: Callable[[int], object]) -> None:
    """Who is told: of each segment once it is mapped, by its handle; and of each before it goes, by its address.

    They are called without any lock of vrampool's, but take Python's, as vLLM's do: PyTorch's allocator may have its own at
    that time, so that no other thread should let tensors go meanwhile. What they raise is printed, and goes no further.
    (vLLM's tells the first before the segment is mapped, and is left with an address of nothing where that fails.)
    """
    global _told

    def on_malloc(_user: object, device: int, size: int, address: int, number: int) -> None:
        _handles[address] = (device, size, address, number)
        python_malloc_callback(_handles[address])

    def on_free(_user: object, address: int) -> None:
        _handles.pop(address, None)
        python_free_callback(address)

    told = (MallocCallback(on_malloc), FreeCallback(on_free))
    LIBRARY.call("segment_callbacks", *told, None)
    _told = told


def forget_callbacks() -> None:
    """Nobody is told any longer."""
    global _told
    LIBRARY.call("segment_callbacks", MallocCallback(), FreeCallback(), None)
    _told = None


def python_create_and_map(device: int, size: int, ptr: int, handle: int) -> Handle:
    """Gives a segment physical memory again at its address, with undefined contents. Fine when it has some.

    Raises: `OutOfMemoryError`, and the segment is as it was; `MismatchError` where the four are not one segment's.
    """
    LIBRARY.call("segment_create_and_map", device, size, ptr, handle)
    return device, size, ptr, handle


def python_unmap_and_release(device: int, size: int, ptr: int, handle: int) -> Handle:
    """Takes the physical memory of a segment away, after the work that uses it; its address stays. Fine when it is so.

    Raises: `MismatchError` where the four are not one segment's.
    """
    LIBRARY.call("segment_unmap_and_release", device, size, ptr, handle)
    return device, size, ptr, handle


def my_malloc(size: Size, device: int = 0, stream: object = None) -> int:
    """A segment, mapped; its address.

    Raises: what vrampool failed with. (PyTorch calls the C function, which throws its own exceptions.)
    """
    if (bytes := _arguments.size(size, "size")) == 0:
        raise InvalidArgumentError("size=0 is no size of a segment")
    LIBRARY.plain["clear_error"]()
    address: int | None = LIBRARY.plain["segment_alloc"](bytes, device, Stream.of(stream))
    if address is None:
        raise LIBRARY.last_failure() or InvalidArgumentError("no segment was made")
    return address


def my_free(address: int, size: int = 0, device: int = 0, stream: int = 0) -> None:
    """Frees a segment, mapped or not, after the work that uses it.

    Raises: `InvalidPointerError` where no segment begins.
    """
    LIBRARY.plain["clear_error"]()
    LIBRARY.plain["segment_free"](address, size, device, stream)
    if (failure := LIBRARY.last_failure()) is not None:
        raise failure


@dataclass
class AllocationData:
    """What `CuMemAllocator` knows of a segment."""

    handle: Handle
    tag: str
    #: A tensor on the host, while it sleeps with its contents.
    cpu_backup_tensor: Any = None
    is_asleep: bool = False


class _Bytes:
    """A segment, as PyTorch takes foreign memory."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class CuMemAllocator(_Handle):
    """vLLM's class of this name, over vrampool's segments; one for the process, by `get_instance`.

    Differs where vLLM's loses something: a sleep waits for the work that uses the memory, and a wake is for all
    allocations or none.
    """

    default_tag = "default"
    _instance: CuMemAllocator | None = None

    @classmethod
    def get_instance(cls) -> CuMemAllocator:
        """The one.

        Raises: `UnavailableError` without PyTorch, `BusyError` where vrampool is PyTorch's allocator already.
        """
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def __init__(self) -> None:
        self._torch = _install.pytorch()
        if _install.is_installed():
            raise BusyError("vrampool is PyTorch's allocator already: say vrampool.torch.tag, sleep and wake_up")
        self.pointer_to_data: dict[int, AllocationData] = {}
        # One sleep or wake at a time. Not of the callbacks, which PyTorch makes under its own lock.
        self._changing = threading.Lock()
        self._pools: list[Any] = []
        memory = self._torch.cuda.memory
        self._allocator = memory.CUDAPluggableAllocator(PATH, "vrampool_segment_alloc", "vrampool_segment_free")
        init_module(self._on_malloc, self._on_free)
        # The last first: what is freed when Python is no longer there tells nobody.
        atexit.register(forget_callbacks)
        atexit.register(self.release_pools)

    @property
    def current_tag(self) -> str:
        """The tag of segments that are allocated now, in this context: each thread and each asyncio task has its own."""
        return _TAG.get()

    @current_tag.setter
    def current_tag(self, tag: str) -> None:
        _TAG.set(tag)

    def _on_malloc(self, handle: Handle) -> None:
        self.pointer_to_data[handle[2]] = AllocationData(handle, self.current_tag)

    def _on_free(self, address: int) -> None:
        self.pointer_to_data.pop(address, None)

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Segments that are allocated within the scope, by this thread, have this tag. Scopes nest."""
        token = _TAG.set(tag or self.default_tag)
        try:
            pool = self._torch.cuda.MemPool(self._allocator.allocator())
            self._pools.append(pool)
            with self._torch.cuda.use_mem_pool(pool):
                yield
        finally:
            with contextlib.suppress(ValueError):
                _TAG.reset(token)

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Releases the physical memory of all segments; contents of those with these tags (by default `default`) are kept.

        All of them sleep, or none. Contents that were to be discarded may be lost where the device fails.
        """
        kept = (self.default_tag,) if offload_tags is None else offload_tags
        self._sleep(lambda data: True, (kept,) if isinstance(kept, str) else tuple(kept))

    def discard(self, tags: tuple[str, ...] | list[str] | str) -> None:
        """Releases the physical memory of segments with these tags, without their contents."""
        of = (tags,) if isinstance(tags, str) else tuple(tags)
        self._sleep(lambda data: data.tag in of, ())

    def _sleep(self, takes: Callable[[AllocationData], bool], kept: tuple[str, ...]) -> None:
        self._torch.cuda.synchronize()
        with self._changing:
            going = [data for data in list(self.pointer_to_data.values()) if not data.is_asleep and takes(data)]
            # Those whose contents are gone with their memory come last.
            going.sort(key=lambda data: data.tag not in kept)
            unmapped: list[AllocationData] = []
            try:
                for data in going:
                    if data.tag in kept:
                        data.cpu_backup_tensor = self._backup(data)
                for data in going:
                    unmapped.append(data)
                    self._unmap(data)
                for data in going:
                    data.is_asleep = True
            except BaseException:
                for data in unmapped:
                    self._restore(data)
                for data in going:
                    if not data.is_asleep:
                        data.cpu_backup_tensor = None
                raise

    def _restore(self, data: AllocationData) -> None:
        """Wakes a segment of a sleep that failed; where that fails too, it sleeps with what is known of its contents."""
        try:
            python_create_and_map(*data.handle)
            self._fill(data)
            data.is_asleep = False
        except Exception:
            data.is_asleep = data.handle[2] in self.pointer_to_data
            _log.exception("a segment of %d bytes stays asleep; wake_up tries it again", data.handle[1])

    def _unmap(self, data: AllocationData) -> None:
        try:
            python_unmap_and_release(*data.handle)
        except InvalidPointerError:
            # One that was freed meanwhile is neither awake nor asleep.
            if self.pointer_to_data.get(data.handle[2]) is data:
                raise

    def _on_device(self, data: AllocationData) -> Any:
        device, size, address, _ = data.handle
        return self._torch.as_tensor(_Bytes(address, size), device=f"cuda:{device}")

    def _backup(self, data: AllocationData) -> Any:
        torch = self._torch
        backup = torch.empty(data.handle[1], dtype=torch.uint8, device="cpu", pin_memory=True)
        backup.copy_(self._on_device(data))
        return backup

    def _fill(self, data: AllocationData) -> None:
        if data.cpu_backup_tensor is not None:
            self._on_device(data).copy_(data.cpu_backup_tensor)

    def wake_up(self, tags: list[str] | tuple[str, ...] | None = None) -> None:
        """Maps segments with these tags, and all that are neither `weights` nor `kv_cache`, and restores their contents; all segments
        without `tags`. All of them or none.

        Raises: `OutOfMemoryError`.
        """
        self._torch.cuda.empty_cache()
        with self._changing:
            coming = [
                data
                for data in list(self.pointer_to_data.values())
                if data.is_asleep and (tags is None or data.tag in tags or data.tag not in DEFERRABLE_TAGS)
            ]
            mapped: list[AllocationData] = []
            try:
                for data in coming:
                    mapped.append(data)
                    python_create_and_map(*data.handle)
                for data in coming:
                    self._fill(data)
            except BaseException:
                for data in mapped:
                    self._unmap(data)
                raise
            for data in coming:
                data.is_asleep, data.cpu_backup_tensor = False, None

    def get_current_usage(self) -> int:
        """Bytes of all segments, those that sleep included."""
        return sum(data.handle[1] for data in list(self.pointer_to_data.values()))

    def release_pools(self) -> None:
        """Forgets PyTorch's pools: segments go back when the last tensor in them is gone."""
        self._pools.clear()
