"""What the library logs, in Python's `logging`: as loggers `vrampool.<part>`, below `vrampool`."""

from __future__ import annotations

import _thread
import atexit
import os

from ._abi import LIBRARY, LogCallback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: `logging`'s level (error, warning, info, debug, and one below) for each of the library's, which are 1 (error) to 5 (trace).
_LEVELS = {1: 40, 2: 30, 3: 20, 4: 10, 5: 5}

#: `logging.WARNING`.
_DEFAULT = 30

#: The callback that C holds.
_held: Any = None

#: Held while a line imports `logging`, which a fork waits for: else the child has the locks of that import, and may import nothing.
_importing = _thread.allocate_lock()
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)


def _on_line(_user: object, level: int, target: bytes, text: bytes) -> None:
    # With the first line: most programs have none.
    with _importing:
        import logging

    part = target.decode("utf-8", "replace").removeprefix("vrampool").strip("_:").replace("::", ".")
    logger = logging.getLogger(f"vrampool.{part}" if part else "vrampool")
    logger.log(_LEVELS.get(level, 40), "%s", text.decode("utf-8", "replace"))


def set_log_level(level: int) -> None:
    """Passes lines of the library from this level of `logging`'s on to Python's loggers below `vrampool`, which filter them further;
    `logging.WARNING` by default, none above `logging.ERROR`. They come a moment later, from a thread of the library's.
    """
    global _held
    most = max((of for of, python in _LEVELS.items() if python >= level), default=0)
    callback = LogCallback(_on_line)
    LIBRARY.call("set_log_callback", callback, most, None)
    # The one before may go now: it is called no more.
    _held = callback


def _forget() -> None:
    # Before Python ends, when it must not be called any more.
    LIBRARY.call("set_log_callback", LogCallback(), 0, None)


set_log_level(_DEFAULT)
atexit.register(_forget)
