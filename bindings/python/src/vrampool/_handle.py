"""Objects that have one owner."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self


class Handle:
    """What names something that has one owner, and so is not copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"cannot copy or pickle a {type(self).__name__}: it names memory that has one owner")


class Closable(Handle):
    """A handle that is closed at the end of a `with` block."""

    __slots__ = ()

    def close(self) -> None:
        """Closes the handle."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
