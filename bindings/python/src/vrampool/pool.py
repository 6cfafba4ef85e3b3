"""A pool of a device's memory, its blocks and streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from ctypes import byref, c_char_p, c_int, c_uint64, c_void_p, sizeof
from types import TracebackType
from typing import Any

from . import _options
from ._library import LIBRARY, STATS, UNLIMITED, CBlock, CSleepReport, CStats, names
from ._options import Size
from .errors import Error, InvalidArgumentError, InvalidPointerError
from .stats import PoolStats, SleepReport


class Stream:
    """An ordered queue of work on a device: one of `Pool.stream`, or anybody's by its handle.

    `Stream.of` takes whatever has a handle: `torch.cuda.Stream`, `cupy.cuda.Stream`, a number.
    """

    def __init__(self, handle: int) -> None:
        #: The handle, on CUDA a `cudaStream_t`; 0 is the default stream.
        self.handle = handle

    @staticmethod
    def of(stream: object) -> int:
        """The handle of a stream: `None`, a number, a `Stream`, or an object with `cuda_stream` or `ptr`.

        Raises: `InvalidArgumentError` for anything else.
        """
        if stream is None:
            return 0
        for name in ("handle", "cuda_stream", "ptr"):
            if isinstance(handle := getattr(stream, name, None), int):
                return handle
        if isinstance(stream, int) and not isinstance(stream, bool):
            return stream
        raise InvalidArgumentError(f"{stream!r} is no stream")

    def __repr__(self) -> str:
        return f"Stream({self.handle:#x})"


class Block:
    """A block of memory. Freed by `free`, at the end of `with`, or with its last reference, behind the work on its stream.

    A live block of a CUDA device has `__cuda_array_interface__`, as bytes, so that PyTorch, CuPy and Numba use it without a copy.
    Blocks of other devices and freed ones have not.
    """

    __slots__ = ("__weakref__", "_is_live", "address", "pool", "requested", "stream")

    def __init__(self, pool: int, address: int, requested: int, stream: int) -> None:
        #: The device's address; on the host device the host's own.
        self.address = address
        #: What was asked for.
        self.requested = requested
        #: The handle of the stream it was allocated for.
        self.stream = stream
        #: The pool's handle.
        self.pool = pool
        self._is_live = True

    @property
    def is_live(self) -> bool:
        """It was not freed."""
        return self._is_live

    @property
    def bytes(self) -> int:
        """What its size class has.

        Raises: `InvalidPointerError` when it was freed.
        """
        if not self._is_live:
            raise InvalidPointerError(f"the block at {self.address:#x} was freed")
        return block_at(self.address).bytes

    def free(self, stream: object = None) -> None:
        """Frees it, behind the work so far on the stream it was allocated for and on `stream`.

        Raises: `InvalidPointerError` when it was freed.
        """
        if not self._is_live:
            raise InvalidPointerError(f"the block at {self.address:#x} was freed")
        LIBRARY.call("free", 0, self.address, self.stream if stream is None else Stream.of(stream))
        self._is_live = False

    def record_stream(self, stream: object) -> None:
        """Says that work on `stream` uses it too: its next borrower waits for that."""
        LIBRARY.call("record_stream", self.address, Stream.of(stream))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._is_live:
            raise AttributeError(f"the block at {self.address:#x} was freed, and has no __cuda_array_interface__")
        if (backend := _backend(self.pool)) != "cuda":
            raise AttributeError(f"a block of a {backend} device has no __cuda_array_interface__: its address is not CUDA's")
        return {
            "shape": (self.requested,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
            "stream": self.stream or 1,
        }

    def __enter__(self) -> Block:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_live:
            self.free()

    def __del__(self) -> None:
        # A finalizer has nobody to tell: the library keeps what it could not free, and counts it as live.
        if getattr(self, "_is_live", False):
            with contextlib.suppress(Error):
                self.free()

    def __repr__(self) -> str:
        state = "" if self._is_live else ", freed"
        return f"Block({self.requested} bytes at {self.address:#x}{state})"


class Pool:
    """A bounded pool of a device's memory. Nothing is taken before it is asked for.

    Args:
        device: `auto`, `cuda`, `cuda:1`, `cuda:GPU-<uuid>`, `host`.
        limit: the hard cap on bytes taken from the device, of all tags together.
        size_classes: `tight`, `fixed`, `power-of-two`, `geometric[:N[:FROM]]`, `multiple:UNIT`, `exact[:UNIT]`,
            `fitted:FILE`; `tight` by default where the source is virtual, else `fixed`.
        source: what serves misses: `virtual`, `direct`, `arena`, `driver`; `virtual` where the device has it.
        budget: the soft cap on bytes taken from the device, of each tag by itself.
        max_cached: the cap on idle bytes, of each tag by itself: five tags may keep five times as much.
        max_per_bucket: the cap on idle blocks in one size class of one tag.
        name: its name in metrics.
        offload: `pinned` or `pageable`, where a sleep keeps contents.
        host_capacity: with `device="host"`, a host device of its own of so many bytes, for tests.
        others: further options of `vrampool_create`, as `magazine_bytes=0`.

    Sizes are numbers of bytes or text as in `"512MiB"`. What is not given comes from the environment
    (`VRAMPOOL_BACKEND`, `VRAMPOOL_MAX_CACHED_GB`, …), then from vrampool's defaults.

    Raises: `ConfigurationError` for what cannot be, `UnavailableError` where there is no such device.

    >>> with Pool(device="host", host_capacity="64MiB") as pool:
    ...     with pool.allocate(1000) as block:
    ...         assert block.bytes >= 1000
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        limit: Size | None = None,
        size_classes: str | None = None,
        source: str | None = None,
        budget: Size | None = None,
        max_cached: Size | None = None,
        max_per_bucket: int | None = None,
        name: str | None = None,
        offload: str | None = None,
        host_capacity: Size | None = None,
        **others: Size | None,
    ) -> None:
        self._is_owned = False
        given: dict[str, Size | None] = {
            "device": device,
            "limit": limit,
            "size_classes": size_classes,
            "source": source,
            "budget": budget,
            "max_cached": max_cached,
            "max_per_bucket": max_per_bucket,
            "name": name,
            "offload": offload,
            "host_capacity": host_capacity,
        }
        self.handle = LIBRARY.number("create", _options.text({**given, **others}).encode())
        self._is_owned = True

    @classmethod
    def of_handle(cls, handle: int) -> Pool:
        """A pool that somebody else made and will end, by its number in the C ABI."""
        pool = cls.__new__(cls)
        pool.handle = handle
        pool._is_owned = False
        return pool

    def allocate(self, bytes: int, stream: object = None) -> Block:
        """A block of `bytes` bytes for work on `stream`, with undefined contents.

        Raises: `OutOfMemoryError` after idle memory was given back and the device was asked again.
        """
        if not 0 <= bytes < 2**64:
            raise InvalidArgumentError(f"{bytes} is no number of bytes")
        address, handle = c_void_p(), Stream.of(stream)
        LIBRARY.call("allocate", self.handle, bytes, handle, byref(address))
        return Block(self.handle, address.value or 0, bytes, handle)

    def stats(self) -> PoolStats:
        """Its statistics."""
        stats = CStats(struct_size=sizeof(CStats))
        LIBRARY.call("get_stats", self.handle, byref(stats))
        return PoolStats(*(getattr(stats, name) for name in STATS))

    def stats_by_tag(self) -> dict[str, Any]:
        """Its statistics as a dict, with those of each size class and tag."""
        return dict(LIBRARY.json("get_stats_json", self.handle))

    def snapshot(self) -> dict[str, Any]:
        """Its memory: segments by address, and the blocks that they consist of."""
        return dict(LIBRARY.json("snapshot", self.handle))

    def reset_peaks(self) -> None:
        """Starts the peaks anew from what is there now."""
        LIBRARY.call("reset_peaks", self.handle)

    def trim(self, cached_bytes: int = 0) -> int:
        """Gives idle memory back until at most so much is idle; answers how many bytes."""
        return LIBRARY.number("trim", self.handle, cached_bytes)

    def decay(self) -> int:
        """Gives back what a virtual pool did not need since the last call of this; answers how many bytes."""
        return LIBRARY.number("decay", self.handle)

    @property
    def limit(self) -> int:
        """The hard cap on bytes taken from the device; `UNLIMITED` for none."""
        return LIBRARY.number("get_limit", self.handle)

    @limit.setter
    def limit(self, bytes: int) -> None:
        if not 0 <= bytes <= UNLIMITED:
            raise InvalidArgumentError(f"{bytes} is no number of bytes")
        LIBRARY.call("set_limit", self.handle, bytes)

    def memory_info(self) -> tuple[int, int]:
        """The device's memory, free and in all, as its driver tells."""
        free, total = c_uint64(), c_uint64()
        LIBRARY.call("memory_info", self.handle, byref(free), byref(total))
        return free.value, total.value

    @contextlib.contextmanager
    def tag(self, name: str) -> Iterator[None]:
        """Allocations of this thread within the scope have this tag, and sleep and wake with it. Scopes nest.

        Outside of any scope the tag is `default`. The limit bounds all tags together; the caps on idle memory and the budget
        hold for each tag by itself.
        """
        LIBRARY.call("tag_begin", self.handle, name.encode())
        try:
            yield
        finally:
            LIBRARY.call("tag_end", self.handle)

    def sleep(self, keep: Iterable[str] | str = ("default",)) -> SleepReport:
        """Puts all tags to sleep: contents of those in `keep` go to the host, the others' are gone.

        Waits for the work that uses the memory. The device has its memory back, and blocks keep their addresses; they must
        not be used, but may be freed. All tags or none.

        Raises: `UnsupportedError` where the source is not virtual.
        """
        tags = _tags(keep)
        return _report("sleep", self.handle, names(tags), len(tags))

    def sleep_tags(self, tags: Iterable[str] | str, keep_contents: bool = True) -> SleepReport:
        """Puts these tags alone to sleep."""
        of = _tags(tags)
        return _report("sleep_tags", self.handle, names(of), len(of), int(keep_contents))

    def discard(self, tags: Iterable[str] | str) -> SleepReport:
        """Puts these tags alone to sleep, and forgets their contents."""
        return self.sleep_tags(tags, keep_contents=False)

    def wake(self, tags: Iterable[str] | str | None = None) -> SleepReport:
        """Wakes these tags and all that are neither `weights` nor `kv_cache`; all without any. All of them or none.

        Raises: `OutOfMemoryError` where the device's memory went elsewhere meanwhile; what sleeps goes on sleeping.
        """
        if tags is None:
            return _report("wake", self.handle, None, 0)
        of = _tags(tags)
        return _report("wake", self.handle, names(of), len(of))

    def is_asleep(self, tag: str = "default") -> bool:
        """Whether a tag is asleep; not when nothing has it."""
        asleep = c_int()
        LIBRARY.call("is_asleep", self.handle, tag.encode(), byref(asleep))
        return bool(asleep.value)

    @contextlib.contextmanager
    def stream(self) -> Iterator[Stream]:
        """A new stream on the pool's device, which ends with `with`, after its work."""
        handle = c_void_p()
        LIBRARY.call("stream_create", self.handle, byref(handle))
        try:
            yield Stream(handle.value or 0)
        finally:
            LIBRARY.call("stream_destroy", self.handle, handle)

    def retire_stream(self, stream: object) -> None:
        """Says that other code is about to destroy a stream: waits for its work, and the pool never uses it again."""
        LIBRARY.call("stream_retire", self.handle, Stream.of(stream))

    def synchronize(self, stream: object = None) -> None:
        """Waits for all work on a stream."""
        LIBRARY.call("stream_synchronize", self.handle, Stream.of(stream))

    def close(self) -> None:
        """Gives idle memory back and ends the pool. Blocks that are live stay valid. Closing twice is fine."""
        if self._is_owned:
            self._is_owned = False
            LIBRARY.call("destroy", self.handle)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Error, AttributeError):
            self.close()

    def __repr__(self) -> str:
        return f"Pool(handle={self.handle})"


