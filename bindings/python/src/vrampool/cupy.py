"""vrampool below CuPy: `install()` for the process, `allocator()` for a scope."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _arguments, _native, _options
from ._arguments import UNLIMITED
from ._handle import Handle
from ._library import LIBRARY
from .errors import BusyError, Error, InvalidPointerError, OutOfMemoryError, UnavailableError
from .pool import Pool
from .stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options, Size

_lock = threading.Lock()
_installed: CuPyAllocator | None = None


def _cupy() -> ModuleType:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise UnavailableError(f"CuPy cannot be imported: {error}") from error


def _taken(table: dict[Any, Any], key: object) -> tuple[Any, int]:
    """An entry, which is taken out of the table, and how many references to it are seen from here."""
    entry = table.pop(key)
    return entry, sys.getrefcount(entry)


#: That number of an entry without other references. It is not the same in all versions of Python.
_ALONE = _taken({None: object()}, None)[1]


class _Owner(_native.Block):
    """What keeps a block live: CuPy's memory refers to it, and the block is freed with its last reference, as by CuPy's own pools
    behind the stream that it was allocated for."""

    __slots__ = ()


class CuPyAllocator(Handle):
    """What `cupy.cuda.set_allocator` takes: its `malloc`, or itself. One pool for each device, made when it is needed.

    Memory is for CuPy's current stream: reused on that stream at once, and elsewhere behind a wait on the device. Say
    `record_stream` where another stream uses an array.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._cupy = _cupy()
        cuda = self._cupy.cuda
        # What each call takes, looked up once.
        self._device, self._current_stream = cuda.runtime.getDevice, cuda.get_current_stream
        self._pointer, self._unowned = cuda.MemoryPointer, cuda.UnownedMemory
        # Checked now, so that an invalid option is an error here.
        _options.text(options)
        self._options = options
        self._pools: dict[int, Pool] = {}
        # CuPy destroys a stream with its last reference, and the driver crashes on a destroyed one: so the pool, which may
        # have idle memory of it, keeps it until no other reference exists, and releases it first.
        self._streams: dict[tuple[int, int], Any] = {}
        # What is collected within may come back here.
        self._lock = threading.RLock()

    def pool(self, device: int | None = None) -> Pool:
        """The pool of a device; CuPy's current one by default."""
        index = self._device() if device is None else device
        pool = self._pools.get(index)
        if pool is None:
            with self._lock:
                pool = self._pools.get(index)
                if pool is None:
                    options: dict[str, Any] = {"device": f"cuda:{index}", "name": f"cupy-{index}", **self._options}
                    pool = self._pools[index] = Pool(**options)
        return pool

    def _keep(self, index: int, pool: Pool, stream: Any) -> Any:
        """Keeps a stream that was not seen yet, and releases those without other references. Returns the one that is
        kept, because there may be many objects of one stream."""
        with self._lock:
            for place in [place for place in self._streams if place[0] == index]:
                kept, references = _taken(self._streams, place)
                if references > _ALONE or place[1] == stream.ptr or not self._may_go(kept):
                    self._streams[place] = kept
                else:
                    # Its handle is not used again, also where its work had failed. Its work is done: nothing is waited for.
                    with contextlib.suppress(Error):
                        LIBRARY.call("stream_retire", pool.handle, kept.ptr)
                del kept
            return self._streams.setdefault((index, stream.ptr), stream)

    def _may_go(self, stream: Any) -> bool:
        """Whether a stream without other references may be released now: one that CuPy owns, whose work is done.

        The owner of an external stream may have destroyed it already; the driver crashes on such a handle.
        """
        external = getattr(self._cupy.cuda, "ExternalStream", None)
        return not (external is not None and isinstance(stream, external)) and bool(stream.done)

    def retire_stream(self, stream: Any) -> None:
        """Says that an external stream is about to be destroyed by its owner: waits for its work, and its handle is never used again.
        To be called before, wherever arrays were made on it.
        """
        with self._lock:
            for index, pool in list(self._pools.items()):
                if self._streams.pop((index, stream.ptr), None) is not None:
                    pool.retire_stream(stream.ptr)

    def malloc(self, size: int) -> Any:
        """A `cupy.cuda.MemoryPointer` to so many bytes.

        Raises: `cupy.cuda.memory.OutOfMemoryError`, with vrampool's failure as its cause.
        """
        index = self._device()
        if size == 0:
            return self._pointer(self._unowned(0, 0, None, index), 0)
        pool = self._pools.get(index) or self.pool(index)
        current, owner = self._current_stream(), _Owner()
        # Referred to until the block refers to it: it is not let go meanwhile.
        kept = self._streams.get((index, current.ptr)) or self._keep(index, pool, current)
        try:
            # The block keeps the stream that the allocator keeps, which so sees that a block is live.
            address = pool._allocate_into(size, kept.ptr, owner, kept)
        except OutOfMemoryError as error:
            limit = 0 if error.limit in (None, UNLIMITED) else error.limit
            raise self._cupy.cuda.memory.OutOfMemoryError(size, error.held or 0, limit) from error
        return self._pointer(self._unowned(address, size, owner, index), 0)

    __call__ = malloc

    def record_stream(self, array: Any, stream: Any) -> None:
        """Says that work on `stream` uses an array too: its memory is not reused before that is done.

        Raises: `InvalidPointerError` for memory of another allocator.
        """
        memory = array.data.mem
        owner = getattr(memory, "_owner", None)
        if isinstance(owner, _Owner):
            LIBRARY.call("record_stream", owner.address, Stream.of(stream))
        elif memory.size != 0:
            raise InvalidPointerError(f"the array's memory, a {type(memory).__name__}, is not vrampool's")

    def used_bytes(self) -> int:
        """Bytes of the current device's pool that arrays have, rounded to classes; as `cupy.cuda.MemoryPool` names it."""
        return self.pool().stats().live_bytes

    def total_bytes(self) -> int:
        """Bytes that the current device's pool took from the device."""
        return self.pool().stats().reserved_bytes

    def free_bytes(self) -> int:
        """The rest of them."""
        stats = self.pool().stats()
        return stats.reserved_bytes - stats.live_bytes

    def free_all_blocks(self) -> int:
        """Gives idle memory of all devices back; answers how many bytes."""
        return sum(pool.trim() for pool in list(self._pools.values()))

    def set_limit(self, size: Size | None = None, fraction: float | None = None) -> None:
        """The hard cap of the current device's pool: bytes, or a share of the device's memory; 0 or nothing for none.

        Raises: `ValueError` for both, or what is no size or share.
        """
        if size is not None and fraction is not None:
            raise ValueError("size and fraction exclude each other")
        pool = self.pool()
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise ValueError(f"fraction={fraction} is not between 0 and 1")
            size = int(pool.memory_info()[1] * fraction)
        pool.limit = _arguments.size(0 if size is None else size, "size") or UNLIMITED

    def get_limit(self) -> int:
        """That cap; 0 for none."""
        limit = self.pool().limit
        return 0 if limit == UNLIMITED else limit


def install(**options: Unpack[Options]) -> CuPyAllocator:
    """Makes vrampool CuPy's allocator, with the options of `vrampool.Pool` for each device's pool. Arrays that are there
    keep the memory that they have. Installing twice with the same options gives the same allocator.

    Raises: `UnavailableError` without CuPy, `BusyError` when it is installed with other options.
    """
    global _installed
    with _lock:
        if _installed is not None:
            if _installed._options != options:
                raise BusyError(f"CuPy has vrampool already, with {_installed._options}; uninstall() that first")
            return _installed
        made = CuPyAllocator(**options)
        made._cupy.cuda.set_allocator(made.malloc)
        _installed = made
        return made


def uninstall() -> None:
    """Gives CuPy its own pool back. Arrays that are there keep the memory that they have."""
    global _installed
    with _lock:
        if _installed is not None:
            cupy = _installed._cupy
            cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
            _installed = None


@contextlib.contextmanager
def allocator(**options: Unpack[Options]) -> Iterator[CuPyAllocator]:
    """vrampool as this thread's allocator of CuPy's, within `with`."""
    made = CuPyAllocator(**options)
    with made._cupy.cuda.using_allocator(made.malloc):
        yield made
