"""Interrupts at any instruction, by real signals at random moments: afterwards every state is true, and the next call goes on.

`VRAMPOOL_INTERRUPTS=10000` is the long run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import vrampool
import vrampool.torch as vt
from conftest import MIB, SIZE, Interrupt, my_free, my_malloc, tag_of, torch_alloc, torch_free, under_interrupts
from fake_mem_pool import Pools
from vrampool import Pool, memory_saver
from vrampool.memory_saver import TorchMemorySaver
from vrampool.vllm import CuMemAllocator

INTERRUPTS = int(os.environ.get("VRAMPOOL_INTERRUPTS", "150"))


def fill(address: int, value: int) -> None:
    ctypes.memset(address, value, SIZE)


def value_of(address: int) -> int:
    """Reads the first and the last byte: of memory that is not mapped, in vain."""
    first, last = ctypes.string_at(address, 1), ctypes.string_at(address + SIZE - 1, 1)
    assert first == last
    return first[0]


def reported(*_: int) -> None:
    """Progress that takes some instructions."""
    for _number in range(20):
        pass


def test_vllms_allocator(allocator: CuMemAllocator, place: dict[str, Any]) -> None:
    kept: dict[int, int] = {}
    for value in range(1, 4):
        with allocator.use_memory_pool("weights"):
            kept[my_malloc(SIZE)] = value
    with allocator.use_memory_pool("kv_cache"):
        cache = my_malloc(SIZE)
    for address, value in kept.items():
        fill(address, value)
    # The simulated driver keeps 2 MiB for itself.
    free = (64 if place else 62) * MIB - 4 * SIZE

    def work() -> None:
        with allocator.use_memory_pool("mine"):
            address = my_malloc(SIZE)
        fill(address, 9)
        allocator.sleep(("weights",), progress=reported)
        allocator.wake_up(["weights"], progress=reported)
        allocator.wake_up()
        allocator.discard("kv_cache")
        my_free(address)
        allocator.wake_up()

    def check() -> None:
        assert allocator.current_tag == "default"
        for address in (*kept, cache):
            if not allocator.pointer_to_data[address].is_asleep:
                assert value_of(address) == kept.get(address, value_of(address))
        # The next call goes on, whichever it is.
        if random.random() < 0.5:
            allocator.sleep(("weights",))
            assert all(data.is_asleep for data in allocator._segments.select(lambda data: True))
        allocator.wake_up()
        assert not any(data.is_asleep for data in allocator._segments.select(lambda data: True))
        assert {address: value_of(address) for address in kept} == kept
        for data in allocator._segments.select(lambda data: data.handle[2] not in (*kept, cache)):
            my_free(data.handle[2])
        gc.collect()
        assert allocator.get_current_usage() == 4 * SIZE
        assert not list(allocator._open)
        # All of the device that was free before.
        my_free(my_malloc(free))

    under_interrupts(work, check, INTERRUPTS)


def test_memory_saver(saver: TorchMemorySaver, pools: Pools) -> None:
    kept: dict[int, int] = {}
    for value in range(1, 4):
        with saver.region("weights", enable_cpu_backup=True):
            kept[pools.empty(SIZE)] = value
    with saver.region("kv_cache"):
        cache = pools.empty(SIZE)
    for address, value in kept.items():
        fill(address, value)
    segments = saver._used()._segments

    def work() -> None:
        saver.pause("weights", progress=reported)
        saver.pause()
        saver.resume("kv_cache")
        saver.resume(progress=reported)
        with saver.region("mine"):
            pass
        saver.pause()
        saver.resume("weights")
        saver.resume("kv_cache")

    def check() -> None:
        assert memory_saver._region() is None
        for tag, addresses in (("weights", list(kept)), ("kv_cache", [cache])):
            are_asleep = [segments.by_address[address].is_asleep for address in addresses]
            for address in addresses:
                if not segments.by_address[address].is_asleep:
                    assert value_of(address) == kept.get(address, value_of(address))
            # Of pause and resume one takes it, or both do.
            if not all(are_asleep) and random.random() < 0.5:
                saver.pause(tag)
            if any(data.is_asleep for data in segments.select(lambda data: data.tag == tag)):
                saver.resume(tag)
            with pytest.raises(vrampool.InvalidArgumentError, match="not paused"):
                saver.resume(tag)
        assert {address: value_of(address) for address in kept} == kept

    under_interrupts(work, check, INTERRUPTS)


def tags_now(pool: Pool) -> tuple[str, str]:
    """The tags of memory that C and Python allocate now."""
    address = torch_alloc(4096)
    of_c = tag_of(pool, address)
    torch_free(address, 4096)
    with pool.allocate(4096) as block:
        return of_c, tag_of(pool, block.address)


@contextlib.contextmanager
def by_a_generator(tag: str) -> Iterator[None]:
    with vt.tag(tag):
        yield


def test_tags_of_torch(fresh: Callable[..., None]) -> None:
    fresh()
    pool = vt.pool(0)

    def work() -> None:
        with vt.tag("weights"):
            address = torch_alloc(4096)
            with by_a_generator("kv_cache"):
                pass
            torch_free(address, 4096)

    def check() -> None:
        gc.collect()
        # One that came before the free leaves a block.
        for block in [block for segment in pool.snapshot()["segments"] for block in segment["blocks"]]:
            if block["state"] == "live":
                torch_free(block["address"], 4096)
        assert tags_now(pool) == ("default", "default")
        with vt.tag("weights"):
            assert tags_now(pool) == ("weights", "weights")

    under_interrupts(work, check, INTERRUPTS)


def test_sleeps_of_a_pool(host: Pool) -> None:
    blocks = {}
    for value, tag in enumerate(("weights", "kv_cache"), 1):
        with host.tag(tag):
            blocks[tag] = host.allocate(SIZE)
        fill(blocks[tag].address, value)

    def work() -> None:
        with host.tag("weights"):
            host.sleep(("weights", "kv_cache"), progress=reported)
        host.wake(["weights"], progress=reported)
        host.sleep_tags("weights")
        host.wake()

    def check() -> None:
        for value, (tag, block) in enumerate(blocks.items(), 1):
            with host.tag(tag):
                if host.is_asleep(tag):
                    with pytest.raises(vrampool.AsleepError):
                        host.allocate(10)
                else:
                    host.allocate(10).free()
                    assert value_of(block.address) == value
        host.wake()
        assert [value_of(block.address) for block in blocks.values()] == [1, 2]
        with host.allocate(10) as block:
            assert tag_of(host, block.address) == "default"

    under_interrupts(work, check, INTERRUPTS)
    for block in blocks.values():
        block.free()


def test_runs_of_a_broker() -> None:
    numpy = pytest.importorskip("numpy")
    with Pool("host", host_capacity=64 * MIB) as pool, vrampool.Broker(pool, budget="1MiB") as broker:
        client = broker.client("doubler")
        numbers, doubled = client.input("numbers", (1000,), "f4"), client.output("doubled", (1000,), "f4")
        numbers.numpy()[:] = numpy.arange(1000)
        broker.commit(chunk_runs=100)
        done: list[int] = []

        def double(chunk: Any) -> None:
            numpy.multiply(chunk.numpy(numbers), 2, out=chunk.numpy(doubled))

        def work() -> None:
            broker.run(double, progress=lambda now: done.append(now.runs_done))

        def check() -> None:
            done.clear()
            doubled.numpy()[:] = 0
            assert broker.run(double, progress=lambda now: done.append(now.runs_done)).runs == 1000
            assert done[-1] == 1000
            assert (doubled.numpy() == 2 * numpy.arange(1000)).all()

        under_interrupts(work, check, INTERRUPTS)


@pytest.mark.parametrize("of", ["pool", "vllm", "memory_saver"])
def test_an_interrupt_in_progress_reaches_the_caller(
    of: str, host: Pool, pools: Pools, saver: TorchMemorySaver, request: pytest.FixtureRequest
) -> None:
    def progress(*_: int) -> None:
        raise Interrupt

    if of == "pool":
        with host.allocate(SIZE):
            with pytest.raises(Interrupt):
                host.sleep(progress=progress)
            assert host.is_asleep()
            with pytest.raises(Interrupt):
                host.wake(progress=progress)
            assert not host.is_asleep()
        return
    scope: Any
    sleep: Any
    wake: Any
    if of == "vllm":
        allocator = request.getfixturevalue("allocator")
        scope, sleep, wake = allocator.use_memory_pool(), allocator.sleep, allocator.wake_up
    else:
        scope, sleep, wake = saver.region(enable_cpu_backup=True), saver.pause, saver.resume
    with scope:
        address = pools.empty(SIZE)
    fill(address, 7)
    with pytest.raises(Interrupt):
        sleep(progress=progress)
    # All of them, or none: the interrupt came with the first copy.
    assert value_of(address) == 7
    sleep()
    with pytest.raises(Interrupt):
        wake(progress=progress)
    wake()
    assert value_of(address) == 7


@pytest.mark.parametrize("place", ["host"], indirect=True)
def test_a_scope_ends_on_whichever_thread_it_is_left(fresh: Callable[..., None], host: Pool) -> None:
    fresh()
    pool = vt.pool(0)

    def generator() -> Generator[None, None, None]:
        with vt.tag("weights"), host.tag("weights"):
            yield

    begun = generator()
    next(begun)
    assert tags_now(pool) == ("weights", "weights")
    thread = threading.Thread(target=begun.close)
    thread.start()
    thread.join()
    assert tags_now(pool) == ("default", "default")
    with host.allocate(10) as block:
        assert tag_of(host, block.address) == "default"
    # Also one that no call leaves, and in any order.
    first, second = vt.tag("weights"), vt.tag("kv_cache")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert tags_now(pool) == ("kv_cache", "kv_cache")
    del second
    assert tags_now(pool) == ("default", "default")
    with pytest.raises(RuntimeError, match="once"):
        first.__enter__()
