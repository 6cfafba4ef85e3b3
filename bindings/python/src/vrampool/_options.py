"""How a pool is to be: keywords as the C ABI's pairs of `key=value`."""

from __future__ import annotations

from ._library import UNLIMITED
from .errors import ConfigurationError

#: Bytes, or text with a unit as in `"512MiB"`, or `"unlimited"`.
Size = int | str


def text(options: dict[str, Size | None]) -> str:
    """Pairs of what is not `None`, sorted by key.

    Raises: `ConfigurationError` for a number below zero, or text with a separator in it.
    """
    pairs = []
    for key, value in sorted(options.items()):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ConfigurationError(f"{key}={value!r}: a number of bytes, or text as in '512MiB'")
        if isinstance(value, str) and any(separator in value for separator in ";\n"):
            raise ConfigurationError(f"{key}={value!r}: it has a separator in it")
        if isinstance(value, int) and not 0 <= value <= UNLIMITED:
            raise ConfigurationError(f"{key}={value}: it is no number of bytes")
        pairs.append(f"{key}={'unlimited' if value == UNLIMITED else value}")
    return ";".join(pairs)
