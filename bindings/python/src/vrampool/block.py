"""Blocks of pools."""

from __future__ import annotations

from . import _native, memory
from ._library import LIBRARY
from .errors import InvalidPointerError, UnsupportedError
from .memory import Memory
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._abi import CBlock


class Block(_native.Block, Memory):
    """A block of memory, from `Pool.allocate`.

    It is freed by `free`, at the end of `with`, or with its last reference, behind the work on the stream it was allocated for.
    Arrays that `__dlpack__` made of it are references.

    Array libraries use it without a copy: `numpy.from_dlpack(block)` on the host, `torch.from_dlpack(block)` and
    `cupy.from_dlpack(block)` on CUDA. See `Memory` for the other interfaces.

    >>> with Pool("host", host_capacity="64MiB") as pool:
    ...     with pool.allocate("1KiB") as block:
    ...         assert len(block) == block.nbytes == 1024
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("blocks are made by Pool.allocate")

    @property
    def bytes(self) -> int:
        """The number of bytes of its size class.

        Raises: `InvalidPointerError` when it was freed.
        """
        return block_at(self._begin()).bytes

    def record_stream(self, stream: object) -> None:
        """Notes that work on `stream` uses it too: its next borrower waits for that.

        Raises: `InvalidPointerError` when it was freed.
        """
        LIBRARY.call("record_stream", self._begin(), Stream.of(stream))

    def _begin(self) -> int:
        if not self.is_live:
            raise InvalidPointerError(f"the block at {self.address:#x} was freed")
        return self.address

    def _kept(self) -> object:
        return self._export()

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
            return memory.CUDA, number
        if backend == "host":
            return memory.CPU, 0
        raise UnsupportedError(f"memory of a {backend} device has no addresses")

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
    from ._abi import CBlock

    return BlockInfo(LIBRARY.struct("block_at", address, of=CBlock))
