"""As much of PyTorch as `install` and `mem_pool` talk to: what they call, and what was given."""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Iterator
from typing import Any

SETTERS = (
    *("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn"),
    *("set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"),
)


class Allocator:
    """PyTorch's object: takes functions as numbers."""

    def __init__(self, *given: int, functions: tuple[str, str, str] = ("", "", "")) -> None:
        self.given, self.functions = given, functions
        self.hooks: dict[str, int] = {}
        for setter in SETTERS:
            setattr(self, setter, lambda address, setter=setter: self.hooks.__setitem__(setter, address))


class Pluggable:
    """`torch.cuda.memory.CUDAPluggableAllocator`."""

    def __init__(self, path: str, alloc: str, free: str) -> None:
        self.arguments = (path, alloc, free)
        self._allocator = Allocator(functions=(path, alloc, free))

    def allocator(self) -> Allocator:
        return self._allocator


class MemPool:
    """`torch.cuda.MemPool`."""

    def __init__(self, allocator: Allocator, use_on_oom: bool = False, no_split: bool = False) -> None:
        self.allocator = allocator
        self.id = (0, 7)


class HostTensor:
    """Bytes."""

    def __init__(self, address: int, size: int, keep: object = None) -> None:
        self.address, self.size, self.keep = address, size, keep

    def __getitem__(self, range: slice) -> HostTensor:
        return HostTensor(self.address + range.start, range.stop - range.start, self)

    def view(self, shape: object) -> HostTensor:
        return self

    def clone(self) -> HostTensor:
        memory = (ctypes.c_ubyte * self.size)()
        ctypes.memmove(memory, self.address, self.size)
        return HostTensor(ctypes.addressof(memory), self.size, memory)


class Torch(types.ModuleType):
    """The module."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.__version__ = "2.11.0"
        self.current: Pluggable | None = None
        self.is_used = False
        self.log: list[Any] = []
        cuda: Any = types.ModuleType("torch.cuda")
        memory: Any = types.ModuleType("torch.cuda.memory")
        memory.CUDAPluggableAllocator = Pluggable
        memory.change_current_allocator = self._change
        for module in (cuda, memory):
            for name in (
                *("memory_stats", "memory_snapshot", "reset_peak_memory_stats"),
                "get_per_process_memory_fraction",
            ):
                setattr(module, name, self._refuse)
        memory._snapshot = memory._dump_snapshot = self._refuse
        cuda.memory = memory
        cuda.is_initialized = lambda: self.is_used
        self.has_gpu = True
        self.is_captured = False
        cuda.is_current_stream_capturing = lambda: self.is_captured
        cuda.is_available = lambda: self.has_gpu
        cuda.current_device = self._current
        cuda._utils = types.SimpleNamespace(_get_device_index=self._index)
        cuda.synchronize = lambda device=None: self.log.append(("synchronize", device))
        cuda.empty_cache = lambda: self.log.append("empty_cache")
        cuda.MemPool = MemPool
        cuda.use_mem_pool = self._use
        core: Any = types.SimpleNamespace(_cuda_customAllocator=None)
        for name in ("_cuda_beginAllocateToPool", "_cuda_endAllocateToPool", "_cuda_releasePool"):
            setattr(core, name, lambda device, id, name=name: self.log.append((name, device, id)))
        self.cuda, self._C, self.uint8 = cuda, core, "uint8"
        # From 2.9 on: of the native allocator, whatever the current one is.
        accelerator: Any = types.ModuleType("torch.accelerator")
        accelerator.memory = types.ModuleType("torch.accelerator.memory")
        for module in (accelerator, accelerator.memory):
            module.empty_cache = lambda: self.log.append("the native allocator was emptied")
            module.memory_stats = lambda device_index=None, /: {}
            module.reset_peak_memory_stats = lambda device_index=None, /: None
        self.accelerator = accelerator

    def _change(self, allocator: Pluggable) -> None:
        self.current = allocator

    @staticmethod
    def _refuse(*_: object) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    def _current(self) -> int:
        if not self.has_gpu:
            raise RuntimeError("No CUDA GPUs are available")
        return 0

    def _index(self, device: object, optional: bool = False) -> int:
        _, colon, number = str(device).partition(":")
        return int(number) if colon else self._current()

    def frombuffer(self, buffer: Any, *, dtype: object) -> HostTensor:
        return HostTensor(ctypes.addressof(buffer), len(buffer), buffer)

    @contextlib.contextmanager
    def _use(self, pool: MemPool, device: int | None = None) -> Iterator[None]:
        self.log.append(("begin", device, pool.id))
        yield
        self.log.append(("end", device, pool.id))
