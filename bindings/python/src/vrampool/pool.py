"""A pool of a device's memory."""

from __future__ import annotations

import contextlib
import os

from . import _arguments, _native, _options, _tags
from ._handle import Closable
from ._library import LIBRARY
from .block import Block, BlockInfo, block_at
from .errors import ClosedError, Error, OutOfMemoryError
from .memory import device_of
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from typing_extensions import Unpack

    from ._options import Options, Size
    from .stats import PoolStats, SleepReport

__all__ = ["Block", "BlockInfo", "Pool", "Stream", "block_at"]


#: What the native classes need of this package.
_PACKAGE = _native.Package(Block, _arguments.size, Stream.of, _tags.CURRENT)


class Pool(_native.Pool, Closable):
    """A bounded pool of a device's memory. Nothing is taken before it is asked for.

    Args:
        device: `auto`, `cuda`, `cuda:1`, `cuda:GPU-<uuid>`, `host`.
        options: options of `vrampool_create`, which the guide's page of settings lists: `limit`, `size_classes`, `source`, `budget`,
            `max_cached_bytes`, `overlap`, `initial`, `name` and others; `file`, a file of settings, for those without an argument or a
            variable; `offload`, where a sleep keeps contents: `pinned` (the default) or `pageable`; `host_capacity`, with
            `device="host"`, of a separate host device for tests. `limit`, `budget` and `max_cached_bytes` are of all tags together,
            the others of each tag.

    Sizes are integers (bytes) or text as in `"512MiB"`. What is not given comes from the environment
    (`VRAMPOOL_BACKEND`, `VRAMPOOL_MAX_CACHED_BYTES`, …), then from vrampool's defaults.

    Raises: `ConfigurationError`, a `ValueError`, for a value that cannot be; `ArgumentTypeError`, a `TypeError`, for an unknown option
    and for a value of another type; `UnavailableError` where there is no such device.

    >>> with Pool(device="host", host_capacity="64MiB") as pool:
    ...     with pool.allocate(1000) as block:
    ...         assert block.bytes >= 1000
    """

    def __init__(self, device: str = "auto", **options: Unpack[Options]) -> None:
        self._is_owned = False
        text = _arguments.text(_options.text({"device": device, **options}), "options")
        # Opened before the first pool, which may log something.
        from . import _abi as _abi

        self._is_owned = True
        self._create(_PACKAGE, text)

    @classmethod
    def of_handle(cls, handle: int) -> Pool:
        """A pool that other code made and ends, by its number in the C ABI."""
        pool = cls.__new__(cls)
        pool._is_owned = False
        pool._adopt(_PACKAGE, handle)
        return pool

    @property
    def name(self) -> str:
        """Its name in metrics.

        Raises: `ClosedError`.
        """
        return str(self.stats_as_dict()["pool"])

    @property
    def device(self) -> str:
        """Its device, as `Pool` takes it: `host`, `cuda:0`.

        Raises: `ClosedError` when it is closed and has no live blocks.
        """
        backend, number = device_of(self.handle)
        return backend if backend == "host" else f"{backend}:{number}"

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        try:
            LIBRARY.number("get_limit", self.handle)
        except ClosedError:
            return True
        return False

    def _failure(self, size: int, status: int) -> Error:
        """What an allocation of so many bytes failed with; out of memory has its numbers, as they are now."""
        error = LIBRARY.failure(status)
        if isinstance(error, OutOfMemoryError):
            error.requested = size
            # The error itself matters more than numbers that cannot be had.
            with contextlib.suppress(Error):
                stats = self.stats()
                error.held, error.limit = stats.reserved_bytes, stats.limit_bytes
                error.free = self.memory_info()[0]
        return error

    def stats(self) -> PoolStats:
        """Its statistics."""
        from .stats import CStats, PoolStats

        stats = LIBRARY.struct("get_stats", self.handle, of=CStats)
        return PoolStats(*(getattr(stats, name) for name in PoolStats._fields))

    def stats_by_tag(self) -> dict[str, dict[str, Any]]:
        """The statistics of each tag, with those of its size classes."""
        return dict(self.stats_as_dict()["tags"])

    def stats_as_dict(self) -> dict[str, Any]:
        """Its statistics as a dict, with those of each tag."""
        return dict(LIBRARY.json("get_stats_json", self.handle))

    def snapshot(self) -> dict[str, Any]:
        """Its memory: segments by address, and the blocks that they consist of. `plot` draws it, and `vrampool trace plot` its JSON."""
        return dict(LIBRARY.json("snapshot", self.handle))

    def plot(self, path: str | os.PathLike[str], picture: str | None = None) -> None:
        """Draws its memory at this moment, in place of the previous file: live blocks, pages, holes and pending frees. `picture` is as of
        `Trace.plot`.

        >>> with Pool(device="host", host_capacity="64MiB") as pool:
        ...     pool.plot(os.devnull)

        Raises: `InvalidArgumentError` for a path that cannot be written, or an unknown picture.
        """
        name = None if picture is None else _arguments.text(picture, "picture")
        LIBRARY.call("trace_plot", 0, self.handle, _arguments.text(os.fsdecode(path), "path"), name)

    def reset_peaks(self) -> None:
        """Starts the peaks anew from what is there now."""
        LIBRARY.call("reset_peaks", self.handle)

    def trim(self, cached_bytes: Size = 0) -> int:
        """Releases idle memory until at most `cached_bytes` are idle. Returns the number of released bytes."""
        return LIBRARY.number("trim", self.handle, _arguments.size(cached_bytes, "cached_bytes"))

    def decay(self) -> int:
        """Releases what a virtual pool did not need since the last call; returns the number of bytes."""
        return LIBRARY.number("decay", self.handle)

    @property
    def limit(self) -> int:
        """The hard cap on bytes taken from the device; `UNLIMITED` for none."""
        return LIBRARY.number("get_limit", self.handle)

    @limit.setter
    def limit(self, bytes: Size) -> None:
        LIBRARY.call("set_limit", self.handle, _arguments.size(bytes, "limit"))

    def memory_info(self) -> tuple[int, int]:
        """The device's memory, free and in all, as its driver reports it."""
        from ctypes import c_uint64

        free, total = LIBRARY.values("memory_info", self.handle, of=(c_uint64, c_uint64))
        return free, total

    def tag(self, name: str) -> _native.Scope:
        """Allocations within the scope have this tag, and sleep and wake with it. Scopes nest.

        The tag belongs to the current context (`contextvars`): each asyncio task and each thread has its own. Pools that PyTorch
        allocates from are under the tag with the whole thread. Outside of any scope the tag is `default`. A scope ends where
        it is left, in whatever thread that is.

        The limit, the budget and `max_cached_bytes` bound all tags together.

        Raises: `UnsupportedError` where the source is not virtual; `InvalidArgumentError` for an empty name; `ClosedError`.
        """
        return _native.Scope(_tags.CURRENT, _arguments.text(name, "tag"), self.handle, is_of_thread=not self._is_owned)

    def sleep(self, keep: Iterable[str] | str = ("default",), progress: Callable[[int, int], object] | None = None) -> SleepReport:
        """Puts all tags to sleep: contents of those in `keep` go to the host, the others' are discarded.

        Waits for the work that uses the memory. The device has its memory back, and blocks keep their addresses; they must
        not be used, but may be freed. All tags or none. `progress` is called with the copied bytes and the bytes in all, after
        each piece; it must not wait for a thread that allocates. An exception in it is logged, an interrupt is raised when the
        memory sleeps.

        Raises: `UnsupportedError` where the source is not virtual; `InvalidArgumentError` for a tag that does not exist.
        """
        return _report("sleep", progress, self.handle, *_names(keep))

    def sleep_tags(
        self, tags: Iterable[str] | str, keep_contents: bool = True, progress: Callable[[int, int], object] | None = None
    ) -> SleepReport:
        """Puts these tags alone to sleep. `progress` is as that of `sleep`."""
        return _report("sleep_tags", progress, self.handle, *_names(tags), int(keep_contents))

    def discard(self, tags: Iterable[str] | str) -> SleepReport:
        """Puts these tags alone to sleep, and forgets their contents."""
        return self.sleep_tags(tags, keep_contents=False)

    def wake(self, tags: Iterable[str] | str | None = None, progress: Callable[[int, int], object] | None = None) -> SleepReport:
        """Wakes these tags and all that are neither `weights` nor `kv_cache`; all without any. All of them or none. `progress` is as
        that of `sleep`.

        Raises: `OutOfMemoryError` where the device's memory went elsewhere meanwhile; what sleeps goes on sleeping.
        """
        if tags is None:
            return _report("wake", progress, self.handle, None, 0)
        return _report("wake", progress, self.handle, *_names(tags))

    def is_asleep(self, tag: str = "default") -> bool:
        """Whether a tag is asleep.

        Raises: `InvalidArgumentError` for a tag that does not exist, as `sleep`, `sleep_tags`, `discard` and `wake`.
        """
        from ctypes import c_int

        return bool(*LIBRARY.values("is_asleep", self.handle, _arguments.text(tag, "tag"), of=(c_int,)))

    @contextlib.contextmanager
    def stream(self) -> Iterator[Stream]:
        """A new stream on the pool's device, which ends with `with`, after its work."""
        from ctypes import byref, c_void_p

        handle = c_void_p()
        try:
            LIBRARY.call("stream_create", self.handle, byref(handle))
            yield Stream(handle.value or 0)
        finally:
            if handle.value is not None:
                LIBRARY.call("stream_destroy", self.handle, handle)

    def retire_stream(self, stream: object) -> None:
        """Says that other code is about to destroy a stream: waits for its work, and the pool never uses it again."""
        LIBRARY.call("stream_retire", self.handle, Stream.of(stream))

    def synchronize(self, stream: object = None) -> None:
        """Waits for all work on a stream."""
        LIBRARY.call("stream_synchronize", self.handle, Stream.of(stream))

    def close(self) -> None:
        """Releases idle memory and ends the pool. Blocks that are live stay valid. Closing twice is fine."""
        if self._is_owned:
            # Its number is never another pool's: of several calls one does it.
            with contextlib.suppress(ClosedError):
                LIBRARY.call("destroy", self.handle)
            self._is_owned = False

    def __del__(self) -> None:
        # At the interpreter's end nothing can be imported any more, and the process's memory is released anyway.
        with contextlib.suppress(Error, AttributeError, ImportError):
            self.close()

    def __repr__(self) -> str:
        try:
            stats = self.stats()
            return f"<Pool {self.name!r} on {self.device}: {stats.live_bytes} bytes live, {stats.reserved_bytes} bytes reserved>"
        except Error as error:
            state = "closed" if isinstance(error, ClosedError) else type(error).__name__
            return f"<Pool {self.handle}: {state}>"


def _names(tags: Iterable[str] | str) -> tuple[Any, int]:
    """Tags as C takes them, and how many there are."""
    from ._abi import names

    of = [tags] if isinstance(tags, str) else list(tags)
    return names(of), len(of)


def _report(function: str, progress: Callable[[int, int], object] | None, *arguments: Any) -> SleepReport:
    from ctypes import byref, sizeof

    from . import _progress
    from .stats import CSleepReport, SleepReport

    report = CSleepReport(struct_size=sizeof(CSleepReport))
    _progress.call(function, *arguments, progress=progress, report=(byref(report),))
    return SleepReport(*(getattr(report, name) for name in SleepReport._fields))._replace(no_op=bool(report.no_op))
