"""Arguments as users give them: sizes, text and numbers, checked in the same way by every function."""

from __future__ import annotations

import operator

from . import _native
from .errors import ArgumentOverflowError, ArgumentTypeError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex

    #: Bytes as an integer, or text with a unit as in `"512MiB"`.
    Size = SupportsIndex | str

#: No cap, in limits and statistics.
UNLIMITED = 2**64 - 1


def size(value: Size, name: str = "bytes") -> int:
    """A number of bytes; `"unlimited"` is `UNLIMITED`.

    Raises: `ArgumentTypeError`, a `TypeError`, for neither an integer nor text; `InvalidArgumentError`, a `ValueError`, for a negative
    number and for text without a size; `ArgumentOverflowError`, an `OverflowError`, for 2**64 and more.
    """
    if isinstance(value, str):
        return _native.size(value, name)
    bytes = integer(value, name)
    if bytes < 0:
        raise InvalidArgumentError(f"{name}={bytes} is not a number of bytes: it is negative")
    if bytes > UNLIMITED:
        raise ArgumentOverflowError(f"{name}={bytes} is not a number of bytes: it has more than 64 bits")
    return bytes


def integer(value: SupportsIndex, name: str, use: str = "a number of bytes, or text as in '512MiB'") -> int:
    """An integer; `True` and `False` are none. `use` is the remedy in the error.

    Raises: `ArgumentTypeError`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={value!r} is of type {type(value).__name__}: use {use}") from None


def number(value: SupportsIndex, name: str, bits: int, *, signed: bool = False) -> int:
    """A number of so many bits, which C would otherwise take modulo its width.

    Raises: `ArgumentTypeError`; `ArgumentOverflowError`, an `OverflowError`, for a number out of range.
    """
    number = integer(value, name, "an integer")
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if not least <= number <= most:
        raise ArgumentOverflowError(f"{name}={number} is out of range: {least} to {most} are valid")
    return number


def tags(value: Iterable[str] | str, name: str) -> tuple[str, ...]:
    """Tags; one text is one of them.

    Raises: `ArgumentTypeError` for anything but texts.
    """
    if isinstance(value, str):
        return (value,)
    of: tuple[Any, ...] = tuple(value) if hasattr(value, "__iter__") else (value,)
    if all(isinstance(tag, str) for tag in of):
        return of
    raise ArgumentTypeError(f"{name}={value!r} are not tags: use text, or several in a tuple or a list")


def text(value: str, name: str) -> bytes:
    """Text as the library takes it.

    Raises: `ArgumentTypeError` for no text, `InvalidArgumentError` for text with an embedded NUL or a lone surrogate.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name}={value!r} is of type {type(value).__name__}: use text")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name}={value!r} is not text: {error}") from None
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{name}={value!r} has an embedded NUL")
    return encoded
