"""Arrays of a broker's batches: on the host, and in the chunks of a run."""

from __future__ import annotations

import contextlib
import sys
from typing import NamedTuple

from . import _arguments
from ._handle import Handle
from ._library import LIBRARY
from .errors import ArgumentTypeError, ClosedError, Error, InvalidArgumentError, UnavailableError, UnsupportedError
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pool import Pool


class Layout(NamedTuple):
    """The type, shape and order of an array, for array interfaces."""

    typestr: str
    itemsize: int
    shape: tuple[int, ...]
    order: str

    def interface(self, address: int) -> dict[str, Any]:
        """The elements at an address."""
        step, strides = self.itemsize, [0] * len(self.shape)
        axes = range(len(self.shape)) if self.order == "F" else reversed(range(len(self.shape)))
        for axis in axes:
            strides[axis] = step
            step *= self.shape[axis]
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "strides": tuple(strides),
            "data": (address, False),
            "version": 3,
        }


class Array(Handle):
    """An array that a client queued, with host memory where it is copied. NumPy arrays of it keep the memory."""

    def __init__(self, handle: int, label: str, role: str, layout: Layout, axis: int | None) -> None:
        self._handle = handle
        self._layout = layout
        #: Its label.
        self.label = label
        #: `input`, `output`, `in_out` or `scratch`.
        self.role = role
        #: The axis of runs.
        self.axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of elements."""
        return self._layout.shape

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return _bytes_of(self._layout)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Its host memory, for NumPy."""
        try:
            return self._interface()
        except Error as error:
            raise AttributeError(f"{self!r} has no __array_interface__: {error}") from error

    def _interface(self) -> dict[str, Any]:
        from ctypes import byref, c_void_p

        address = c_void_p()
        LIBRARY.call("array_data", self._handle, byref(address), None)
        return self._layout.interface(address.value or 0)

    def numpy(self) -> Any:
        """Its host memory as a NumPy array, without a copy: inputs are written there before a run, results are read after it.

        The array shows the results of each later run. It is not to be used during a run.

        Raises: `BusyError` during a run; `UnsupportedError` for scratch, and for an array in a file: use `read` and `write`;
        `UnavailableError` without NumPy.
        """
        return _numpy().asarray(_Elements(self._interface(), self))

    def read(self, offset: int = 0, count: int | None = None) -> bytes:
        """Copies `count` bytes of its host memory from `offset` on, or all from there; also from a file.

        Raises: `InvalidArgumentError`, a `ValueError`, for bytes that it does not have; `BusyError` during a run.
        """
        from ctypes import create_string_buffer

        offset = _arguments.number(offset, "offset", 64)
        count = max(self.nbytes - offset, 0) if count is None else _arguments.number(count, "count", 63)
        if count > self.nbytes:
            raise InvalidArgumentError(f"count={count}: the array has {self.nbytes} bytes")
        bytes = create_string_buffer(max(count, 1))
        LIBRARY.call("array_read", self._handle, offset, bytes, count)
        return bytes.raw[:count]

    def write(self, data: Any, offset: int = 0) -> None:
        """Copies bytes to its host memory from `offset` on: of `bytes`, or of any contiguous buffer; also to a file.

        Raises: `InvalidArgumentError`, a `ValueError`, for bytes that it does not have; `BusyError` during a run.
        """
        try:
            copy = bytes(memoryview(data).cast("B"))
        except TypeError as error:
            raise ArgumentTypeError(f"data of type {type(data).__name__} are not contiguous bytes: {error}") from None
        LIBRARY.call("array_write", self._handle, _arguments.number(offset, "offset", 64), copy, len(copy))

    def __del__(self) -> None:
        # At the interpreter's end the library may be unloaded.
        with contextlib.suppress(Error, AttributeError, TypeError):
            LIBRARY.call("array_free", self._handle)

    def __repr__(self) -> str:
        return f"<Array {self.label!r}: {self.role}, {self._layout.typestr}, {self.shape}>"


