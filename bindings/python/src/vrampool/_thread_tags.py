"""Which tag allocations of C have: the innermost scope of the thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar

from ._library import LIBRARY
from .errors import BusyError


class _Open(threading.local):
    """Scopes of this thread, which allocations of C are under."""

    def __init__(self) -> None:
        self.scopes: list[object] = []


_OPEN = _Open()
_ENTERED: ContextVar[tuple[object, ...]] = ContextVar("vrampool_thread_scopes", default=())


@contextlib.contextmanager
def thread_scope(pool: int, tag: bytes) -> Iterator[None]:
    """Allocations of this thread have this tag, those that C makes without Python too.

    C knows threads, and no contexts: so scopes of two tasks of one thread cannot be open at once.

    Raises: `BusyError` for a scope within one of another task.
    """
    if _OPEN.scopes and _OPEN.scopes[-1] not in _ENTERED.get():
        raise BusyError(
            "another task of this thread has a tag open, under which all of the thread's memory is allocated; "
            "leave `with vrampool.torch.tag(...)` before `await`"
        )
    this = object()
    LIBRARY.call("tag_begin", pool, tag)
    _OPEN.scopes.append(this)
    token = _ENTERED.set((*_ENTERED.get(), this))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            _ENTERED.reset(token)
        _OPEN.scopes.remove(this)
        LIBRARY.call("tag_end", pool)
