"""Caps, sleep and wake of PyTorch's pools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .._library import LIBRARY
from ..errors import CaptureError, InvalidArgumentError, UnavailableError
from ..service import devices
from ..stats import SleepReport
from ._devices import device_index, pool, pool_if_any, pools

if TYPE_CHECKING:
    from typing import Any

    from .._options import Size
    from ..pool import Pool


#: The report without a GPU, where no memory sleeps.
_NOTHING = SleepReport(0, 0, 0, True, 0)


def _pool(device: object) -> Pool | None:
    """The pool of a device, made if there is none; `None` without a GPU.

    Raises: `UnavailableError` where there is no such device beside others.
    """
    try:
        return pool(device)
    except UnavailableError:
        if any(found["backend"] == "cuda" for found in devices()["devices"]):
            raise
        return None


def empty_cache() -> None:
    """Gives idle memory of all devices back, as `torch.cuda.empty_cache` does when vrampool is installed."""
    LIBRARY.plain["torch_reset"]()


def set_limit(bytes: Size, device: object = None) -> None:
    """Changes the hard cap on bytes of a device. What is live stays; nothing more is taken until it fits."""
    pool(device).limit = bytes


def set_per_process_memory_fraction(fraction: float, device: object = None) -> None:
    """A limit of this share of the device's memory, 0 to 1.

    Raises: `InvalidArgumentError` for another share.
    """
    LIBRARY.plain["clear_error"]()
    LIBRARY.plain["torch_memory_fraction"](float(fraction), device_index(device))
    if (failure := LIBRARY.last_failure()) is not None:
        raise failure


def get_per_process_memory_fraction(device: object = None) -> float:
    """The limit as a share of the device's memory; 1.0 for none, and for a device that has no pool yet: asking opens no device."""
    of = pool_if_any(device) if pools() else None
    return 1.0 if of is None else min(1.0, of.limit / of.memory_info()[1])


def _wait_for_torch(device: object) -> None:
    """Waits for all work of PyTorch's on a device: its own allocator has streams that vrampool does not know."""
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        refuse_in_capture(torch)
        torch.cuda.synchronize(device_index(device))


def refuse_in_capture(torch: Any) -> None:
    """A wait for the device would invalidate a capture.

    Raises: `CaptureError` while PyTorch's current stream is captured.
    """
    if torch.cuda.is_current_stream_capturing():
        raise CaptureError("a stream is captured into a graph: nothing was done; let memory sleep after the capture")


def sleep(
    offload: Iterable[str] | str | bool = ("default",), device: object = None, progress: Callable[[int, int], object] | None = None
) -> SleepReport:
    """Puts a device's memory to sleep: the device has it back, and tensors keep their addresses until `wake_up`.

    Args:
        offload: the tags whose contents go to the host; the others' are discarded. `True` for all of them, `False` for none.
        device: as PyTorch takes them.
        progress: is called with the copied bytes and the bytes in all, after each piece. It must not wait for a thread that allocates.

    Waits for all work on the device. Tensors must not be used while they sleep, but may go. Without a GPU nothing is
    done.

    Raises: `UnsupportedError` where the source is not virtual; `InvalidArgumentError` for no tags at all.
    """
    of = _pool(device)
    kept: Iterable[str] | str
    if of is None:
        return _NOTHING
    if isinstance(offload, bool):
        kept = list(of.stats_by_tag()) if offload else ()
    elif isinstance(offload, (str, Iterable)):
        kept = offload
    else:
        raise InvalidArgumentError(f"{offload!r} are not tags")
    _wait_for_torch(device)
    return of.sleep(kept, progress)


def wake_up(
    tags: Iterable[str] | str | None = None, device: object = None, progress: Callable[[int, int], object] | None = None
) -> SleepReport:
    """Wakes these tags and all that are neither `weights` nor `kv_cache`; all without any. What was kept is as it was. `progress` is as
    that of `sleep`.

    Raises: `OutOfMemoryError` where the memory went elsewhere meanwhile; all goes on sleeping then.
    """
    of = _pool(device)
    return _NOTHING if of is None else of.wake(tags, progress)


def discard(tags: Iterable[str] | str, device: object = None) -> SleepReport:
    """Puts these tags alone to sleep, after all work on the device, and forgets their contents."""
    if (of := _pool(device)) is None:
        return _NOTHING
    _wait_for_torch(device)
    return of.discard(tags)
