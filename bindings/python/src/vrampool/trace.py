"""Traces: allocations and frees, in order. Recorded from a pool, loaded from files, written for other programs.

    with vrampool.trace.record() as recording:  # PyTorch's pool, once vrampool.torch.install() made it
        train_one_step()
    recording.trace.save("step.pickle")  # https://pytorch.org/memory_viz opens it
    print(vrampool.trace.show(recording.trace))

Formats are `csv` (vrampool's own: `op,id,size,stream,t_us,v2`, and a last line that counts), `rmm` (RMM's log) and `pytorch` (a memory snapshot, of which
nothing is run when it is read). `cargo vrampool replay FILE` replays each of them, and `cargo vrampool fit FILE` learns size
classes from it.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from ctypes import byref, c_uint64
from dataclasses import dataclass
from typing import Any

from . import _arguments
from ._handle import Handle
from ._library import LIBRARY
from .errors import ClosedError, Error, InvalidArgumentError
from .pool import Pool

#: The default capacity in events of 16 bytes.
DEFAULT_EVENTS = 1 << 20

#: Where a file is.
File = str | os.PathLike[str]


class LossWarning(UserWarning):
    """A property of a trace that `convert` could not keep in the format it wrote."""


@dataclass(frozen=True)
class SizeRange:
    """Allocations of some sizes: at least `start` bytes, at most `stop`."""

    start: int
    stop: int
    allocations: int
    #: Theirs together.
    bytes: int
    #: Of all allocations, 0 to 1.
    share: float


@dataclass(frozen=True)
class Summary:
    """A trace in a few numbers. Sizes are bytes as they were asked for, before any rounding."""

    trace: str
    events: int
    allocations: int
    frees: int
    #: Allocations that are live at the end.
    never_freed: int
    #: Allocations that the recording dropped for lack of room.
    dropped: int
    streams: int
    distinct_sizes: int
    #: Of all allocations.
    requested: int
    #: The most that was live at once.
    peak_requested: int
    largest: int
    #: Microseconds.
    duration_us: int
    sizes: tuple[SizeRange, ...]
    #: What in its file contradicts itself or is missing, a text for each kind.
    warnings: tuple[str, ...] = ()


class Trace(Handle):
    """A recorded sequence of allocations and frees. From `record`, `load` or `convert`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def summary(self) -> Summary:
        """It in a few numbers."""
        figures: dict[str, Any] = LIBRARY.json("trace_show", self._handle)
        ranges = figures.pop("sizes")
        sizes = [SizeRange(of["from"], of["to"], of["allocations"], of["bytes"], of["share"]) for of in ranges]
        warnings = tuple(figures.pop("warnings"))
        return Summary(**figures, sizes=tuple(sizes), warnings=warnings)

    def save(self, path: File, format: str | None = None) -> None:
        """Writes it in place of the previous file: as `csv`, `rmm` or `pytorch`; without a format as `pytorch` where the name ends with `.pickle` or `.pkl`,
        else as `csv`. Gzip-compressed where the name ends with `.gz`.

        Raises: `InvalidArgumentError` for a path that cannot be written, or what is no format.
        """
        LIBRARY.call("trace_save", self._handle, _bytes(path), _text(format))

    def plot(self, path: File, pool: Pool, picture: str | None = None) -> None:
        """Draws it, in place of the previous file, as a pool of the host with the settings of `pool` and the memory of its
        device serves it. `pool` itself is not used, and its tags are drawn together.

        `picture` is `page` (HTML that works offline), or `bytes` or `addresses` (SVG); without one `bytes` where the name
        ends with `.svg`, else `page`.

        Raises: `InvalidArgumentError` for a path that cannot be written, an unknown picture, or a trace that exceeds the pool.
        """
        LIBRARY.call("trace_plot", self._handle, pool.handle, _bytes(path), _text(picture, "picture"))

    def __del__(self) -> None:
        # At the interpreter's end the library may be unloaded.
        with contextlib.suppress(Error, AttributeError, TypeError):
            LIBRARY.call("trace_free", self._handle)

    def __repr__(self) -> str:
        of = self.summary()
        return f"Trace({of.trace!r}, {of.events} events)"


