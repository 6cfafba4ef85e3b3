"""How a pool is to be: keywords as the C ABI's pairs of `key=value`."""

from __future__ import annotations

from . import _arguments
from ._arguments import UNLIMITED
from .errors import ArgumentOverflowError, ArgumentTypeError, ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import SupportsIndex

    from ._arguments import Size as Size

#: All options of `vrampool_create`.
KNOWN = (
    *("device", "host_capacity", "name", "source", "limit", "budget", "max_cached", "max_per_bucket", "cached_class"),
    *("size_classes", "borrow_classes", "magazine_bytes", "magazine_class", "placement", "offload", "overlap", "initial", "piece_bytes"),
)


#: All options of `vrampool_broker_create`.
KNOWN_OF_BROKERS = ("name", "reserve", "budget", "staging_block", "staging", "pinned_max", "spill_threshold", "spill_directory")


def text(options: Mapping[str, Size | None], known: tuple[str, ...] = KNOWN) -> str:
    """Pairs of what is not `None`, sorted by key.

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
    number = _arguments.integer(value, key)
    if number < 0:
        raise ConfigurationError(f"{key}={number}: it is not a number of bytes: it is negative")
    if number > UNLIMITED:
        raise ArgumentOverflowError(f"{key}={number} is not a number of bytes: it has more than 64 bits")
    return "unlimited" if number == UNLIMITED else str(number)
