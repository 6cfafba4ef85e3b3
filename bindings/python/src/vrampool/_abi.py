"""The C ABI, as ctypes sees it. What each function does is said in `vrampool.h`."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint64, c_void_p

from . import _arguments
from ._native_file import PATH
from .errors import _BY_STATUS, Error, InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from . import _native

    _Struct = TypeVar("_Struct", bound=ctypes.Structure)

#: Called with log messages: user, level, target, text.
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

class CBlock(ctypes.Structure):
    """`vrampool_block`."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_uint64) for name in ("address", "requested", "bytes", "pool")),
        ("stream", c_void_p),
    ]


class CPlan(ctypes.Structure):
    """`vrampool_plan`."""

    _fields_ = [("struct_size", c_size_t), *((name, c_uint64) for name in ("runs", "chunk_runs", "chunks", "streams"))]


class CChunk(ctypes.Structure):
    """`vrampool_chunk`."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_uint64) for name in ("index", "first_run", "runs", "stream_index")),
        ("stream", c_void_p),
        ("arrays", c_uint64),
        *((name, POINTER(c_uint64)) for name in ("array", "address", "bytes")),
    ]


#: Fields of `vrampool_run_report` after its size.
_RUN_REPORT = ("chunks", "runs", "chunk_runs", "streams", "shrinks", "copied_bytes", "nanoseconds")


class CRunReport(ctypes.Structure):
    """`vrampool_run_report`."""

    _fields_ = [("struct_size", c_size_t), *((name, c_uint64) for name in _RUN_REPORT)]


#: A function of the native module's, which calls Python's, and what it is called with. None of ctypes: an interrupt could end it outside of
#: any `try`, and a thread that the interpreter's end unwinds would take the process with it.
_CALLBACK = [c_void_p, c_void_p]

_NAMES = POINTER(c_char_p)

#: Arguments of the functions that answer a status.
_CHECKED: dict[str, list[Any]] = {
    "string_free": [c_void_p],
    "set_log_callback": [LogCallback, c_int, c_void_p],
    "devices": [POINTER(c_void_p)],
    "destroy": [c_uint64],
    "record_stream": [c_void_p, c_void_p],
    "block_at": [c_void_p, POINTER(CBlock)],
    "stream_create": [c_uint64, POINTER(c_void_p)],
    "stream_destroy": [c_uint64, c_void_p],
    "stream_retire": [c_uint64, c_void_p],
    "stream_synchronize": [c_uint64, c_void_p],
    "get_stats": [c_uint64, c_void_p],
    "get_stats_json": [c_uint64, POINTER(c_void_p)],
    "reset_peaks": [c_uint64],
    "trim": [c_uint64, c_uint64, POINTER(c_uint64)],
    "decay": [c_uint64, POINTER(c_uint64)],
    "get_limit": [c_uint64, POINTER(c_uint64)],
    "set_limit": [c_uint64, c_uint64],
    "memory_info": [c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
    "snapshot": [c_uint64, POINTER(c_void_p)],
    "sleep": [c_uint64, _NAMES, c_size_t, *_CALLBACK, c_void_p],
    "sleep_tags": [c_uint64, _NAMES, c_size_t, c_int, *_CALLBACK, c_void_p],
    "wake": [c_uint64, _NAMES, c_size_t, *_CALLBACK, c_void_p],
    "is_asleep": [c_uint64, c_char_p, POINTER(c_int)],
    "broker_create": [c_uint64, c_char_p, POINTER(c_uint64)],
    "broker_destroy": [c_uint64],
    "broker_register": [c_uint64, c_char_p, c_char_p, c_char_p, POINTER(c_uint64)],
    "client_destroy": [c_uint64],
    "client_queue": [c_uint64, c_int32, c_char_p, POINTER(c_uint64), c_size_t, c_uint64, c_int32, POINTER(c_uint64)],
    "broker_commit": [c_uint64, c_char_p, c_uint64, c_uint64, POINTER(CPlan)],
    "broker_get_stats_json": [c_uint64, POINTER(c_void_p)],
    "broker_run": [c_uint64, c_char_p, c_void_p, *_CALLBACK, POINTER(CRunReport)],
    "array_data": [c_uint64, POINTER(c_void_p), POINTER(c_uint64)],
    "array_read": [c_uint64, c_uint64, c_void_p, c_size_t],
    "array_write": [c_uint64, c_uint64, c_char_p, c_size_t],
    "array_free": [c_uint64],
    "file_write": [c_char_p, c_char_p, c_size_t],
    "record_start": [c_uint64, c_uint64],
    "record_look": [c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
    "record_stop": [c_uint64, POINTER(c_uint64), POINTER(c_uint64)],
    "trace_load": [c_char_p, c_char_p, c_int, POINTER(c_uint64)],
    "trace_save": [c_uint64, c_char_p, c_char_p],
    "trace_plot": [c_uint64, c_uint64, c_char_p, c_char_p],
    "trace_show": [c_uint64, POINTER(c_void_p)],
    "trace_convert": [c_char_p, c_char_p, c_int, c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_void_p)],
    "trace_free": [c_uint64],
    "pool_backend": [c_uint64, POINTER(c_char_p)],
    "pool_device": [c_uint64, POINTER(c_int)],
    "start_metrics_at": [c_char_p, POINTER(c_void_p)],
    "stop_metrics": [],
    "torch_configure": [c_char_p],
    "torch_pool": [c_int, POINTER(c_uint64)],
    "torch_pools": [POINTER(c_void_p)],
    "torch_shutdown": [],
    "segment_callbacks": [c_void_p, *_CALLBACK],
    "segment_unmap_and_release": [c_int, c_uint64, c_uint64, c_uint64],
    "segment_create_and_map": [c_int, c_uint64, c_uint64, c_uint64],
    "segments_save": [POINTER(c_uint64), c_size_t, *_CALLBACK],
    "segments_restore": [POINTER(c_uint64), c_size_t, *_CALLBACK],
    "segments_forget": [POINTER(c_uint64), c_size_t, c_int],
    "segment_is_asleep": [c_uint64, POINTER(c_int)],
    "segment_saved": [c_uint64, POINTER(c_void_p), POINTER(c_uint64)],
}

#: What the others answer, and their arguments.
_PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "last_error": (c_char_p, []),
    "last_error_code": (c_int32, []),
    "clear_error": (None, []),
    "torch_alloc_or_null": (c_void_p, [c_size_t, c_int, c_void_p]),
    "torch_free": (None, [c_void_p, c_size_t, c_int, c_void_p]),
    "torch_throws": (c_int, []),
    "torch_reset": (None, []),
    "torch_memory_fraction": (None, [c_double, c_int]),
}


class Library:
    """The functions, without their prefix; those of `_CHECKED` raise what they fail with."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.plain = {name: self._function(name, answer, arguments) for name, (answer, arguments) in _PLAIN.items()}
        self._checked = {name: self._function(name, c_int32, arguments) for name, arguments in _CHECKED.items()}

    def _function(self, name: str, answer: Any, arguments: list[Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._library, f"vrampool_{name}")
        function.restype, function.argtypes = answer, arguments  # type: ignore[attr-defined]
        return function

    def address(self, name: str) -> int:
        """The address of a function, as a number."""
        return ctypes.cast(getattr(self._library, f"vrampool_{name}"), c_void_p).value or 0

    def call(self, function: str, *arguments: Any, callbacks: _native.Callbacks | None = None) -> None:
        """Calls what answers a status.

        Raises: what a callback raised; the `Error` of that status, with its text.
        """
        status = self._checked[function](*arguments)
        if callbacks is not None:
            callbacks.check()
        if status != 0:
            raise self.failure(status)

    def failure(self, status: int) -> Error:
        """This thread's last failure, as an exception."""
        is_its = self.plain["last_error_code"]() == status
        # A finalizer or a signal handler may have failed meanwhile.
        text = (self.plain["last_error"]() or b"").decode("utf-8", "replace") if is_its else "another failure followed it"
        return _BY_STATUS.get(status, InternalError)(text)

    def last_failure(self) -> Error | None:
        """As `failure`; `None` when there was none, and it is forgotten."""
        status = self.plain["last_error_code"]()
        if status == 0:
            return None
        failure = self.failure(status)
        self.plain["clear_error"]()
        return failure

    def values(self, function: str, *arguments: Any, of: tuple[type[Any], ...]) -> tuple[Any, ...]:
        """Calls what sets values of these types behind its last pointers."""
        places = [kind() for kind in of]
        self.call(function, *arguments, *map(byref, places))
        return tuple(place.value for place in places)

    def number(self, function: str, *arguments: Any) -> int:
        """Calls what sets one number behind its last pointer."""
        return int(self.values(function, *arguments, of=(c_uint64,))[0])

    def struct(self, function: str, *arguments: Any, of: type[_Struct], callbacks: _native.Callbacks | None = None) -> _Struct:
        """Calls what fills a structure behind its last pointer, which begins with its size."""
        struct = of(ctypes.sizeof(of))
        self.call(function, *arguments, byref(struct), callbacks=callbacks)
        return struct

    def text(self, function: str, *arguments: Any) -> str:
        """Calls what makes text, and reads it."""
        text = c_void_p()
        self.call(function, *arguments, byref(text))
        try:
            return ctypes.string_at(text.value or 0).decode()
        finally:
            self.call("string_free", text)

    def json(self, function: str, *arguments: Any) -> Any:
        """Calls what makes JSON, and reads it."""
        import json

        return json.loads(self.text(function, *arguments))


def names(of: list[str]) -> Any:
    """An array of texts."""
    return (c_char_p * len(of))(*(_arguments.text(name, "a tag") for name in of))


LIBRARY = Library(PATH)
