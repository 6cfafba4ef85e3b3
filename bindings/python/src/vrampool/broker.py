"""Batches of arrays that are computed in chunks: as many runs at a time as fit the device.

    with vrampool.Pool("cuda:0") as pool, vrampool.Broker(pool) as broker:
        client = broker.client("solver", share="50%")
        rates = client.input("rates", (runs,), "f4")
        states = client.output("states", (100, runs), "f4", axis=1)
        rates.numpy()[:] = numpy.linspace(2, 4, runs)
        broker.run(lambda chunk: solve(chunk[rates], chunk[states], chunk.stream))
        print(states.numpy().mean())  # no copy

A run copies the part of each input to the device, calls the work, and copies the part of each output back. Results are the same as in
one piece. NumPy is needed for `numpy` methods alone.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from . import _arguments, _native, _options
from ._batch_arrays import Array, Chunk, Layout, Part, type_of
from ._handle import Closable
from ._library import LIBRARY
from .errors import ClosedError, Error, InvalidArgumentError
from .memory import device_of
from .pool import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, SupportsIndex

    from ._arguments import Size

__all__ = ["Array", "Broker", "Chunk", "Client", "Part", "Plan", "Progress", "RunReport"]

_ROLES = ("input", "output", "in_out", "scratch")


class Plan(NamedTuple):
    """How a batch is divided; a run may use finer chunks.

    Attributes:
        runs: runs of the batch.
        chunk_runs: runs of a chunk; the last one may have fewer.
        chunks: chunks.
        streams: chunks that are on the device at a time, each on its own stream.
    """

    runs: int
    chunk_runs: int
    chunks: int
    streams: int


class Progress(NamedTuple):
    """The progress of a run.

    Attributes:
        chunks_done: completed chunks.
        runs_done: completed runs.
        runs: runs of the batch.
    """

    chunks_done: int
    runs_done: int
    runs: int


class RunReport(NamedTuple):
    """The report of a run.

    Attributes:
        chunks: chunks.
        runs: runs of the batch.
        chunk_runs: runs of a chunk at the end.
        streams: streams that ran chunks.
        shrinks: how often chunks became finer because others needed memory.
        copied_bytes: bytes copied to and from the device.
        nanoseconds: the duration.
    """

    chunks: int
    runs: int
    chunk_runs: int
    streams: int
    shrinks: int
    copied_bytes: int
    nanoseconds: int


class Broker(Closable):
    """Shares the device of a pool between clients, and runs their batches in chunks that fit. Its memory is a child of the pool: within
    the pool's limit, and in its statistics and metrics.

    Args:
        pool: the pool, which is closed after the broker.
        name: its name in metrics, and that of the child.
        reserve: bytes of the device that are left to other processes.
        budget: the cap on bytes of all clients together: the child's limit.
        staging: the cap on pinned blocks for copies, with `staging_block`, the size of one.
        pinned_max: the cap on pinned bytes.
        spill_threshold: host arrays that would exceed this together are in files of `spill_directory`.

    Raises: `ConfigurationError`, a `ValueError`, for a value that cannot be; `ClosedError` for a closed pool.

    >>> with Pool("host", host_capacity="64MiB") as pool, Broker(pool, budget="1MiB") as broker:
    ...     client = broker.client("doubler")
    ...     numbers = client.input("numbers", (1000,), "f4")
    ...     broker.commit()
    Plan(runs=1000, chunk_runs=1000, chunks=1, streams=1)
    """

    def __init__(
        self,
        pool: Pool,
        *,
        name: str | None = None,
        reserve: Size | None = None,
        budget: Size | None = None,
        staging: Size | None = None,
        staging_block: Size | None = None,
        pinned_max: Size | None = None,
        spill_threshold: Size | None = None,
        spill_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._handle: int | None = None
        given: dict[str, Size | None] = {
            "name": name,
            "reserve": reserve,
            "budget": budget,
            "staging": staging,
            "staging_block": staging_block,
            "pinned_max": pinned_max,
            "spill_threshold": spill_threshold,
            "spill_directory": None if spill_directory is None else os.fspath(spill_directory),
        }
        text = _arguments.text(_options.text(given, tuple(given)), "options")
        self._pool = pool
        # By client and label: a batch needs its arrays, whether or not the program keeps them.
        self._arrays: dict[tuple[int, str], Array] = {}
        self._is_on_host = device_of(pool.handle)[0] == "host"
        self._handle = LIBRARY.number("broker_create", pool.handle, text)

    def client(self, name: str, *, group: str = "default", share: str | SupportsIndex = "auto") -> Client:
        """Registers a client: the owner of arrays, and of a share of the device.

        Args:
            name: its name in metrics.
            group: clients of a group are committed and run together.
            share: the part of the device that it may hold: `auto`, a percentage as in `"25%"`, or bytes as in `"1GiB"`.

        Raises: `InvalidArgumentError`, a `ValueError`, for a share that is not there; `ConfigurationError` for text that is none.
        """
        part = share if isinstance(share, str) else str(_arguments.size(share, "share"))
        texts = [_arguments.text(of, name_of) for of, name_of in ((name, "name"), (group, "group"), (part, "share"))]
        return Client(self, LIBRARY.number("broker_register", self.handle, *texts))

    def commit(self, group: str = "default", *, streams: int = 0, chunk_runs: int = 0) -> Plan:
        """Allocates memory for all that the clients of a group have queued, or for as many runs at a time as fit.

        Args:
            group: the group.
            streams: the most streams of a run from now on, each with a thread that calls the work; 0 leaves them, 1 at first.
            chunk_runs: the most runs of a chunk from now on; 0 leaves them: as many as fit at first.

        Raises: `OutOfMemoryError` for a batch that does not fit, however it is cut; `BusyError` while the group runs.
        """
        from ._abi import CPlan

        most = [_arguments.number(streams, "streams", 64), _arguments.number(chunk_runs, "chunk_runs", 64)]
        plan = LIBRARY.struct("broker_commit", self.handle, _arguments.text(group, "group"), *most, of=CPlan)
        return Plan(plan.runs, plan.chunk_runs, plan.chunks, plan.streams)

    def run(
        self,
        work: Callable[[Chunk], object],
        *,
        group: str = "default",
        progress: Callable[[Progress], object] | None = None,
    ) -> RunReport:
        """Runs the batch of a group, committed if that was not done, and returns when all is complete.

        Args:
            work: is called with each chunk, and enqueues its work on the chunk's stream; on several threads where the plan has
                several streams.
            group: the group.
            progress: is called after each chunk, by the thread that ran it.

        Raises: what `work` or `progress` raised first, after which no further chunk begins; `BusyError` while the group runs. Earlier
        chunks are complete then.
        """
        from ._abi import CChunk, CRunReport

        def on_chunk(address: int) -> None:
            chunk = Chunk(self._pool, self._is_on_host, CChunk.from_address(address))
            try:
                work(chunk)
            finally:
                chunk._end()

        def on_progress(*done: int) -> None:
            if progress is not None:
                progress(Progress(*done))

        calls, name = _native.Callbacks(work=on_chunk, progress=on_progress), _arguments.text(group, "group")
        passed = (name, calls.on_chunk, calls.on_progress, calls.user)
        report = LIBRARY.struct("broker_run", self.handle, *passed, of=CRunReport, callbacks=calls)
        return RunReport(*(getattr(report, name) for name in RunReport._fields))

    def stats(self) -> dict[str, Any]:
        """Its figures by name, those of each client in `by_client`, and those of its memory in `pool`."""
        return dict(LIBRARY.json("broker_get_stats_json", self.handle))

    @property
    def handle(self) -> int:
        """Its number in the C ABI.

        Raises: `ClosedError`.
        """
        if self._handle is None:
            raise ClosedError("the broker is closed")
        return self._handle

    def close(self) -> None:
        """Ends the broker and its clients, after a run of another thread. Arrays keep their host memory. Closing twice is fine."""
        handle, self._handle = self._handle, None
        if handle is not None:
            LIBRARY.call("broker_destroy", handle)
            self._arrays.clear()

    def __del__(self) -> None:
        # At the interpreter's end the library may be unloaded.
        with contextlib.suppress(Error, AttributeError, TypeError):
            self.close()

    def __repr__(self) -> str:
        return f"<Broker {'closed' if self._handle is None else self._handle}>"


class Client(Closable):
    """A client of a broker, from `Broker.client`. It ends with `close`, or with its broker."""

    def __init__(self, broker: Broker, handle: int) -> None:
        self._broker = broker
        self._handle = handle

    def input(self, label: str, shape: Sequence[int], dtype: Any, *, axis: int | None = 0, order: str = "C") -> Array:
        """Queues an array that is copied to the device before each chunk. Write its host memory before a run. The client keeps it until
        one of the same label replaces it, or the client is closed.

        Args:
            label: an earlier array of the client with this label is replaced.
            shape: the numbers of elements.
            dtype: the type of elements: `"f4"`, `"<i8"`, or what `numpy.dtype` takes.
            axis: the axis of runs, along which it may be cut; `None` if each chunk needs all of it.
            order: `C` for row-major elements, `F` for column-major ones.

        Raises: `InvalidArgumentError`, a `ValueError`, for a shape, an axis or an order that cannot be; `ArgumentTypeError`, a `TypeError`.
        """
        return self._queue(0, label, shape, dtype, axis, order)

    def output(self, label: str, shape: Sequence[int], dtype: Any, *, axis: int | None = 0, order: str = "C") -> Array:
        """Queues an array that is copied to the host after each chunk. Otherwise as `input`."""
        return self._queue(1, label, shape, dtype, axis, order)

    def in_out(self, label: str, shape: Sequence[int], dtype: Any, *, axis: int | None = 0, order: str = "C") -> Array:
        """Queues an array that is copied to the device and back. Otherwise as `input`."""
        return self._queue(2, label, shape, dtype, axis, order)

    def scratch(self, label: str, shape: Sequence[int], dtype: Any, *, axis: int | None = 0, order: str = "C") -> Array:
        """Queues an array on the device alone, with undefined contents when a chunk begins. Otherwise as `input`."""
        return self._queue(3, label, shape, dtype, axis, order)

    def _queue(self, role: int, label: str, shape: Sequence[int], dtype: Any, axis: int | None, order: str) -> Array:
        from ctypes import c_uint64

        typestr, itemsize = type_of(dtype)
        extents = tuple(_arguments.number(extent, "shape", 64) for extent in shape)
        if order not in ("C", "F"):
            raise InvalidArgumentError(f"order={order!r}: use C or F")
        if axis is not None and not 0 <= _arguments.number(axis, "axis", 31, signed=True) < len(extents):
            raise InvalidArgumentError(
                f"axis={axis} is not one of {len(extents)} dimensions; use None for an array that is not divided"
            )
        # Column-major elements are row-major ones of the reversed shape.
        rows = extents if order == "C" else extents[::-1]
        at = -1 if axis is None else axis if order == "C" else len(extents) - 1 - axis
        numbers = (c_uint64 * len(rows))(*rows)
        name = _arguments.text(label, "label")
        handle = LIBRARY.number("client_queue", self._handle, role, name, numbers, len(rows), itemsize, at)
        array = Array(handle, label, _ROLES[role], Layout(typestr, itemsize, extents, order), axis)
        self._broker._arrays[self._handle, label] = array
        return array

    def close(self) -> None:
        """Ends the client, with its memory on the device and its share. Its arrays keep their host memory. Closing twice is fine."""
        # It may have ended with its broker; its number is never another client's.
        with contextlib.suppress(ClosedError):
            LIBRARY.call("client_destroy", self._handle)
        arrays = self._broker._arrays
        for place in [place for place in list(arrays) if place[0] == self._handle]:
            arrays.pop(place, None)
