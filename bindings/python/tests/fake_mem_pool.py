"""PyTorch's allocator, as far as pools over foreign functions go: it calls them under its lock and keeps freed segments."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from fake_torch import Allocator, Torch


class MemPool:
    """`torch.cuda.MemPool`. Its segments outlive it as long as blocks in them live."""

    def __init__(self, pools: Pools, allocator: Allocator | None) -> None:
        self.id = pools.begin(allocator)
        self._pools = pools

    def snapshot(self) -> list[dict[str, int]]:
        return self._pools.snapshot(self.id)

    def __del__(self) -> None:
        self._pools.end(self.id)


class Pools:
    """One block in a segment."""

    def __init__(self, torch: Torch) -> None:
        self.lock = threading.RLock()
        self.torch = torch
        self._scopes = threading.local()
        self._last = 0
        #: By id: the functions, and bytes and liveness of segments by address.
        self._segments: dict[tuple[int, int], dict[int, tuple[int, bool]]] = {}
        self._functions: dict[tuple[int, int], Any] = {}
        self._ended: set[tuple[int, int]] = set()
        #: Memory of pools without functions.
        self._own: dict[int, Any] = {}
        torch.cuda.MemPool = lambda allocator=None: MemPool(self, allocator)
        torch.cuda.graph = lambda graph, pool, stream, capture_error_mode: self.use(pool)
        torch.cuda.use_mem_pool = lambda pool: self.use(pool.id)
        torch.accelerator.empty_cache = self.empty_cache
        torch.accelerator.synchronize = lambda device: torch.log.append(("synchronize", device))

    def begin(self, allocator: Allocator | None) -> tuple[int, int]:
        self._last += 1
        id = (0, self._last)
        self._segments[id] = {}
        if allocator is None:
            self._functions[id] = (self._allocate, lambda address, size, device, stream: self._own.pop(address))
            return id
        path, alloc, free = allocator.functions
        library = ctypes.CDLL(path)
        allocate, release = getattr(library, alloc), getattr(library, free)
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        release.restype, release.argtypes = None, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self._functions[id] = (allocate, release)
        return id

    def _allocate(self, size: int, device: int, stream: None) -> int:
        memory = (ctypes.c_ubyte * size)()
        self._own[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    @contextlib.contextmanager
    def use(self, id: tuple[int, int]) -> Iterator[None]:
        """Allocations of this thread are served by a pool; also what `torch.cuda.graph(pool=id)` does."""
        scopes: list[tuple[int, int]] = self._scopes.__dict__.setdefault("ids", [])
        scopes.append(id)
        try:
            yield
        finally:
            scopes.pop()

    def empty(self, size: int) -> int:
        """`torch.empty`, in the innermost pool of this thread; the address."""
        id = self._scopes.ids[-1]
        with self.lock:
            for address, (bytes, is_live) in self._segments[id].items():
                if not is_live and bytes == size:
                    self._segments[id][address] = (size, True)
                    return address
            address = self._functions[id][0](size, 0, None)
            if address is None:
                raise MemoryError("CUDA out of memory")
            self._segments[id][address] = (size, True)
            return int(address)

    def free(self, address: int) -> None:
        """The end of a tensor."""
        with self.lock:
            for segments in self._segments.values():
                if address in segments:
                    segments[address] = (segments[address][0], False)

    def snapshot(self, id: tuple[int, int]) -> list[dict[str, int]]:
        with self.lock:
            return [
                {"address": address, "total_size": size, "allocated_size": size if is_live else 0}
                for address, (size, is_live) in self._segments[id].items()
            ]

    def end(self, id: tuple[int, int]) -> None:
        self._ended.add(id)
        self._release()

    def empty_cache(self) -> None:
        self.torch.log.append("empty_cache")
        self._release()

    def _release(self) -> None:
        """Frees unused segments of pools that ended."""
        with self.lock:
            for id in self._ended:
                for address, (size, is_live) in list(self._segments[id].items()):
                    if not is_live:
                        del self._segments[id][address]
                        self._functions[id][1](address, size, 0, None)
