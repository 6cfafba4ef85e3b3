"""Contents of segments in host memory, as the C library copies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint64, c_void_p
from typing import Any

from . import _progress
from ._library import LIBRARY

#: Called with the copied bytes, and the bytes in all.
Progress = Callable[[int, int], object]


def _array(numbers: Sequence[int]) -> tuple[Any, int]:
    return (c_uint64 * len(numbers))(*numbers), len(numbers)


def save(numbers: Sequence[int], progress: Progress | None) -> None:
    """Copies mapped segments to the host, after the work that uses them: all of them or none."""
    _progress.call("segments_save", *_array(numbers), progress=progress)


def restore(numbers: Sequence[int], progress: Progress | None) -> None:
    """Copies what was saved back to segments that were unmapped since, once; it stays on the host until `forget`."""
    _progress.call("segments_restore", *_array(numbers), progress=progress)


def forget(numbers: Sequence[int], keep_memory: bool) -> None:
    """Forgets what was saved, and keeps its host memory for the next `save` or releases it."""
    LIBRARY.call("segments_forget", *_array(numbers), int(keep_memory))


def check() -> None:
    """For calls that wait for others, which a progress callback on this thread belongs to.

    Raises: `BusyError` in a progress callback.
    """
    forget([], True)


def saved(number: int) -> tuple[int, int] | None:
    """Address and bytes of what was saved of a segment."""
    address, size = LIBRARY.values("segment_saved", number, of=(c_void_p, c_uint64))
    return None if address is None else (address, size)


def is_asleep(number: int) -> bool | None:
    """Whether the memory of a segment, or what was saved of it, is not there; `None` for a segment that was freed."""
    (is_asleep,) = LIBRARY.values("segment_is_asleep", number, of=(c_int,))
    return None if is_asleep < 0 else bool(is_asleep)


__all__ = ["Progress", "check", "forget", "is_asleep", "restore", "save", "saved"]
