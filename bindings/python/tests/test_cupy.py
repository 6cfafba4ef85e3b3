"""What is below CuPy, on host devices."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import vrampool
import vrampool.cupy as vc
from conftest import MIB, at_each_instruction
from fake_cupy import CuPy, OutOfMemoryError
from vrampool._library import LIBRARY


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CuPy]:
    fake = CuPy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    yield fake
    vc.uninstall()


def test_memory_is_live_while_cupy_refers_to_it(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)
    pointer = allocator.malloc(1000)
    address = pointer.ptr
    assert vrampool.block_at(address).requested == 1000
    assert allocator.used_bytes() >= 1000
    assert allocator.used_bytes() + allocator.free_bytes() == allocator.total_bytes()
    del pointer
    assert allocator.used_bytes() == 0
    assert allocator(1000).ptr == address
    allocator.free_all_blocks()
    assert allocator.total_bytes() == 0


class Stream:
    """As CuPy's: destroyed with its last reference."""

    def __init__(self, ptr: int, done: bool = True) -> None:
        self.ptr = ptr
        self.done = done


def test_a_stream_lives_as_long_as_memory_knows_it_and_no_longer(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)
    pool = allocator.pool()
    with pool.stream() as first, pool.stream() as second, pool.stream() as third:
        # One that CuPy ends by itself, so the fake has the handle alone.
        cupy.stream = Stream(first.handle)
        alive = weakref.ref(cupy.stream)
        pointer = allocator.malloc(1000)
        cupy.stream = Stream(second.handle)
        other = allocator.malloc(1000)
        assert alive() is not None, "a block of it is live"
        del pointer
        assert alive() is not None, "idle memory knows it"
        cupy.stream = Stream(third.handle)
        again = allocator.malloc(1000)
        assert alive() is None
        assert again.ptr != other.ptr


