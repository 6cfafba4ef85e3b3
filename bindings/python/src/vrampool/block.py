"""Blocks of pools."""

from __future__ import annotations

import contextlib
import weakref
from ctypes import byref, c_void_p, sizeof
from types import TracebackType

from . import _dlpack, memory
from ._library import LIBRARY, CBlock, finalizer
from .errors import InvalidPointerError, UnsupportedError
from .memory import Memory
from .stream import Stream


class Place(c_void_p):
    """Where the library stores a block's address. The block is freed with the last reference to it, and once.

    The library stores the address and takes it away, in one step each: no interrupt and no other thread comes between.
    """

    __del__ = finalizer(LIBRARY.plain["drop_at"])


class Block(Memory):
    """A block of memory, from `Pool.allocate`.

    It is freed by `free`, at the end of `with`, or with its last reference, behind the work on the stream it was allocated for.
    Arrays that `__dlpack__` made of it are references.

    Array libraries use it without a copy: `numpy.from_dlpack(block)` on the host, `torch.from_dlpack(block)` and
    `cupy.from_dlpack(block)` on CUDA. See `Memory` for the other interfaces.

    >>> with Pool("host", host_capacity="64MiB") as pool:
    ...     with pool.allocate("1KiB") as block:
    ...         assert len(block) == block.nbytes == 1024
    """

    __slots__ = ("__weakref__", "_exports", "_place", "address", "pool", "requested", "stream")

    #: The device's address; on the host device the host's own.
    address: int
    #: The number of bytes that were requested.
    requested: int
    #: The handle of the stream it was allocated for.
    stream: int
    #: The pool's handle.
    pool: int
    _place: Place
    _exports: list[weakref.ref[object]]

    def __init__(self) -> None:
        raise TypeError("blocks are made by Pool.allocate")

    @classmethod
    def _of(cls, place: Place, pool: int, requested: int, stream: int) -> Block:
        block = cls.__new__(cls)
        block._place = place
        block._exports = []
        block.address, block.requested, block.stream, block.pool = place.value or 0, requested, stream, pool
        return block

    @property
    def is_live(self) -> bool:
        """Whether it was not freed."""
        return self._place.value is not None

    @property
    def nbytes(self) -> int:
        """The number of bytes that were requested."""
        return self.requested

    @property
    def bytes(self) -> int:
        """The number of bytes of its size class.

        Raises: `InvalidPointerError` when it was freed.
        """
        return block_at(self._begin()).bytes

    def free(self, stream: object = None) -> None:
        """Frees it, behind the work so far on the stream it was allocated for and on `stream`.

        Of several threads one frees it, and the others raise `InvalidPointerError`.

        Raises: `InvalidPointerError` when it was freed; `BufferError` while an array that `__dlpack__` made of it exists.
        """
        if self._exports and any(export() is not None for export in self._exports):
            raise BufferError(f"{self!r} is not freed: arrays of it exist; it is freed with the last of them")
        other = None if stream is None else byref(c_void_p(Stream.of(stream)))
        if self._place.value is None:
            raise InvalidPointerError(f"the block at {self.address:#x} was freed")
        LIBRARY.call("free_at", self._place, other)

    def record_stream(self, stream: object) -> None:
        """Notes that work on `stream` uses it too: its next borrower waits for that.

        Raises: `InvalidPointerError` when it was freed.
        """
        LIBRARY.call("record_stream", self._begin(), Stream.of(stream))

    def _begin(self) -> int:
        address = self._place.value
        if address is None:
            raise InvalidPointerError(f"the block at {self.address:#x} was freed")
        return address

    def _kept(self) -> object:
        return self._place

    def _exported(self, export: object) -> None:
        self._exports = [*(known for known in self._exports if known() is not None), weakref.ref(export)]
        # Another thread may have freed it meanwhile.
        self._begin()

    def _order(self, stream: int) -> None:
        if stream != self.stream:
            self.record_stream(stream)

    def _stream(self) -> int:
        return self.stream

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device as DLPack numbers it (1: host, 2: CUDA), and the number of the device.

        Raises: `InvalidPointerError` when it was freed.
        """
        self._begin()
        backend, number = memory.device_of(self.pool)
        if backend == "cuda":
            return _dlpack.CUDA, number
        if backend == "host":
            return _dlpack.CPU, 0
        raise UnsupportedError(f"memory of a {backend} device has no addresses")

    def __enter__(self) -> Block:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # One that was freed is fine; one that arrays use is freed with the last of them.
        if self.is_live:
            with contextlib.suppress(InvalidPointerError, BufferError):
                self.free()

    def __repr__(self) -> str:
        state = "" if self.is_live else ", freed"
        return f"Block({self.requested} bytes at {self.address:#x}{state})"


class BlockInfo:
    """What is known of a live block, from `block_at`."""

    def __init__(self, block: CBlock) -> None:
        #: Where it begins.
        self.address: int = block.address
        #: The numbers of bytes that were requested, and that its size class has.
        self.requested: int = block.requested
        self.bytes: int = block.bytes
        #: The handle of its pool, also when that is closed.
        self.pool: int = block.pool
        #: The handle of the stream it was allocated for.
        self.stream: int = block.stream or 0

    def __repr__(self) -> str:
        return f"BlockInfo({self.requested} of {self.bytes} bytes at {self.address:#x})"


def block_at(address: int) -> BlockInfo:
    """What is known of the live block that begins at `address`.

    Raises: `InvalidPointerError` when none does.
    """
    block = CBlock(struct_size=sizeof(CBlock))
    LIBRARY.call("block_at", address, byref(block))
    return BlockInfo(block)
