"""Segments in the shape of vLLM, on a host device."""

from __future__ import annotations

import ctypes
import resource
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vrampool
from conftest import MIB, in_threads, my_free, my_malloc, run
from vrampool import vllm, vllm_extension


@pytest.fixture
def reported(fresh: Callable[..., None]) -> Iterator[list[Any]]:
    fresh()
    log: list[Any] = []
    live: dict[int, vllm.Handle] = {}

    def on_malloc(handle: vllm.Handle) -> None:
        live[handle[2]] = handle
        log.append(handle)

    def on_free(address: int) -> vllm.Handle:
        log.append(address)
        return live.pop(address)

    vllm.init_module(on_malloc, on_free)
    yield log
    assert live == {}
    vllm.forget_callbacks()


def test_a_segment_is_reported_unmapped_and_restored(reported: list[Any]) -> None:
    address = my_malloc(3 * MIB)
    ((device, size, ptr, handle),) = reported
    assert (device, ptr) == (0, address)
    assert size >= 3 * MIB
    ctypes.memset(address, 1, size)
    for _ in range(2):
        with pytest.raises(vrampool.InvalidArgumentError, match="mapped already"):
            vllm.python_create_and_map(device, size, ptr, handle)
        assert vllm.python_unmap_and_release(device, size, ptr, handle) is None  # type: ignore[func-returns-value]
        with pytest.raises(vrampool.AsleepError, match="unmapped already"):
            vllm.python_unmap_and_release(device, size, ptr, handle)
        assert vllm.python_create_and_map(device, size, ptr, handle) is None  # type: ignore[func-returns-value]
    ctypes.memset(address, 2, size)
    my_free(address)
    assert reported[1:] == [address]


def test_segments_reserve_what_they_hold(reported: list[Any]) -> None:
    def address_space() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    my_free(my_malloc(2 * MIB))
    before = address_space()
    addresses = [my_malloc(2 * MIB) for _ in range(16)]
    # Eight times the device each would be 8 GiB.
    assert address_space() - before < 1 << 30
    for address in addresses:
        my_free(address)


def test_running_out_is_an_exception_and_leaves_room(reported: list[Any]) -> None:
    for _ in range(3):
        reported.clear()
        with pytest.raises(vrampool.OutOfMemoryError):
            my_malloc(128 * MIB)
        # Before it was to be mapped, and then of its end.
        assert reported[1:] == [reported[0][2]]
    my_free(my_malloc(32 * MIB))


def test_a_failure_is_reported_once_and_leaves_nothing(reported: list[Any]) -> None:
    # vLLM's goes on failing after the first failure (vllm#36651).
    with pytest.raises(vrampool.Error):
        my_malloc(2**50)
    assert reported == []
    my_free(my_malloc(MIB))


def test_numbers_of_a_segment_are_taken_as_they_are(reported: list[Any]) -> None:
    """Not modulo the width of C's type."""
    address = my_malloc(MIB)
    handle = reported[0]
    for call in (vllm.python_create_and_map, vllm.python_unmap_and_release):
        for at, width in enumerate((32, 64, 64, 64)):
            for wrong in (handle[at] + (1 << width), handle[at] - (1 << width)):
                numbers = [*handle[:at], wrong, *handle[at + 1 :]]
                with pytest.raises((vrampool.InvalidArgumentError, vrampool.ArgumentOverflowError)):
                    call(*numbers)
            with pytest.raises(vrampool.ArgumentTypeError):
                call(*[*handle[:at], 1.5, *handle[at + 1 :]])
    my_free(address)


def test_a_segment_is_reported_before_it_is_mapped(reported: list[Any]) -> None:
    """vLLM's registers an address first; what fails then is taken out of its records."""
    seen: list[Any] = []
    vllm.forget_callbacks()

    def on_malloc(handle: vllm.Handle) -> None:
        with pytest.raises(vrampool.AsleepError):
            vllm.python_unmap_and_release(*handle)
        seen.append(handle)

    vllm.init_module(on_malloc, lambda address: seen[0])
    my_free(my_malloc(MIB - 1))
    assert seen[0][1] >= MIB - 1


