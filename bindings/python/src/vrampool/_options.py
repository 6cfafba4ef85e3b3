"""How a pool is to be: keywords as the C ABI's pairs of `key=value`."""

from __future__ import annotations

from . import _arguments, _native
from ._arguments import UNLIMITED
from .errors import ArgumentTypeError, ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsIndex

    from typing_extensions import TypedDict

    from ._arguments import Size as Size

    class Options(TypedDict, total=False):
        """Options of pools, as the guide's page of settings describes them."""

        # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
        file: str | None
        host_capacity: Size | None
        offload: str | None
        name: str | None
        source: str | None
        limit: Size | None
        budget: Size | None
        max_cached_bytes: Size | None
        max_buffers_per_bucket: SupportsIndex | str | None
        cached_class: Size | None
        size_classes: str | None
        borrow_classes: SupportsIndex | str | None
        magazine_bytes: Size | None
        magazine_class: Size | None
        overlap: Size | None
        initial: Size | None
        piece_bytes: Size | None
        memory: str | None
        # End of the generated lines.


def text(options: Mapping[str, Any], known: tuple[str, ...] = _native.OPTIONS) -> str:
    """Pairs of what is not `None`, sorted by key. `known` are the valid keys, those of pools by default.

    Raises: `ArgumentTypeError`, a `TypeError`, for an unknown option and for a value of another type; `ConfigurationError`, a
    `ValueError`, for a negative number and for text with a separator or a NUL; `ArgumentOverflowError`, an `OverflowError`.
    """
    for key in options:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ArgumentTypeError(f"unexpected keyword argument {key!r}: {hint}use one of {', '.join(known)}")
    return ";".join(f"{key}={_value(key, value)}" for key, value in sorted(options.items()) if value is not None)


def _value(key: str, value: str | SupportsIndex) -> str:
    if isinstance(value, str):
        if any(separator in value for separator in ";\n\0"):
            raise ConfigurationError(f"{key}={value!r}: it has a separator or a NUL in it")
        return value
    if (number := _arguments.integer(value, key)) < 0:
        raise ConfigurationError(f"{key}={number} is not a number of bytes: it is negative")
    return "unlimited" if _arguments.size(number, key) == UNLIMITED else str(number)
