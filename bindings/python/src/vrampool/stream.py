"""Streams, of this package and of others."""

from __future__ import annotations

import operator

from ._handle import Handle
from .errors import ArgumentOverflowError, ArgumentTypeError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Stream(Handle):
    """An ordered queue of work on a device: one of `Pool.stream`, or any other by its handle.

    Every function with a `stream` argument takes `None` (the default stream), a handle as a number, a `Stream`, and streams of
    cuda.core, CuPy, Numba and PyTorch. `Stream.of` returns the handle of each.

    Args:
        handle: on CUDA a `cudaStream_t`; 0 is the default stream.

    >>> Stream(16)
    Stream(0x10)
    >>> Stream.of(Stream(16)), Stream.of(None)
    (16, 0)
    """

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: int) -> None:
        #: The handle; 0 is the default stream.
        self.handle = _number(handle, handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol's version, 0, and the handle."""
        return 0, self.handle

    @staticmethod
    def of(stream: object) -> int:
        """The handle of a stream.

        Raises: `ArgumentTypeError`, a `TypeError`, for an object that is not a stream; `InvalidArgumentError`, a `ValueError`, for a
        negative handle.
        """
        if stream is None:
            return 0
        if isinstance(stream, Stream):
            return stream.handle
        if isinstance(stream, int) and not isinstance(stream, bool):
            return _number(stream, stream)
        if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
            return _by_protocol(stream, protocol)
        for name in ("cuda_stream", "ptr", "handle"):
            if (handle := getattr(stream, name, None)) is not None:
                return _number(handle, stream)
        return _number(stream, stream)

    def __repr__(self) -> str:
        return f"Stream({self.handle:#x})"


def _by_protocol(stream: object, protocol: Any) -> int:
    """`__cuda_stream__`: a method of most libraries, an attribute of some."""
    try:
        pair: Any = protocol() if callable(protocol) else protocol
        version, handle = pair
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{stream!r} is not a stream: __cuda_stream__ is not a pair of numbers: {error}") from error
    if version != 0:
        raise ArgumentTypeError(f"{stream!r} is not a stream: version {version} of __cuda_stream__ is unknown; 0 is supported")
    return _number(handle, stream)


def _number(handle: Any, stream: object) -> int:
    """A handle as a number: an integer, a pointer of ctypes (Numba), or an object of cuda-bindings."""
    if isinstance(handle, (bool, float, str)):
        raise ArgumentTypeError(f"{stream!r} is not a stream")
    if not hasattr(handle, "__index__"):
        handle = getattr(handle, "value", handle)
    try:
        number = 0 if handle is None else operator.index(handle) if hasattr(handle, "__index__") else int(handle)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{stream!r} is not a stream") from None
    if number < 0:
        raise InvalidArgumentError(f"{stream!r} is not a stream: its handle is negative")
    if number >= 2**64:
        raise ArgumentOverflowError(f"{stream!r} is not a stream: its handle has more than 64 bits")
    return number
