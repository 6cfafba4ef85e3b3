"""Segments under tags that sleep and wake: all that a call names, or none.

Whether a segment sleeps, and whether its contents are on the host, is known by the C library alone. So an interrupt at any
instruction leaves nothing untrue: segments that it leaves asleep are asleep for the next call, which wakes them or goes on.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _contents
from .errors import AsleepError, InvalidArgumentError, InvalidPointerError, MismatchError, OutOfMemoryError
from .stats import SleepReport
from .vllm_extension import forget_callbacks, init_module

if TYPE_CHECKING:
    from ._torch_memory import TorchMemory
    from .vllm_extension import Handle

_log = logging.getLogger("vrampool")


@dataclass(eq=False)
class AllocationData:
    """A segment: its handle and tag, and whether and how it sleeps."""

    handle: Handle
    tag: str
    _memory: TorchMemory
    #: Whether a pause keeps its contents.
    is_kept: bool = False

    @property
    def is_asleep(self) -> bool:
        """Whether its memory or its contents are not there."""
        return bool(_contents.is_asleep(self.handle[3]))

    @property
    def is_saved(self) -> bool:
        """Whether it sleeps with its contents."""
        return self.is_asleep and _contents.saved(self.handle[3]) is not None

    @property
    def cpu_backup_tensor(self) -> Any:
        """A tensor on the host, while it sleeps with its contents; else `None`."""
        place = _contents.saved(self.handle[3]) if self.is_asleep else None
        return None if place is None else self._memory.on_host(*place)


class Segments:
    """Segments by address, for the callback of an allocator that adds them, after `start`."""

    def __init__(
        self,
        memory: TorchMemory,
        on_malloc: Callable[[Handle], None],
        create_and_map: Callable[[Handle], None],
        unmap_and_release: Callable[[Handle], None],
    ) -> None:
        self.by_address: dict[int, AllocationData] = {}
        self._memory, self._on_malloc = memory, on_malloc
        self._create_and_map, self._unmap_and_release = create_and_map, unmap_and_release
        # One sleep or wake at a time. Not of the callbacks, which PyTorch makes under its own lock.
        self._changing = threading.Lock()
        #: Whether host memory of contents stays for the next sleep after a wake.
        self.keeps_host_memory = True
        # Trimmed segments, which PyTorch frees later.
        self._trimmed: dict[int, Handle] = {}

    def start(self) -> None:
        """Sets the callbacks, which need the allocator's reference to this.

        Raises: as `claim`.
        """
        self.claim()
        # Registered before the release of pools, and so called after it: memory that is freed without Python calls nothing.
        atexit.register(forget_callbacks)

    def claim(self) -> None:
        """Sets the callbacks of segments.

        Raises: `BusyError` where another allocator has live segments.
        """
        init_module(self._on_malloc, self.remove)

    def add(self, handle: Handle, tag: str, is_kept: bool = False) -> None:
        self.by_address[handle[2]] = AllocationData(handle, tag, self._memory, is_kept)

    def remove(self, address: int) -> Handle:
        """Forgets a segment that is freed.

        Raises: `KeyError` for an address that is not a segment's.
        """
        if (handle := self._trimmed.pop(address, None)) is not None:
            return handle
        return self.by_address.pop(address).handle

    def select(self, takes: Callable[[AllocationData], bool]) -> list[AllocationData]:
        """Segments that exist. An interrupt in the callback of a free leaves one in `by_address` that does not."""
        return [data for data in list(self.by_address.values()) if self._lives(data) and takes(data)]

    def trim(self, segments: Iterable[dict[str, Any]]) -> bool:
        """Releases the segments of a snapshot that have no live block, and returns whether any other is left."""
        is_left = False
        for segment in segments:
            data = self.by_address.get(segment["address"])
            if data is None:
                continue
            if segment["allocated_size"] != 0 or data.is_asleep:
                is_left = True
                continue
            self._memory.synchronize(data.handle[0])
            self._trimmed[data.handle[2]] = data.handle
            self.by_address.pop(data.handle[2], None)
            self._unmap_and_release(data.handle)
        return is_left

    def sleep(
        self, taken: list[AllocationData], keeps: Callable[[AllocationData], bool], progress: _contents.Progress | None = None
    ) -> SleepReport:
        """Releases the memory of these segments, after copies of those whose contents are kept."""
        _contents.check()
        with self._changing:
            begin = time.perf_counter_ns()
            self._warn_of_another_policy(taken, keeps)
            asleep = [data for data in taken if data.is_asleep]
            kept = [data for data in taken if not data.is_asleep and keeps(data)]
            lost = [data for data in taken if not data.is_asleep and not keeps(data)]
            going = kept + lost
            try:
                # An interrupted wake left contents that are older than the memory, and memory of segments that are asleep.
                self._forget(lost)
                _contents.save(_numbers(kept), progress)
                # Those whose contents are discarded with their memory come last.
                for data in asleep + going:
                    self._change(data, self._unmap_and_release)
            except BaseException:
                # Each by itself, so that one that cannot be mapped leaves the others their contents.
                for data in [data for data in going if data.is_asleep]:
                    try:
                        self._restore([data], None)
                    except Exception:
                        _log.exception("a segment of a sleep that failed stays asleep; a wake tries it again")
                self._forget([data for data in going if not data.is_asleep])
                raise
            return SleepReport(_bytes(going), _bytes(kept), _bytes(lost), not going, time.perf_counter_ns() - begin)

    def _forget(self, of: list[AllocationData]) -> None:
        _contents.forget(_numbers(of), self.keeps_host_memory)

    @staticmethod
    def _warn_of_another_policy(taken: list[AllocationData], keeps: Callable[[AllocationData], bool]) -> None:
        """Warns of tags that are asleep with their contents and would now be discarded, or the other way round."""
        for tag, data in {data.tag: data for data in taken if data.is_asleep}.items():
            was_kept = data.is_saved
            if was_kept != keeps(data):
                where = "on the host" if was_kept else "discarded"
                _log.warning("tag `%s` is asleep already, with its contents %s; the new policy has no effect", tag, where)

    def _restore(self, of: list[AllocationData], progress: _contents.Progress | None) -> None:
        """Maps segments, and copies what was saved of them back."""
        for data in of:
            self._change(data, self._create_and_map)
        _contents.restore(_numbers(of), progress)

    def wake(self, coming: list[AllocationData], progress: _contents.Progress | None = None) -> SleepReport:
        """Maps these segments and restores their contents. Those that another thread frees meanwhile are left out.

        Where the device lacks memory, idle memory of PyTorch is released, and the wake is tried once more.
        """
        try:
            return self._wake(coming, progress)
        except OutOfMemoryError:
            self._memory.release_idle()
            return self._wake(coming, progress)

    def _wake(self, named: list[AllocationData], progress: _contents.Progress | None) -> SleepReport:
        _contents.check()
        with self._changing:
            begin = time.perf_counter_ns()
            coming = [data for data in named if data.is_asleep]
            copied = _bytes([data for data in coming if data.is_saved])
            try:
                self._restore(coming, progress)
            except BaseException:
                for data in coming:
                    try:
                        self._change(data, self._unmap_and_release)
                    except Exception:
                        _log.exception("memory stays mapped after a wake that failed; a wake tries it again")
                raise
            # Also what an interrupted wake left.
            self._forget(named)
            return SleepReport(_bytes(coming), copied, 0, not coming, time.perf_counter_ns() - begin)

    def _change(self, data: AllocationData, change: Callable[[Handle], None]) -> None:
        """Maps or unmaps a segment, unless it is so already.

        One that was freed meanwhile is left as it is; another may have its address.
        """
        try:
            change(data.handle)
        except (AsleepError, InvalidArgumentError):
            pass
        except (InvalidPointerError, MismatchError):
            if self._lives(data):
                raise

    def _lives(self, data: AllocationData) -> bool:
        return self.by_address.get(data.handle[2]) is data and _contents.is_asleep(data.handle[3]) is not None


def _numbers(of: list[AllocationData]) -> list[int]:
    return [data.handle[3] for data in of]


def _bytes(of: list[AllocationData]) -> int:
    return sum(data.handle[1] for data in of)
