"""The native part of the package, whose file has the functions of the C ABI too."""

from collections.abc import Callable
from types import TracebackType
from typing import SupportsIndex, final

from typing_extensions import CapsuleType, Self, disjoint_base

from .block import Block as _Block

__all__ = ["ABI", "VERSION", "Block", "Export", "Imported", "Package", "Pool", "export_dlpack", "use_tags"]

#: The version of the C ABI, and that of the package.
ABI: int
VERSION: str

@disjoint_base
class Block:
    """An address that is freed with the last reference, and once."""

    def __new__(cls) -> Self: ...
    @property
    def address(self) -> int:
        """The device's address; on the host device the host's own."""
    @property
    def requested(self) -> int:
        """The number of bytes that were requested."""
    @property
    def nbytes(self) -> int:
        """The number of bytes that were requested."""
    @property
    def stream(self) -> int:
        """The handle of the stream it was allocated for."""
    @property
    def pool(self) -> int:
        """The pool's handle."""
    @property
    def is_live(self) -> bool:
        """Whether it was not freed."""
    def free(self, stream: object = None) -> None:
        """Frees it, behind the work so far on the stream it was allocated for and on `stream`."""
    def _export(self) -> Export: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None: ...

@final
class Export:
    """One use of a block's memory: while it exists `free` is refused."""

@final
class Imported:
    """Memory of another library, until this object ends."""

    def __new__(cls, capsule: object) -> Self: ...
    @property
    def address(self) -> int:
        """Where it begins."""
    @property
    def nbytes(self) -> int:
        """The number of bytes."""
    @property
    def device(self) -> tuple[int, int]:
        """The kind of device, as DLPack numbers it, and the device's number."""
    @property
    def is_read_only(self) -> bool:
        """Whether it must not be written."""

@final
class Package:
    """The class of blocks, and functions in Python that the native classes call."""

    def __new__(
        cls,
        block: type[_Block],
        size: Callable[[SupportsIndex | str], int],
        stream: Callable[[object], int],
        tags: Callable[[], dict[int, bytes]],
    ) -> Self: ...

@disjoint_base
class Pool:
    """Where blocks come from."""

    def __new__(cls, *_arguments: object, **_options: object) -> Self: ...
    @property
    def handle(self) -> int:
        """Its number in the C ABI, which no other pool ever has."""
    def allocate(self, bytes: SupportsIndex | str, stream: object = None) -> _Block:
        """A block of memory, with undefined contents."""
    def _allocate_into(self, bytes: int, stream: int, block: Block, keep: object = None) -> int: ...
    def _create(self, package: Package, options: bytes) -> None: ...
    def _adopt(self, package: Package, handle: int) -> None: ...

def export_dlpack(
    address: int, nbytes: int, device: tuple[int, int], keep: object, *, versioned: bool, read_only: bool
) -> CapsuleType:
    """A capsule of so many bytes, which refers to `keep` as long as anybody has the memory."""

def use_tags() -> None:
    """Says that allocations have tags from now on."""
