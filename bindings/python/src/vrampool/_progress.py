"""Progress of copies, as the C library reports it."""

from __future__ import annotations

from ._abi import CopyCallback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def callback(progress: Callable[[int, int], object] | None) -> Any:
    """What C calls after each piece. An exception is logged, and the copies go on: half of them would be of no use."""
    if progress is None:
        return CopyCallback()

    def told(_: object, copied: int, total: int) -> None:
        try:
            progress(copied, total)
        except BaseException:
            import logging

            logging.getLogger("vrampool").exception("a progress callback failed")

    return CopyCallback(told)
