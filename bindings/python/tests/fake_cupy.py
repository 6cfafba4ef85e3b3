"""As much of CuPy as `vrampool.cupy` talks to, on the host."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any


class OutOfMemoryError(MemoryError):
    """`cupy.cuda.memory.OutOfMemoryError`."""


class UnownedMemory:
    """Foreign memory, and the object that keeps it live."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """Somewhere in it."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class ExternalStream:
    """`cupy.cuda.ExternalStream`: the handle of a foreign stream."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    @property
    def done(self) -> bool:
        raise AssertionError("the driver was asked about a stream that may be destroyed")


class CuPy(types.ModuleType):
    """The module."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.device = 0
        self.stream: Any = types.SimpleNamespace(ptr=0, done=True)
        self.own = types.SimpleNamespace(malloc=lambda size: None)
        self.set_to: Any = None
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(getDevice=lambda: self.device),
            get_current_stream=lambda: self.stream,
            ExternalStream=ExternalStream,
            MemoryPointer=MemoryPointer,
            UnownedMemory=UnownedMemory,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            set_allocator=self._set,
            using_allocator=self._using,
        )

    def _set(self, malloc: Any) -> None:
        self.set_to = malloc

    @contextlib.contextmanager
    def _using(self, malloc: Any) -> Iterator[None]:
        before, self.set_to = self.set_to, malloc
        yield
        self.set_to = before

    def get_default_memory_pool(self) -> Any:
        return self.own