class Recording(Handle):
    """A pool that is recorded, within `record`, and what was recorded, after it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ended: tuple[Trace | None, int] | None = None

    @property
    def trace(self) -> Trace:
        """What was recorded: so far, within `record`; all of it after its end.

        Raises: `ClosedError` where the pool was closed meanwhile.
        """
        trace, _ = self._look()
        if trace is None:
            raise ClosedError("the pool was closed while it was recorded; take the trace before")
        return trace

    def plot(self, path: File, picture: str | None = None) -> None:
        """Draws what was recorded so far, as `Trace.plot` does, with the settings of the recorded pool.

        >>> with Pool(device="host", host_capacity="64MiB") as pool, record(pool) as recording:
        ...     pool.allocate(1000).free()
        ...     recording.plot(os.devnull)
        """
        self.trace.plot(path, self._pool, picture)

    @property
    def dropped(self) -> int:
        """Allocations that were left out because there was no room for them."""
        return self._look()[1]

    def _look(self) -> tuple[Trace | None, int]:
        return self._ended or _taken("record_look", self._pool)

    def _end(self) -> None:
        try:
            self._ended = _taken("record_stop", self._pool)
        except ClosedError:
            self._ended = (None, 0)


@contextlib.contextmanager
def record(pool: Pool | None = None, *, device: object = None, events: int = DEFAULT_EVENTS) -> Iterator[Recording]:
    """Records what a pool serves within `with`, of all threads and tags, and which of that comes back.

    Args:
        pool: whose; without one PyTorch's (`vrampool.torch.pool(device)`).
        device: of PyTorch's pool: a number, `"cuda:1"`, a `torch.device`; its current one by default.
        events: how many there is room for, 16 bytes each. Allocations that find none are left out, with their frees, and counted
            (`Recording.dropped`).

    What is live before is not in it, and what is live at its end is not freed in it. It costs some tens of nanoseconds a call.

    Raises: `BusyError` while the pool is recorded already.

    >>> with Pool(device="host", host_capacity="64MiB") as pool:
    ...     with record(pool) as recording:
    ...         pool.allocate(1000).free()
    ...     assert recording.trace.summary().events == 2
    """
    count = _arguments.integer(events, "events")
    if not 0 < count < 2**63:
        raise InvalidArgumentError(f"events={events} is not a number of events")
    if pool is None:
        from .torch import pool as torch_pool

        pool = torch_pool(device)
    elif device is not None:
        raise InvalidArgumentError("pool and device exclude each other")
    LIBRARY.call("record_start", pool.handle, count)
    recording = Recording(pool)
    try:
        yield recording
    finally:
        recording._end()


def load(path: File, format: str | None = None, device: int | None = None) -> Trace:
    """Reads a trace of any format, gzip-compressed or not, detected from its content unless `format` names it. `device` is which
    one of a snapshot; the first that has a history by default. Nothing that a file says is run.

    Raises: `InvalidArgumentError`, with the place in the file and what to do.
    """
    return Trace(LIBRARY.number("trace_load", _bytes(path), _text(format), _device(device)))


def convert(
    source: File,
    target: File,
    *,
    from_format: str | None = None,
    to_format: str | None = None,
    device: int | None = None,
) -> Trace:
    """Reads a file as `load` does, writes it as `Trace.save` does, and returns the trace.

    Each property of the trace that the format does not keep is reported as a `LossWarning`. The written file is read back before it
    replaces the previous one.

    Raises: `InvalidArgumentError` for what cannot be read or written, and for a target that is also the source.
    """
    trace = c_uint64()
    arguments = (_bytes(source), _text(from_format), _device(device), _bytes(target), _text(to_format), byref(trace))
    not_kept = LIBRARY.json("trace_convert", *arguments)
    converted = Trace(trace.value)
    for line in not_kept:
        warnings.warn(f"{os.fspath(target)}: {line}", LossWarning, stacklevel=2)
    return converted


def show(trace: Trace | File) -> str:
    """A trace, or one in a file, as a table for people."""
    of = (trace if isinstance(trace, Trace) else load(trace)).summary()
    rows = [(name.replace("_", " "), value) for name, value in vars(of).items() if isinstance(value, int)]
    lines = [of.trace, *(f"  {name:<26}{value:>20,}" for name, value in rows), "  sizes, bytes"]
    lines += [
        f"  {size.start:>16,} to {size.stop:>16,}{size.allocations:>12,} times {100 * size.share:>5.1f} %"
        for size in of.sizes
    ]
    return "\n".join(lines) + "\n"


def _taken(function: str, pool: Pool) -> tuple[Trace, int]:
    trace, dropped = LIBRARY.values(function, pool.handle, of=(c_uint64, c_uint64))
    return Trace(trace), dropped


def _device(device: int | None) -> int:
    if device is None:
        return -1
    if not 0 <= device < 2**31:
        raise InvalidArgumentError(f"device={device} is not a device number")
    return device


def _bytes(path: File) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{path!r} is not a path: it has an embedded NUL")
    return encoded


def _text(text: str | None, name: str = "format") -> bytes | None:
    return None if text is None else _arguments.text(text, name)
