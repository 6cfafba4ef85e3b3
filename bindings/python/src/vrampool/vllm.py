"""Segments in the shape of vLLM's `cumem_allocator`: memory whose physical side a caller takes away and gives back.

`init_module`, `python_create_and_map`, `python_unmap_and_release`, `my_malloc` and `my_free` are what vLLM's extension module
has; `CuMemAllocator` is the part of its Python class that programs use. Contents are not kept by the former: copy them
before.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ._library import LIBRARY, PATH, Handle as _Handle, FreeCallback, MallocCallback
from .errors import BusyError, InvalidArgumentError
from .torch import _install

#: Device, bytes, address, number: what names a segment.
Handle = tuple[int, int, int, int]

#: Tags that wake only when they are named.
DEFERRABLE_TAGS = ("weights", "kv_cache")

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


def my_malloc(size: int, device: int = 0, stream: int = 0) -> int:
    """A segment, mapped; its address.

    Raises: what vrampool failed with. (PyTorch calls the C function, which throws its own exceptions.)
    """
    LIBRARY.plain["clear_error"]()
    if size <= 0:
        raise InvalidArgumentError(f"{size} is no size of a segment")
    address: int | None = LIBRARY.plain["segment_alloc"](size, device, stream)
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
        self.current_tag = self.default_tag
        self._lock = threading.RLock()
        self._pools: list[Any] = []
        memory = self._torch.cuda.memory
        self._allocator = memory.CUDAPluggableAllocator(PATH, "vrampool_segment_alloc", "vrampool_segment_free")
        init_module(self._on_malloc, self._on_free)
        # The last first: what is freed when Python is no longer there tells nobody.
        atexit.register(forget_callbacks)
        atexit.register(self.release_pools)

    def _on_malloc(self, handle: Handle) -> None:
        with self._lock:
            self.pointer_to_data[handle[2]] = AllocationData(handle, self.current_tag)

    def _on_free(self, address: int) -> None:
        with self._lock:
            self.pointer_to_data.pop(address, None)

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """What this thread allocates within is of segments with this tag. Scopes nest."""
        before, self.current_tag = self.current_tag, tag or self.default_tag
        pool = self._torch.cuda.MemPool(self._allocator.allocator())
        self._pools.append(pool)
        try:
            with self._torch.cuda.use_mem_pool(pool):
                yield
        finally:
            self.current_tag = before

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Takes the physical memory of all segments; contents of those with these tags (by default `default`) are kept."""
        kept = (self.default_tag,) if offload_tags is None else offload_tags
        self._sleep(lambda data: True, (kept,) if isinstance(kept, str) else kept)

    def discard(self, tags: tuple[str, ...] | list[str] | str) -> None:
        """Takes that of segments with these tags, without contents."""
        of = (tags,) if isinstance(tags, str) else tuple(tags)
        self._sleep(lambda data: data.tag in of, ())

    def _sleep(self, takes: Callable[[AllocationData], bool], kept: tuple[str, ...]) -> None:
        torch = self._torch
        torch.cuda.synchronize()
        with self._lock:
            going = [data for data in self.pointer_to_data.values() if not data.is_asleep and takes(data)]
        for data in going:
            _, size, address, _ = data.handle
            if data.tag in kept:
                source = torch.as_tensor(_Bytes(address, size), device=f"cuda:{data.handle[0]}")
                backup = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
                backup.copy_(source)
                data.cpu_backup_tensor = backup
            python_unmap_and_release(*data.handle)
            data.is_asleep = True

    def wake_up(self, tags: list[str] | tuple[str, ...] | None = None) -> None:
        """Gives segments with these tags, and all that are neither `weights` nor `kv_cache`, their memory and contents back;
        all segments without any. All of them or none.

        Raises: `OutOfMemoryError`.
        """
        torch = self._torch
        torch.cuda.empty_cache()
        with self._lock:
            coming = [
                data
                for data in self.pointer_to_data.values()
                if data.is_asleep and (tags is None or data.tag in tags or data.tag not in DEFERRABLE_TAGS)
            ]
        mapped: list[AllocationData] = []
        try:
            for data in coming:
                python_create_and_map(*data.handle)
                mapped.append(data)
        except BaseException:
            for data in mapped:
                python_unmap_and_release(*data.handle)
            raise
        for data in coming:
            device, size, address, _ = data.handle
            if (backup := data.cpu_backup_tensor) is not None:
                torch.as_tensor(_Bytes(address, size), device=f"cuda:{device}").copy_(backup)
                data.cpu_backup_tensor = None
            data.is_asleep = False

    def get_current_usage(self) -> int:
        """Bytes of all segments, those that sleep included."""
        with self._lock:
            return sum(data.handle[1] for data in self.pointer_to_data.values())

    def release_pools(self) -> None:
        """Forgets PyTorch's pools: segments go back when the last tensor in them is gone."""
        self._pools.clear()