def test_a_callback_that_raises_loses_nothing(reported: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise KeyError("no such record")

    vllm.forget_callbacks()
    vllm.init_module(fail, fail)
    for _ in range(3):
        # More than half of the device: a segment that stayed would leave no room.
        with pytest.raises(vrampool.InvalidArgumentError, match="callback for the allocation"):
            my_malloc(40 * MIB)
    assert "no such record" in caplog.text
    vllm.init_module(lambda handle: None, fail)
    for _ in range(3):
        address = my_malloc(40 * MIB)
        with pytest.raises(vrampool.InvalidArgumentError, match="callback for the release"):
            my_free(address)
        with pytest.raises(vrampool.InvalidPointerError):
            my_free(address)


@pytest.mark.parametrize("returned", [None, (0, 1, 2, 3), 7])
def test_a_callback_that_returns_another_handle_is_reported(reported: list[Any], returned: object) -> None:
    vllm.forget_callbacks()
    vllm.init_module(lambda handle: None, lambda address: returned)
    for _ in range(3):
        address = my_malloc(40 * MIB)
        with pytest.raises(vrampool.MismatchError, match="callback for the release"):
            my_free(address)


def test_other_callbacks_are_refused_while_segments_live(reported: list[Any]) -> None:
    vllm.forget_callbacks()
    records: dict[int, vllm.Handle] = {}

    class Owner:
        def on_malloc(self, handle: vllm.Handle) -> None:
            records[handle[2]] = handle

    owner = Owner()
    for _ in range(2):
        # vLLM sets the same ones for each of its pools.
        vllm.init_module(owner.on_malloc, records.pop)
    address = my_malloc(MIB)
    with pytest.raises(vrampool.BusyError, match="1 live segments"):
        vllm.init_module(Owner().on_malloc, records.pop)
    for wrong in ((None, records.pop), (owner.on_malloc, 3)):
        with pytest.raises(vrampool.ArgumentTypeError):
            vllm.init_module(*wrong)
    my_free(address)
    assert records == {}
    vllm.init_module(Owner().on_malloc, records.pop)


def test_nothing_is_allocated_before_init_module(place: dict[str, Any]) -> None:
    run(
        """
        import ctypes
        from vrampool import vllm_extension
        functions = ctypes.CDLL(vllm_extension.PATH)
        assert functions.my_malloc(ctypes.c_ssize_t(MIB), 0, None) == 0
        functions.my_free(ctypes.c_void_p(8), ctypes.c_ssize_t(MIB), 0, None)
        assert functions.cumem_allocator_bind(None, None) == 1
        """
    )


def test_pytorch_calls_the_functions_of_a_file_that_vllm_finds(reported: list[Any]) -> None:
    """Under the lock of its allocator, and from any thread."""
    with open("/proc/self/maps") as maps:
        loaded = {line.split("/", 1)[1].strip() for line in maps if "/cumem_allocator." in line}
    assert loaded == {vllm_extension.PATH.lstrip("/")}
    functions = ctypes.CDLL(vllm_extension.PATH)
    assert functions.cumem_allocator_bind(ctypes.c_void_p(1), ctypes.c_void_p(2)) == 1, "others are bound"
    functions.my_malloc.restype = ctypes.c_void_p
    lock = threading.Lock()
    size = ctypes.c_ssize_t

    def work() -> None:
        for _ in range(20):
            with lock:
                address = functions.my_malloc(size(MIB), 0, None)
            assert address
            other = threading.Thread(target=functions.my_free, args=(ctypes.c_void_p(address), size(MIB), 0, None))
            with lock:
                other.start()
                other.join()

    in_threads(work, work, work)
    assert len(reported) == 2 * 3 * 20
    for wrong in (0, -1):
        assert functions.my_malloc(size(wrong), 0, None) is None
    assert functions.my_malloc(size(MIB), -9, None) is None
