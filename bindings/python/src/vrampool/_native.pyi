"""The native part of the package, whose file has the functions of the C ABI too. `native/src` documents what only the package uses."""

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, SupportsIndex, final

from typing_extensions import CapsuleType, Self, disjoint_base

from .block import Block as _Block

__all__ = [
    "ABI",
    "OPTIONS",
    "VERSION",
    "Around",
    "Block",
    "Callbacks",
    "Export",
    "Imported",
    "Package",
    "Pool",
    "Scope",
    "SegmentCallbacks",
    "assign",
    "current",
    "export_dlpack",
    "figures_of_pools",
    "figures_of_sleep",
    "size",
]

#: The version of the C ABI, and that of the package.
ABI: int
VERSION: str

#: All options of pools.
OPTIONS: tuple[str, ...]

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
class Export: ...

@final
class Imported:
    def __new__(cls, capsule: object) -> Self: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def is_read_only(self) -> bool: ...

@final
class Package:
    def __new__(
        cls,
        block: type[_Block],
        size: Callable[[SupportsIndex | str], int],
        stream: Callable[[object], int],
        tags: ContextVar[Any],
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
) -> CapsuleType: ...

@final
class Callbacks:
    def __new__(cls, *, work: Callable[[int], object] | None = None, progress: Callable[..., object] | None = None) -> Self: ...
    @property
    def user(self) -> int: ...
    @property
    def on_chunk(self) -> int: ...
    @property
    def on_progress(self) -> int: ...
    @property
    def on_copy(self) -> int: ...
    def check(self) -> None: ...

_Functions = tuple[Callable[[tuple[int, int, int, int]], object], Callable[[int], object]]

@final
class SegmentCallbacks:
    def __new__(cls, tag: Callable[[object], str | None], failed: Callable[[Exception], int]) -> Self: ...
    @property
    def user(self) -> int: ...
    @property
    def addresses(self) -> tuple[int, int]: ...
    @property
    def functions(self) -> _Functions | None: ...
    @property
    def live(self) -> int: ...
    def set(self, functions: _Functions | None = None) -> None: ...

@final
class Scope:
    def __new__(cls, variable: ContextVar[Any], value: object, pool: int = 0, *, is_of_thread: bool = False) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Around:
    def __new__(cls, begin: Callable[[], object], end: Callable[[], object]) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exception: object) -> None: ...

def current(variable: ContextVar[Any], pool: int | None = None) -> Any: ...

def size(text: str, name: str) -> int: ...

def assign(variable: ContextVar[Any], value: object) -> None: ...

def figures_of_pools() -> list[tuple[str, str]]: ...

def figures_of_sleep() -> list[tuple[str, str]]: ...
