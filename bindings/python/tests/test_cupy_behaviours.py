"""What CuPy's own tests of its allocators ask of them (`tests/cupy_tests/cuda_tests/test_memory.py`), of vrampool below CuPy.

Those of the pool's figures run on a host device and, where there is one, on a GPU; those of CuPy's objects on a GPU. What is not here:
how a pool places and reuses memory, which is the library's; and what is not so with vrampool by design or of CuPy's inside alone: chunks
and bins, `n_free_blocks`, `PooledMemory.free`, `free_all_blocks(stream=…)`, `free_all_free`.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import vrampool.cupy as vc
from conftest import MIB, PLACES, options_of, run, skip_without
from fake_cupy import CuPy

#: As CuPy's, but a piece of virtual memory: so that figures are exact.
UNIT = 2 * MIB

#: Makes another stream the current one, within `with`.
OnAnother = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=[*PLACES, "gpu"])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[vc.CuPyAllocator, OnAnother]]:
    """An allocator that has allocated nothing, and another stream."""
    if request.param == "gpu":
        skip_without("cupy", "gpu")
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)

        @contextlib.contextmanager
        def on_stream() -> Iterator[None]:
            with stream:
                yield

        yield vc.CuPyAllocator(), on_stream
        return
    fake = CuPy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    allocator = vc.CuPyAllocator(**options_of(request.param))
    with allocator.pool().stream() as made:

        @contextlib.contextmanager
        def on_made() -> Iterator[None]:
            before, fake.stream = fake.stream, types.SimpleNamespace(ptr=made.handle)
            yield
            fake.stream = before

        yield allocator, on_made
        allocator.free_all_blocks()


Allocator = tuple[vc.CuPyAllocator, OnAnother]


def test_nothing_is_taken_before_it_is_asked_for(cupy: Allocator) -> None:
    allocator, _ = cupy
    assert (allocator.used_bytes(), allocator.free_bytes(), allocator.total_bytes()) == (0, 0, 0)
    allocator.free_all_blocks()
    pointer = allocator.malloc(0)
    assert (pointer.ptr, pointer.mem.size, allocator.total_bytes()) == (0, 0, 0)


def test_bytes_are_used_or_free(cupy: Allocator) -> None:
    allocator, on_another = cupy

    def figures() -> tuple[float, float, float]:
        of = allocator.used_bytes(), allocator.free_bytes(), allocator.total_bytes()
        return of[0] / UNIT, of[1] / UNIT, of[2] / UNIT

    first = allocator.malloc(2 * UNIT)
    assert figures() == (2, 0, 2)
    second = allocator.malloc(4 * UNIT)
    assert figures() == (6, 0, 6)
    del second
    assert figures() == (2, 4, 6)
    del first
    assert figures() == (0, 6, 6)
    third = allocator.malloc(UNIT)
    assert figures() == (1, 5, 6)
    with on_another():
        fourth = allocator.malloc(2 * UNIT)
        assert figures() == (3, 3, 6)
        del fourth
    del third
    assert figures() == (0, 6, 6)


@pytest.fixture
def gpu() -> None:
    skip_without("cupy", "gpu")


def test_arrays_are_of_the_allocator_that_is_set(gpu: None) -> None:
    run("""
        import cupy, threading, vrampool.cupy
        allocator = vrampool.cupy.install()
        with cupy.cuda.Device(0):
            assert allocator.used_bytes() == 0
            array = cupy.arange(128, dtype=cupy.int64)
            assert array.data.mem.size == 1024 and allocator.used_bytes() == 1024
            # In another thread too.
            done = []
            thread = threading.Thread(target=lambda: done.append(int(cupy.arange(16).sum())))
            thread.start(); thread.join()
            assert done == [120] and allocator.used_bytes() == 1024
            # And no longer.
            own = cupy.get_default_memory_pool()
            for reset in (cupy.cuda.set_allocator, lambda: cupy.cuda.set_allocator(None)):
                reset()
                other = cupy.arange(128, dtype=cupy.int64)
                assert allocator.used_bytes() == 1024 and own.used_bytes() == 0
            vrampool.cupy.uninstall()
            other = cupy.arange(128, dtype=cupy.int64)
            assert allocator.used_bytes() == 1024 and own.used_bytes() > 0
            assert (array == other).all()
    """)


def test_pointers_are_numbers_that_can_be_moved_and_copied(gpu: None) -> None:
    run("""
        import ctypes, cupy, vrampool.cupy
        vrampool.cupy.install()
        memory = cupy.cuda.alloc(8)
        assert int(memory) == memory.ptr
        for moved in (memory + 4, 4 + memory):
            assert isinstance(moved, cupy.cuda.MemoryPointer) and int(moved) == int(memory) + 4
        assert int(moved - 4) == int(memory)
        start = int(memory)
        memory += 4; memory -= 4
        assert int(memory) == start
        there, back = ctypes.c_int(100), ctypes.c_int()
        memory.copy_from(ctypes.cast(ctypes.byref(there), ctypes.c_void_p), 4)
        memory.copy_to_host(ctypes.cast(ctypes.byref(back), ctypes.c_void_p), 4)
        assert back.value == 100
        other, back = cupy.cuda.alloc(4), ctypes.c_int()
        other.copy_from(memory, 4)
        other.copy_to_host(ctypes.cast(ctypes.byref(back), ctypes.c_void_p), 4)
        assert back.value == 100
        other.memset(1, 4)
        other.copy_to_host(ctypes.cast(ctypes.byref(back), ctypes.c_void_p), 4)
        assert back.value == 0x01010101
    """)


def test_memory_that_an_array_shows_lives_as_long_as_the_array(gpu: None) -> None:
    run("""
        import cupy, vrampool.cupy
        allocator = vrampool.cupy.install()
        source = cupy.cuda.alloc(24)
        for of in ({}, {"device_id": 0}):
            shown = cupy.cuda.UnownedMemory(source.ptr, 24, source, **of)
            assert (shown.ptr, shown.size, shown.device_id) == (source.ptr, 24, 0)
        array = cupy.ndarray((2, 3), cupy.float32, cupy.cuda.MemoryPointer(shown, 0))
        del source, shown
        assert allocator.used_bytes() > 0
        array[:] = 2
        assert (array == 2).all()
        del array
        assert allocator.used_bytes() == 0
        free, total = cupy.cuda.Device().mem_info
        assert 0 < free <= total
    """)
