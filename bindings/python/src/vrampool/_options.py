"""How a pool is to be: keywords as the C ABI's pairs of `key=value`."""

from __future__ import annotations

from . import _arguments
from ._arguments import UNLIMITED
from .errors import ArgumentTypeError, ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsIndex

    from typing_extensions import TypedDict

    from ._arguments import Size as Size

    class Options(TypedDict, total=False):
        # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
        """Options of pools.

        Attributes:
            file: A file of settings, for those without an argument or a variable.
            host_capacity: With `device="host"`: capacity of a separate host device, for tests.
            offload: Host memory that keeps contents during a sleep: pinned (the default) or pageable.
            name: The pool's name in metrics. Default: pool-0, pool-1 and so on.
            source: What serves misses. Default: direct.
            limit: Hard cap on bytes taken from the device. Default: unlimited.
            budget: Soft cap on bytes taken from the device. Default: 85% of a discrete device, else unlimited.
            max_cached_bytes: Cap on idle bytes. Default: 4GiB; 64MiB if the source is virtual.
            max_buffers_per_bucket: Cap on idle buffers in one size class. Default: 16; unlimited if the source is
                virtual.
            cached_class: Largest class that is kept idle. Default: unlimited; 512KiB if the source is virtual.
            size_classes: How requests round up: `fixed`, `power-of-two`, `geometric[:PER_DOUBLING[:FROM]]`,
                `multiple:SIZE`, `exact[:SIZE]`, `tight`. Default: fixed; tight if the source is virtual.
            borrow_classes: Number of next larger classes that an empty geometric class borrows from. Default: 2.
            magazine_bytes: Idle bytes that a thread keeps to itself; 0 turns magazines off. Default: 8MiB, at most a
                64th of max_cached_bytes and limit; an 8th if virtual.
            magazine_class: Largest class that magazines keep. Default: 1MiB.
            overlap: Cap on memory, beyond the peak of live bytes, that is allocated instead of waiting for another
                stream; a percentage is of the held bytes. Default: unlimited.
            initial: Memory to map when the pool is made, if the source is virtual. Default: 0B.
            piece_bytes: Largest piece of memory to map, if the source is virtual. Default: a 16th of the mapped bytes,
                up to 16MiB.
            memory: Kind of memory: device, host (pinned), managed. Default: what the device prefers.
        """

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


#: All options of `vrampool_create`.
KNOWN = (
    # Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
    "device",
    "file",
    "host_capacity",
    "offload",
    "name",
    "source",
    "limit",
    "budget",
    "max_cached_bytes",
    "max_buffers_per_bucket",
    "cached_class",
    "size_classes",
    "borrow_classes",
    "magazine_bytes",
    "magazine_class",
    "overlap",
    "initial",
    "piece_bytes",
    "memory",
    # End of the generated lines.
)


def text(options: Mapping[str, Any], known: tuple[str, ...] = KNOWN) -> str:
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
    if (number := _arguments.integer(value, key)) < 0:
        raise ConfigurationError(f"{key}={number} is not a number of bytes: it is negative")
    return "unlimited" if _arguments.size(number, key) == UNLIMITED else str(number)