class Chunk(Handle):
    """Some runs of a batch, for the call of the work that it is passed to. Afterwards their memory is another chunk's.

    Attributes:
        index: its number, from 0.
        first: its first run.
        runs: the number of its runs.
        stream: the stream that orders its copies and its work; `stream_index` is its number in the run.
    """

    def __init__(self, pool: Pool, is_on_host: bool, of: Any) -> None:
        self._pool: Pool | None = pool
        self._is_on_host = is_on_host
        self._is_waited_for = not is_on_host
        self._parts = {of.array[at]: (of.address[at], of.bytes[at]) for at in range(of.arrays)}
        self.index: int = of.index
        self.first: int = of.first_run
        self.runs: int = of.runs
        self.stream = Stream(of.stream or 0)
        self.stream_index: int = of.stream_index

    def __getitem__(self, array: Array) -> Part:
        """The part of an array: `runs` elements along its axis, or all of it.

        Raises: `InvalidArgumentError`, a `ValueError`, for an array of another batch; `ClosedError` after the call of the work.
        """
        pool = self._pool
        if pool is None:
            raise ClosedError(f"the call of chunk {self.index} has ended, and its memory is another chunk's")
        if array._handle not in self._parts:
            raise InvalidArgumentError(f"{array!r} is not in the batch: commit after it is queued")
        if not self._is_waited_for:
            # Copies of the host device are pending, and the host's own work is on no stream.
            pool.synchronize(self.stream)
            self._is_waited_for = True
        address, nbytes = self._parts[array._handle]
        layout = array._layout
        if array.axis is not None and nbytes != array.nbytes:
            shape = list(layout.shape)
            shape[array.axis] = self.runs
            layout = layout._replace(shape=tuple(shape))
        return Part(address, nbytes, layout, self.stream, self._is_on_host)

    def numpy(self, array: Array) -> Any:
        """The part of an array as a NumPy array without a copy, on the host device alone. Valid during the call.

        Raises: as `chunk[array]`; `UnsupportedError` on another device; `UnavailableError` without NumPy.
        """
        return self[array].numpy()

    def _end(self) -> None:
        self._pool = None

    def __repr__(self) -> str:
        return f"<Chunk {self.index}: runs {self.first} to {self.first + self.runs}, stream {self.stream_index}>"


class Part(Handle):
    """The part of an array in a chunk, on the device. CuPy, PyTorch and Numba take it by `__cuda_array_interface__`, NumPy on the
    host device by `__array_interface__`. Valid during the call of the work.

    Attributes:
        address: the address of the first byte, on the device.
        nbytes: the number of bytes.
        shape: the numbers of elements.
    """

    def __init__(self, address: int, nbytes: int, layout: Layout, stream: Stream, is_on_host: bool) -> None:
        self.address = address
        self.nbytes = nbytes
        self.shape = layout.shape
        self._layout = layout
        self._stream = stream
        self._is_on_host = is_on_host

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Memory of the host device, for NumPy."""
        if not self._is_on_host:
            raise AttributeError(f"{self!r} has no __array_interface__: its address belongs to a CUDA device")
        return self._layout.interface(self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Memory of a CUDA device, for libraries that order their work behind `stream`."""
        if self._is_on_host:
            raise AttributeError(f"{self!r} has no __cuda_array_interface__: its address belongs to the host device")
        return {**self._layout.interface(self.address), "stream": self._stream.handle or 1}

    def numpy(self) -> Any:
        """A NumPy array of it, without a copy, on the host device alone.

        Raises: `UnsupportedError` on another device; `UnavailableError` without NumPy.
        """
        if not self._is_on_host:
            raise UnsupportedError("NumPy cannot use memory of a CUDA device: use CuPy, PyTorch or Numba")
        return _numpy().asarray(_Elements(self._layout.interface(self.address), self))

    def __repr__(self) -> str:
        return f"<Part of {self.nbytes} bytes at {self.address:#x}>"


class _Elements:
    """Elements for NumPy, whose arrays keep this object. NumPy ignores an interface that raises."""

    __slots__ = ("__array_interface__", "_kept")

    def __init__(self, interface: dict[str, Any], kept: object) -> None:
        self.__array_interface__ = interface
        self._kept = kept


def _bytes_of(layout: Layout) -> int:
    count = layout.itemsize
    for extent in layout.shape:
        count *= extent
    return count


def type_of(dtype: Any) -> tuple[str, int]:
    """A type of elements as array interfaces name it, and its bytes."""
    import re

    found = re.fullmatch(r"([<>|=]?)([biufc])(\d{1,2})", dtype) if isinstance(dtype, str) else None
    if found is not None:
        order, kind, digits = found.groups()
        native = "<" if sys.byteorder == "little" else ">"
        return ("|" if digits == "1" else native if order in "=|" else order) + kind + digits, int(digits)
    try:
        of = _numpy().dtype(dtype)
    except TypeError as error:
        raise ArgumentTypeError(f"dtype={dtype!r} is not a type of elements: {error}") from None
    if of.kind not in "biufc":
        raise ArgumentTypeError(f"dtype={dtype!r} is not a type of numbers")
    return of.str, of.itemsize


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise UnavailableError(
            "NumPy is not installed: install numpy, or use read and write, with types such as 'f4'"
        ) from error
    return numpy
