"""vLLM's extension module `vllm.cumem_allocator`, over vrampool's segments.

`init_module`, `python_create_and_map` and `python_unmap_and_release` have its signatures. PyTorch calls `my_malloc` and `my_free` of the
library `PATH`, whose file vLLM finds by its name. `vrampool.vllm.install` puts this module in the place of vLLM's.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._abi import SegmentCallback
from ._library import LIBRARY
from .errors import ArgumentTypeError, BusyError, Error, InvalidArgumentError, MismatchError
from .stream import Stream

if TYPE_CHECKING:
    from ._arguments import Size

__all__ = [
    "PATH",
    "Handle",
    "forget_callbacks",
    "init_module",
    "my_free",
    "my_malloc",
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
_functions.my_malloc.restype = ctypes.c_void_p
_functions.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
_functions.my_free.restype = None
_functions.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

#: The callbacks of `init_module`.
_callbacks: tuple[Callable[[Handle], object], Callable[[int], object]] | None = None

#: Segments that the callbacks know, by address.
_live: dict[int, Handle] = {}

_STATUSES = {"OK": 0, "INVALID_ARGUMENT": 1, "MISMATCH": 6}


def _on_malloc(_user: object, device: int, size: int, address: int, number: int) -> int:
    handle = (device, size, address, number)

    def call() -> None:
        if _callbacks is not None:
            # By the object whose method the callback is, vLLM's as well as vrampool's.
            if isinstance(tag := getattr(getattr(_callbacks[0], "__self__", None), "current_tag", None), str):
                LIBRARY.call("segment_tag", number, _arguments.text(tag, "tag"))
            _callbacks[0](handle)
            _live[address] = handle

    return _status_of(call)


def _on_free(_user: object, device: int, size: int, address: int, number: int) -> int:
    _live.pop(address, None)

    def call() -> None:
        handle = (device, size, address, number)
        if _callbacks is not None and (returned := _callbacks[1](address)) != handle:
            raise MismatchError(f"the free callback returned {returned!r} for the segment {handle!r}; the segment is freed")

    return _status_of(call)


def _status_of(call: Callable[[], None]) -> int:
    """Calls a callback. What it raises is logged, because no caller of PyTorch's functions can receive it."""
    try:
        call()
    except BaseException as error:
        _log.exception("a callback of vrampool.vllm_extension.init_module failed")
        return _STATUSES.get(error.name if isinstance(error, Error) else "", 1)
    return 0


#: What C calls; never replaced, because a thread may be about to call it.
_C_CALLBACKS = (SegmentCallback(_on_malloc), SegmentCallback(_on_free))


def init_module(python_malloc_callback: Callable[[Handle], object], python_free_callback: Callable[[int], object]) -> None:
    """Sets the callbacks, which hold Python's lock.

    The first is called with the handle of each segment before it is mapped; if it raises, the allocation fails. The second is called
    with the address of each segment before it is freed, and after the first if the segment could not be mapped; it returns the handle.
    If it raises or returns another handle, the failure is logged, and the segment is freed.

    PyTorch's allocator may hold its own lock at that time: no other thread should release tensors meanwhile. The same callbacks may be
    set again.

    Raises: `ArgumentTypeError` for what cannot be called, `BusyError` for other callbacks while segments of the first ones live.
    """
    global _callbacks
    callbacks = (python_malloc_callback, python_free_callback)
    for callback in callbacks:
        if not callable(callback):
            raise ArgumentTypeError(f"{callback!r} is no callback: init_module takes two functions")
    if _callbacks not in (None, callbacks) and _live:
        raise BusyError(
            f"other callbacks know {len(_live)} live segments: use one allocator in a process, or release the memory of the first"
        )
    alloc, free = LIBRARY.address("segment_alloc"), LIBRARY.address("segment_free")
    if _functions.cumem_allocator_bind(alloc, free) != 0:
        raise BusyError(f"{PATH} calls the functions of another library of vrampool")
    LIBRARY.call("segment_callbacks", *_C_CALLBACKS, None)
    _callbacks = callbacks


def forget_callbacks() -> None:
    """Removes the callbacks. Segments that live can still be freed."""
    global _callbacks
    LIBRARY.call("segment_callbacks", SegmentCallback(), SegmentCallback(), None)
    _callbacks = None
    _live.clear()


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


def my_malloc(size: Size, device: int = 0, stream: object = None) -> int:
    """Allocates a segment as PyTorch does, and returns its address.

    Raises: the failure, for which the C function returns null.
    """
    if (bytes := _arguments.size(size, "size")) == 0:
        raise InvalidArgumentError("size=0: a segment has at least one byte")
    LIBRARY.plain["clear_error"]()
    address: int | None = _functions.my_malloc(
        _arguments.number(bytes, "size", 64, signed=True), _arguments.number(device, "device", 32, signed=True), Stream.of(stream)
    )
    if address is None:
        raise LIBRARY.last_failure() or InvalidArgumentError("no segment was created: call init_module first")
    return address


def my_free(address: int, size: int = 0, device: int = 0, stream: object = None) -> None:
    """Frees a segment as PyTorch does, mapped or not, after the work that uses it.

    Raises: `InvalidPointerError` where no segment begins; the failure of the free callback, after which the segment is freed.
    """
    LIBRARY.plain["clear_error"]()
    _functions.my_free(
        _arguments.number(address, "address", 64),
        _arguments.number(size, "size", 64, signed=True),
        _arguments.number(device, "device", 32, signed=True),
        Stream.of(stream),
    )
    if (failure := LIBRARY.last_failure()) is not None:
        raise failure
