"""Segments in the shape of vLLM, on a host device."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vrampool
from conftest import MIB
from vrampool import vllm


@pytest.fixture
def told(fresh: Callable[..., None]) -> Iterator[list[Any]]:
    fresh()
    log: list[Any] = []
    vllm.init_module(log.append, log.append)
    yield log
    vllm.forget_callbacks()


def test_a_segment_is_told_of_taken_away_and_given_back(told: list[Any]) -> None:
    address = vllm.my_malloc(3 * MIB)
    ((device, size, ptr, handle),) = told
    assert (device, ptr) == (0, address)
    assert size >= 3 * MIB
    ctypes.memset(address, 1, size)
    for _ in range(2):
        assert vllm.python_unmap_and_release(device, size, ptr, handle) == (device, size, ptr, handle)
    for _ in range(2):
        vllm.python_create_and_map(device, size, ptr, handle)
    ctypes.memset(address, 2, size)
    vllm.my_free(address)
    assert told[1:] == [address]


def test_a_segment_is_freed_while_it_sleeps(told: list[Any]) -> None:
    address = vllm.my_malloc(MIB)
    vllm.python_unmap_and_release(*told[0])
    vllm.my_free(address)
    with pytest.raises(vrampool.InvalidPointerError):
        vllm.my_free(address)


def test_segments_reserve_what_they_hold(told: list[Any]) -> None:
    def address_space() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    vllm.my_free(vllm.my_malloc(2 * MIB))
    before = address_space()
    addresses = [vllm.my_malloc(2 * MIB) for _ in range(16)]
    # Eight times the device each would be 8 GiB.
    assert address_space() - before < 1 << 30
    for address in addresses:
        vllm.my_free(address)


def test_running_out_is_an_exception_and_leaves_room(told: list[Any]) -> None:
    for _ in range(3):
        with pytest.raises(vrampool.OutOfMemoryError):
            vllm.my_malloc(128 * MIB)
    vllm.my_free(vllm.my_malloc(32 * MIB))


def test_what_names_no_segment_is_refused(told: list[Any]) -> None:
    address = vllm.my_malloc(MIB)
    device, size, ptr, handle = told[0]
    for wrong in ((device + 1, size, ptr, handle), (device, size + 1, ptr, handle), (device, size, ptr, handle + 1)):
        with pytest.raises(vrampool.MismatchError):
            vllm.python_unmap_and_release(*wrong)
    with pytest.raises(vrampool.InvalidPointerError):
        vllm.python_create_and_map(device, size, ptr + 1, handle)
    vllm.my_free(address)


def test_a_failure_is_told_once_and_leaves_nothing(told: list[Any]) -> None:
    # vLLM's goes on failing after the first failure (vllm#36651).
    with pytest.raises(vrampool.Error):
        vllm.my_malloc(2**50)
    assert told == []
    vllm.my_free(vllm.my_malloc(MIB))
    for wrong in (0, -1):
        with pytest.raises(vrampool.InvalidArgumentError):
            vllm.my_malloc(wrong)
