"""Progress of copies, as the C library reports it."""

from __future__ import annotations

from . import _native
from ._library import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def call(function: str, *arguments: Any, progress: Callable[[int, int], object] | None, report: Any = ()) -> None:
    """Calls a function of the library that copies. What `progress` raises is logged, and the copies go on: half of them would be of no
    use. An interrupt in it is raised when they are complete.
    """

    def guarded(copied: int, total: int) -> None:
        try:
            if progress is not None:
                progress(copied, total)
        except Exception:
            import logging

            logging.getLogger("vrampool").exception("a progress callback failed")

    callbacks = _native.Callbacks(progress=None if progress is None else guarded)
    LIBRARY.call(function, *arguments, callbacks.on_copy, callbacks.user, *report, callbacks=callbacks)