@pytest.fixture
def retired(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The streams that are retired from now on."""
    streams: list[int] = []
    call = LIBRARY.call

    def noted(name: str, *arguments: Any) -> Any:
        if name == "stream_retire":
            streams.append(arguments[1])
        return call(name, *arguments)

    monkeypatch.setattr(LIBRARY, "call", noted)
    return streams


def test_neither_a_foreign_stream_nor_one_with_work_is_retired(place: dict[str, Any], cupy: CuPy, retired: list[int]) -> None:
    allocator = vc.CuPyAllocator(**place)
    pool = allocator.pool()
    with pool.stream() as first, pool.stream() as second, pool.stream() as third:
        cupy.stream = cupy.cuda.ExternalStream(first.handle)
        del allocator.malloc(1000).mem
        cupy.stream = busy = Stream(second.handle, done=False)
        del allocator.malloc(1000).mem
        del busy
        cupy.stream = Stream(third.handle)
        del allocator.malloc(1000).mem
        assert retired == [], "one may be destroyed already, the other would be waited for"
        # Its owner says that it goes.
        allocator.retire_stream(cupy.cuda.ExternalStream(first.handle))
        assert retired == [first.handle]


def test_a_stream_of_many_objects_is_not_retired_while_a_block_of_it_is_live(place: dict[str, Any], cupy: CuPy, retired: list[int]) -> None:
    allocator = vc.CuPyAllocator(**place)
    pool = allocator.pool()
    with pool.stream() as first, pool.stream() as second, pool.stream() as third:
        # As CuPy's ExternalStream, made anew at each step.
        cupy.stream = Stream(first.handle)
        allocator.malloc(1000)
        cupy.stream = Stream(first.handle)
        live = allocator.malloc(1000)
        cupy.stream = Stream(second.handle)
        allocator.malloc(1000)
        assert retired == []
        del live
        cupy.stream = Stream(third.handle)
        allocator.malloc(1000)
        assert sorted(retired) == sorted([first.handle, second.handle])


def test_references_are_counted_as_this_python_does() -> None:
    table: dict[object, object] = {1: object(), 2: object()}
    other = table[2]
    assert vc._taken(table, 1)[1] == vc._ALONE
    assert vc._taken(table, 2)[1] == vc._ALONE + 1
    del other


def test_memory_is_for_the_current_stream_and_others_are_recorded(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)
    with allocator.pool().stream() as stream:
        cupy.stream.ptr = stream.handle
        pointer = allocator.malloc(1000)
        assert vrampool.block_at(pointer.ptr).stream == stream.handle
        array = types.SimpleNamespace(data=pointer)
        cupy.stream.ptr = 0
        allocator.record_stream(array, cupy.stream)
        # An empty array, and one of another allocator.
        allocator.record_stream(types.SimpleNamespace(data=allocator.malloc(0)), cupy.stream)
        foreign = types.SimpleNamespace(data=types.SimpleNamespace(mem=types.SimpleNamespace(size=MIB)))
        with pytest.raises(vrampool.InvalidPointerError, match="not vrampool's"):
            allocator.record_stream(foreign, cupy.stream)
        del pointer, array
        assert allocator.used_bytes() == 0


@pytest.mark.usefixtures("two_devices")
def test_each_device_has_a_pool(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)
    first = allocator.malloc(MIB)
    cupy.device = 1
    assert allocator.used_bytes() == 0
    second = allocator.malloc(2 * MIB)
    assert second.mem.device_id == 1
    assert allocator.used_bytes() == 2 * MIB
    cupy.device = 0
    assert allocator.used_bytes() == MIB
    del first, second


def test_the_pool_of_a_device_is_on_it(cupy: CuPy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(vc, "Pool", lambda **options: asked.append(options))
    cupy.device = 3
    vc.CuPyAllocator(limit=MIB).pool()
    assert asked == [{"device": "cuda:3", "name": "cupy-3", "limit": MIB}]


def test_out_of_memory_is_cupys_with_ours_as_its_cause(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place, limit=8 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.malloc(9 * MIB)
    assert caught.value.args == (9 * MIB, 0, 8 * MIB)
    assert isinstance(caught.value.__cause__, vrampool.OutOfMemoryError)
    allocator.malloc(MIB)


def test_limits_as_cupy_says_them(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)
    assert allocator.get_limit() == 0
    allocator.set_limit(size=6 * MIB)
    assert allocator.get_limit() == 6 * MIB
    # All of it free again serves what neither part of it could (cupy#7678).
    first, second = allocator.malloc(5 * MIB), allocator.malloc(MIB)
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(MIB)
    del first, second
    allocator.malloc(6 * MIB)
    allocator.set_limit(fraction=0.5)
    assert allocator.get_limit() == 32 * MIB
    allocator.set_limit(size=0)
    assert allocator.get_limit() == 0
    wrong: list[dict[str, Any]] = [{"size": -1}, {"fraction": -0.1}, {"fraction": 1.1}, {"size": 1, "fraction": 0.5}]
    for of in wrong:
        with pytest.raises(ValueError, match=r"size|fraction|bytes"):
            allocator.set_limit(**of)


def test_installing_and_its_end(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.install(**place)
    assert cupy.set_to == allocator.malloc
    assert vc.install(**place) is allocator
    with pytest.raises(vrampool.BusyError, match="uninstall"):
        vc.install(limit=1, **place)
    vc.uninstall()
    assert cupy.set_to is cupy.own.malloc
    with vc.allocator(**place) as scoped:
        assert cupy.set_to == scoped.malloc
    assert cupy.set_to is cupy.own.malloc


def test_invalid_options_are_reported_at_once(cupy: CuPy) -> None:
    with pytest.raises(vrampool.ConfigurationError):
        vc.install(limit=-1)
    assert cupy.set_to is None


def test_an_exception_at_any_instruction_of_malloc_leaks_nothing(place: dict[str, Any], cupy: CuPy) -> None:
    allocator = vc.CuPyAllocator(**place)

    def check() -> None:
        assert allocator.pool().stats().live_buffers == 0

    assert at_each_instruction(allocator.malloc, 1000, check=check) > 50
