"""vLLM's extension module `vllm.cumem_allocator`, over vrampool's segments.

`init_module`, `python_create_and_map` and `python_unmap_and_release` have its signatures. PyTorch calls `my_malloc` and `my_free` of the
library `PATH`, whose file vLLM finds by its name. `vrampool.vllm.install` puts this module in the place of vLLM's.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable

from . import _arguments, _native
from ._library import LIBRARY
from .errors import ArgumentTypeError, BusyError, MismatchError

__all__ = [
    "PATH",
    "Handle",
    "forget_callbacks",
    "init_module",
    "python_create_and_map",
    "python_unmap_and_release",
]

#: Device, bytes, address, number: what identifies a segment.
Handle = tuple[int, int, int, int]

#: The file of the C functions `my_malloc` and `my_free`.
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "cumem_allocator.so")

_log = logging.getLogger("vrampool")


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(PATH)
    except OSError as error:
        text = f"the library of vLLM's functions does not load: {error}; install vrampool's wheel"
        raise ImportError(text, path=PATH) from error


#: vLLM looks for the file among loaded libraries when it imports this module.
_functions = _load()
_functions.cumem_allocator_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def _tag(callback: object) -> str | None:
    """The tag of segments that are allocated now: that of the object whose method the callback is, vLLM's as well as vrampool's."""
    tag = getattr(getattr(callback, "__self__", None), "current_tag", None)
    return tag if isinstance(tag, str) else None


def _failed(error: Exception) -> int:
    """Logs what a callback raised, because no caller of PyTorch's functions can receive it. Returns the status for C."""
    _log.error("a callback of vrampool.vllm_extension.init_module failed", exc_info=error)
    return 6 if isinstance(error, MismatchError) else 1


#: The callbacks of `init_module`, and the number of segments that they know. Never replaced, because a thread may be about to call it.
_callbacks = _native.SegmentCallbacks(_tag, _failed)


def init_module(python_malloc_callback: Callable[[Handle], object], python_free_callback: Callable[[int], object]) -> None:
    """Sets the callbacks, which hold Python's lock.

    The first is called with the handle of each segment before it is mapped; if it raises, the allocation fails. The second is called
    with the address of each segment before it is freed, and after the first if the segment could not be mapped; it returns the handle.
    If it raises or returns another handle, the failure is logged, and the segment is freed.

    PyTorch's allocator may hold its own lock at that time: no other thread should release tensors meanwhile. The same callbacks may be
    set again. An interrupt in one is raised when PyTorch's function has returned, by the main thread; the allocation fails.

    Raises: `ArgumentTypeError` for what cannot be called, `BusyError` for other callbacks while segments of the first ones live.
    """
    callbacks = (python_malloc_callback, python_free_callback)
    for callback in callbacks:
        if not callable(callback):
            raise ArgumentTypeError(f"{callback!r} is no callback: init_module takes two functions")
    if _callbacks.functions not in (None, callbacks) and _callbacks.live:
        raise BusyError(
            f"other callbacks know {_callbacks.live} live segments: use one allocator in a process, or release the memory of the first"
        )
    alloc, free = LIBRARY.address("segment_alloc"), LIBRARY.address("segment_free")
    if _functions.cumem_allocator_bind(alloc, free) != 0:
        raise BusyError(f"{PATH} calls the functions of another library of vrampool")
    _callbacks.set(callbacks)
    LIBRARY.call("segment_callbacks", *_callbacks.addresses, _callbacks.user)


def forget_callbacks() -> None:
    """Removes the callbacks. Segments that live can still be freed."""
    LIBRARY.call("segment_callbacks", None, None, None)
    _callbacks.set()


def python_create_and_map(device: int, size: int, ptr: int, handle: int, /) -> None:
    """Restores the physical memory of a segment at its address, with undefined contents.

    Raises: `OutOfMemoryError`, and the segment is as it was; `InvalidArgumentError` for a segment that is mapped; `InvalidPointerError`
    where no segment begins; `MismatchError` where the four numbers are not one segment's. All are instances of `RuntimeError`.
    """
    LIBRARY.call("segment_create_and_map", *_numbers(device, size, ptr, handle))


def python_unmap_and_release(device: int, size: int, ptr: int, handle: int, /) -> None:
    """Releases the physical memory of a segment, after the work that uses it; its address stays.

    Raises: `AsleepError` for a segment that is not mapped; `CaptureError` during a capture; `InvalidPointerError` where no segment
    begins; `MismatchError` where the four numbers are not one segment's. All are instances of `RuntimeError`.
    """
    LIBRARY.call("segment_unmap_and_release", *_numbers(device, size, ptr, handle))


def _numbers(device: int, size: int, ptr: int, handle: int) -> Handle:
    """What identifies a segment, as C takes it."""
    number = _arguments.number
    return number(device, "device", 32, signed=True), number(size, "size", 64), number(ptr, "ptr", 64), number(handle, "handle", 64)
