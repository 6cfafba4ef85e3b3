"""Arguments as users give them: sizes, text and numbers, checked in the same way by every function."""

from __future__ import annotations

import operator

from .errors import ArgumentOverflowError, ArgumentTypeError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex

    #: Bytes as an integer, or text with a unit as in `"512MiB"`.
    Size = SupportsIndex | str

#: No cap, in limits and statistics.
UNLIMITED = 2**64 - 1

_POWERS = {letter: power for power, letter in enumerate(("", "k", "m", "g", "t", "p", "e"))}


def size(value: Size, name: str = "bytes", *, unlimited: bool = False) -> int:
    """A number of bytes.

    `unlimited` accepts the text `"unlimited"`.

    Raises: `ArgumentTypeError`, a `TypeError`, for neither an integer nor text; `InvalidArgumentError`, a `ValueError`, for a negative
    number and for text without a size; `ArgumentOverflowError`, an `OverflowError`, for 2**64 and more.
    """
    if isinstance(value, str):
        if unlimited and value.strip() == "unlimited":
            return UNLIMITED
        bytes = _size_of_text(value, name)
    else:
        bytes = integer(value, name)
    if bytes < 0:
        raise InvalidArgumentError(f"{name}={bytes} is not a number of bytes: it is negative")
    if bytes > UNLIMITED:
        raise ArgumentOverflowError(f"{name}={bytes} is not a number of bytes: it has more than 64 bits")
    return bytes


def _size_of_text(text: str, name: str) -> int:
    # Importing it takes longer than all of this package.
    import re

    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgtpe]?)(i?)b?\s*", text, re.IGNORECASE | re.ASCII)
    if found is None or (found[3] and not found[2]):
        raise InvalidArgumentError(f"{name}={text!r} is not a size: use a number with an optional unit, as in '512MiB'")
    whole, _, part = found[1].partition(".")
    factor = (1024 if found[3] else 1000) ** _POWERS[found[2].lower()]
    bytes: int = int(whole) * factor + (int(part or "0") * factor) // 10 ** len(part)
    return bytes


def integer(value: SupportsIndex, name: str) -> int:
    """An integer; `True` and `False` are none.

    Raises: `ArgumentTypeError`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        text = f"{name}={value!r} is of type {type(value).__name__}: use a number of bytes, or text as in '512MiB'"
        raise ArgumentTypeError(text) from None


def number(value: SupportsIndex, name: str, bits: int, *, signed: bool = False) -> int:
    """A number of so many bits, which C would otherwise take modulo its width.

    Raises: `ArgumentTypeError`; `ArgumentOverflowError`, an `OverflowError`, for a number out of range.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={value!r} is of type {type(value).__name__}: use an integer") from None
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
