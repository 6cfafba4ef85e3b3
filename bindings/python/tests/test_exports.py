"""Memory that another library uses is not freed, whatever frees and exports it at the same time."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import vrampool
from conftest import in_threads
from vrampool import Pool, from_dlpack

SIZE = 4096


class Barrier(threading.Barrier):
    """One that no thread waits at when another one has failed."""

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException:
                self.abort()
                raise

        return run


def buffer(block: Any) -> Any:
    """The buffer protocol, which classes in Python have from 3.12 on."""
    return block.__buffer__(0)


EXPORTS: list[Callable[[Any], Any]] = [from_dlpack, buffer, lambda block: block.__dlpack__()]


@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_within_a_call_of_free_keeps_the_memory(host: Pool, export: Callable[[Any], Any]) -> None:
    block = host.allocate(SIZE)
    exports: list[Any] = []

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            exports.append(export(block))
            return 0, 0

    with pytest.raises(BufferError, match="arrays of it exist"):
        block.free(Stream())
    assert block.is_live
    with host.allocate(SIZE) as other:
        assert other.address != block.address, "the memory was freed, and an array has it"
    exports.clear()
    gc.collect()
    block.free()


@pytest.mark.parametrize("export", EXPORTS)
def test_a_call_of_free_within_an_export_is_refused(
    host: Pool, export: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = host.allocate(SIZE)

    def device_of(_: int) -> tuple[str, int]:
        with pytest.raises(BufferError, match="arrays of it exist"):
            block.free()
        return "host", 0

    monkeypatch.setattr("vrampool.memory.device_of", device_of)
    if export is from_dlpack:
        # Which asks for the device before, when nothing is exported yet.
        export = vrampool.Block.__dlpack__
    kept = export(block)
    assert block.is_live
    del kept
    gc.collect()
    block.free()


def test_each_of_several_exports_keeps_the_memory(host: Pool) -> None:
    threads, rounds = 4, 500
    barrier = Barrier(threads)
    block = host.allocate(SIZE)
    exports: list[Any] = [None] * threads

    def work(number: int) -> None:
        for round in range(rounds):
            barrier.wait()
            exports[number] = from_dlpack(block) if number % 2 else block.__dlpack__()
            barrier.wait()
            # One remains, each time another one.
            if number != round % threads:
                exports[number] = None
            barrier.wait()
            if number == 0:
                with pytest.raises(BufferError, match="arrays of it exist"):
                    block.free()
            barrier.wait()
            exports[number] = None

    in_threads(*(barrier.guarded(functools.partial(work, number)) for number in range(threads)))
    block.free()


def test_of_a_free_and_an_export_one_has_the_memory(host: Pool) -> None:
    rounds = 2000
    barrier = Barrier(2)
    shared: list[vrampool.Block] = []
    outcomes: set[str] = set()

    def frees() -> None:
        for round in range(rounds):
            shared[:] = [host.allocate(SIZE)]
            barrier.wait()
            try:
                shared[0].free()
                outcomes.add("freed")
            except BufferError:
                outcomes.add("exported")
            # It has the address of the block, where that was freed.
            with host.allocate(SIZE) as other:
                ctypes.memset(other.address, round % 251, SIZE)
                barrier.wait()
            shared.clear()

    def exports() -> None:
        for round in range(rounds):
            barrier.wait()
            try:
                view = from_dlpack(shared[0])
            except vrampool.InvalidPointerError:
                view = None
            if view is not None:
                ctypes.memset(view.address, 255, SIZE)
            barrier.wait()
            if view is not None:
                assert ctypes.string_at(view.address, SIZE) == b"\xff" * SIZE, "another block has the memory of an array"

    in_threads(barrier.guarded(frees), barrier.guarded(exports))
    assert outcomes


def test_memory_for_a_block_whose_former_memory_is_exported(host: Pool) -> None:
    block = host.allocate(SIZE)
    view = from_dlpack(block)
    host._allocate_into(2 * SIZE, 0, block)
    assert host.stats().live_buffers == 2
    ctypes.memset(view.address, 1, SIZE)
    del view
    assert host.stats().live_buffers == 1
    block.free()


def test_a_capsule_is_taken_once(host: Pool) -> None:
    from vrampool import _native

    block = host.allocate(SIZE)
    before = sys.getrefcount(block)
    for version in (None, (1, 0)):
        capsule = block.__dlpack__(max_version=version)
        taken = _native.Imported(capsule)
        assert (taken.address, taken.nbytes, taken.device, taken.is_read_only) == (block.address, SIZE, (1, 0), False)
        with pytest.raises(vrampool.UnsupportedError, match="taken already"):
            _native.Imported(capsule)
        del capsule
        with pytest.raises(BufferError):
            block.free()
        del taken
    for wrong in (object(), None, 7):
        with pytest.raises(vrampool.UnsupportedError, match="no capsule"):
            _native.Imported(wrong)
    assert sys.getrefcount(block) == before
    block.free()