def _backend(pool: int) -> str:
    """The backend of a pool's device, of a closed pool with live blocks too."""
    name = c_char_p()
    LIBRARY.call("pool_backend", pool, byref(name))
    return (name.value or b"").decode()


def block_at(address: int) -> BlockInfo:
    """What is known of the live block that begins at `address`.

    Raises: `InvalidPointerError` when none does.
    """
    block = CBlock(struct_size=sizeof(CBlock))
    LIBRARY.call("block_at", address, byref(block))
    return BlockInfo(block)


class BlockInfo:
    """What is known of a live block."""

    def __init__(self, block: CBlock) -> None:
        self.address: int = block.address
        #: What was asked for, and what its size class has.
        self.requested: int = block.requested
        self.bytes: int = block.bytes
        #: The handle of its pool, also when that is closed.
        self.pool: int = block.pool
        #: The handle of the stream it was allocated for.
        self.stream: int = block.stream or 0

    def __repr__(self) -> str:
        return f"BlockInfo({self.requested} of {self.bytes} bytes at {self.address:#x})"


def _tags(tags: Iterable[str] | str) -> list[str]:
    return [tags] if isinstance(tags, str) else list(tags)


def _report(function: str, *arguments: Any) -> SleepReport:
    report = CSleepReport(struct_size=sizeof(CSleepReport))
    LIBRARY.call(function, *arguments, byref(report))
    return SleepReport(report.physical, report.contents, report.discarded, bool(report.was_so))
