"""Which tag allocations have: the innermost scope of the current context, as `contextvars` has it."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar

from . import _native
from ._library import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: By the pools' handles. Allocations outside of any scope look for none.
CURRENT: ContextVar[dict[int, bytes]] = ContextVar("vrampool_tags", default={})


@contextlib.contextmanager
def scope(pool: int, tag: bytes) -> Iterator[None]:
    """Allocations of this context have this tag."""
    LIBRARY.call("tag_create", pool, tag)
    _native.use_tags()
    token = CURRENT.set({**CURRENT.get(), pool: tag})
    try:
        yield
    finally:
        # In another context, where a generator ends elsewhere than it began, there is nothing to undo.
        with contextlib.suppress(ValueError):
            CURRENT.reset(token)
