"""Which tag allocations have: that of the innermost open scope of the current context, as `contextvars` has it."""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The scopes of a context, of all pools.
CURRENT: ContextVar[Any] = ContextVar("vrampool_tags", default=None)
