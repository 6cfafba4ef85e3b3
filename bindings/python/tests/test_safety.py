"""No use of the package from Python frees a block twice, leaks one, or reaches memory that was freed."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import vrampool
import vrampool.trace
from conftest import MIB, at_each_instruction, in_threads, run, tag_of, under_interrupts
from vrampool import Pool

#: Interrupts in the test of random ones. `VRAMPOOL_INTERRUPTS=1000000` is the long run.
INTERRUPTS = int(os.environ.get("VRAMPOOL_INTERRUPTS", "3000"))


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_handles_are_not_copied(host: Pool, how: Callable[[Any], Any]) -> None:
    with host.allocate(1000) as block, host.stream() as stream, vrampool.trace.record(host) as recording:
        handles = [host, block, stream, recording, recording.trace]
        for handle in handles:
            with pytest.raises(TypeError, match=type(handle).__name__):
                how(handle)
        gc.collect()
        assert vrampool.block_at(block.address).requested == 1000
        assert host.limit > 0
        del handles, handle


@pytest.mark.parametrize("scopes", [0, 2, 4])
def test_threads_end_a_block_once(host: Pool, scopes: int) -> None:
    """So many of them by `with`."""
    threads, rounds = 4, 1000
    barrier = threading.Barrier(threads)
    shared: list[vrampool.Block] = []
    freed: list[int] = []

    def work(number: int) -> None:
        try:
            for _ in range(rounds):
                if number == 0:
                    shared[:] = [host.allocate(4096)]
                barrier.wait()
                block = shared[0]
                if number < scopes:
                    with block:
                        pass
                else:
                    with contextlib.suppress(vrampool.InvalidPointerError):
                        block.free()
                        freed.append(number)
                # It has the address of the block that was freed, in most cases.
                mine = host.allocate(4096)
                barrier.wait()
                assert vrampool.block_at(mine.address).requested == 4096, "another thread freed it"
                mine.free()
                barrier.wait()
        except BaseException:
            barrier.abort()
            raise

    in_threads(*(functools.partial(work, number) for number in range(threads)))
    shared.clear()
    assert len(freed) == rounds or (scopes and len(freed) < rounds)


def use(pool: Pool, ends: str) -> None:
    """A block's life, of each kind."""
    block = pool.allocate(4096)
    if ends == "free":
        block.free()
    elif ends == "with":
        with block:
            pass
    elif ends == "array":
        view = vrampool.from_dlpack(block)
        block.__dlpack__()
        del view
    del block


def left(pool: Pool) -> tuple[Callable[[], None], Callable[[], None]]:
    """What to do at once, and to check then: another block has the address of one that was freed, and the interrupted one goes."""
    others: list[vrampool.Block] = []

    def check() -> None:
        while others:
            other = others.pop()
            assert vrampool.block_at(other.address).requested == 4096, "a foreign block was freed"
            other.free()
        assert pool.stats().live_buffers == 0, "a block was leaked"

    return lambda: others.append(pool.allocate(4096)), check


@pytest.mark.parametrize("ends", ["free", "with", "reference", "array"])
def test_an_exception_at_any_instruction_neither_leaks_nor_frees_anothers(host: Pool, ends: str) -> None:
    at_once, check = left(host)
    count = at_each_instruction(use, host, ends, check=check, at_once=at_once)
    assert count > 15, f"{count} instructions, those around the native calls, are tried"


@pytest.mark.parametrize("ends", ["free", "with", "reference", "array"])
def test_with_interrupts_at_any_time_neither_leak_nor_free_anothers(host: Pool, ends: str) -> None:
    at_once, check = left(host)
    under_interrupts(lambda: use(host, ends), check, INTERRUPTS, at_once)


def test_tags_belong_to_the_task(host: Pool) -> None:
    """Each task has its own, whatever the order in which they go on; threads begin without any."""
    tags: dict[str, list[str]] = {"weights": [], "kv_cache": [], "default": []}

    async def task(tag: str) -> None:
        with host.tag(tag):
            for _ in range(3):
                await asyncio.sleep(0)
                with host.allocate(1000) as block:
                    tags[tag].append(tag_of(host, block.address))
        await asyncio.sleep(0)
        with host.allocate(1000) as block:
            tags["default"].append(tag_of(host, block.address))

    async def main() -> None:
        await asyncio.gather(task("weights"), task("kv_cache"))

    asyncio.run(main())
    assert tags == {"weights": ["weights"] * 3, "kv_cache": ["kv_cache"] * 3, "default": ["default"] * 2}

    with host.tag("outer"):
        inherited = contextvars.copy_context()
        with host.tag("inner"), host.allocate(10) as block:
            assert tag_of(host, block.address) == "inner"
        with host.allocate(10) as block:
            assert tag_of(host, block.address) == "outer"

        def elsewhere() -> None:
            with host.allocate(10) as block:
                tags["default"].append(tag_of(host, block.address))

        thread = threading.Thread(target=lambda: contextvars.Context().run(elsewhere))
        thread.start()
        thread.join()
    assert tags["default"] == ["default"] * 3
    with inherited.run(host.allocate, 10) as block:
        assert tag_of(host, block.address) == "outer"


def test_a_tag_that_cannot_be_is_refused_when_its_scope_opens(host: Pool) -> None:
    for wrong in ("", "a\0b"):
        with pytest.raises(vrampool.InvalidArgumentError), host.tag(wrong):
            pass
    with Pool("host", host_capacity=MIB, source="direct") as plain:
        with pytest.raises(vrampool.UnsupportedError), plain.tag("a"):
            pass
    with pytest.raises(vrampool.ClosedError), plain.tag("a"):
        pass


def test_closing_by_threads_is_fine() -> None:
    for _ in range(50):
        in_threads(*[Pool("host", host_capacity=MIB).close] * 4)


def test_blocks_and_pools_may_go_at_the_interpreters_end() -> None:
    for end in ("pool", "pool.stats()", "pool.allocate(1000).free(); pool.close()", "vrampool.from_dlpack(pool.allocate(10))"):
        program = f"import vrampool; pool = vrampool.Pool('host', host_capacity=1 << 26); last = {end.replace('; ', '; last = ')}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stderr == ""
    run(
        """
        import gc, vrampool
        pool = vrampool.Pool("host", host_capacity=64 * MIB)
        blocks = [pool.allocate(1000) for _ in range(10)]
        cycle = [blocks, pool]
        cycle.append(cycle)
        gc.disable()
        """
    )
