"""Pools of `CuMemAllocator`, over a stub of PyTorch's MemPool: what vLLM's own tests of its allocator check."""

from __future__ import annotations

import ctypes

import pytest

from conftest import SIZE, contents
from fake_mem_pool import Pools
from vrampool import vllm
from vrampool.vllm import CuMemAllocator


def make(allocator: CuMemAllocator, pools: Pools, tag: str | None, value: int = 1) -> int:
    with allocator.use_memory_pool(tag):
        address = pools.empty(SIZE)
    ctypes.memset(address, value, SIZE)
    return address


def mapped(allocator: CuMemAllocator) -> int:
    return sum(data.handle[1] for data in allocator.pointer_to_data.values() if not data.is_asleep)


def tags(allocator: CuMemAllocator) -> list[str]:
    return sorted(data.tag for data in allocator.pointer_to_data.values())


def test_each_scope_has_a_pool_that_lives_as_long_as_its_segments(allocator: CuMemAllocator, pools: Pools) -> None:
    for _ in range(3):
        with allocator.use_memory_pool("weights"):
            pass
    assert allocator.allocator_and_pools == {}
    first, second = make(allocator, pools, "workspace"), make(allocator, pools, "workspace")
    assert len(allocator.allocator_and_pools["workspace"]) == 2
    assert all(functions is allocator._allocator for _, functions in allocator.allocator_and_pools["workspace"])
    pools.free(first)
    assert mapped(allocator) == 2 * SIZE, "PyTorch keeps what was freed"
    with allocator.use_memory_pool("workspace"):
        assert mapped(allocator) == SIZE, "and the next scope releases it"
    assert len(allocator.allocator_and_pools["workspace"]) == 1
    assert list(allocator.pointer_to_data) == [second]


@pytest.mark.parametrize("is_freed_early", [True, False])
def test_a_tag_that_is_entered_again_releases_what_was_freed(
    allocator: CuMemAllocator, pools: Pools, is_freed_early: bool
) -> None:
    with allocator.use_memory_pool("t"):
        first = pools.empty(SIZE)
        if is_freed_early:
            pools.free(first)
    second = make(allocator, pools, "t", 7)
    if not is_freed_early:
        pools.free(first)
    pools.torch.log.clear()
    with allocator.use_memory_pool("t"):
        pass
    assert mapped(allocator) == SIZE
    # The device's work was waited for.
    assert is_freed_early or ("synchronize", 0) in pools.torch.log
    allocator.sleep("t")
    allocator.wake_up()
    assert contents(second) == b"\7" * SIZE


def test_a_pool_with_live_segments_is_trimmed_and_freed_later(allocator: CuMemAllocator, pools: Pools) -> None:
    with allocator.use_memory_pool("t"):
        kept, freed = pools.empty(SIZE), pools.empty(2 * SIZE)
    pools.free(freed)
    with allocator.use_memory_pool("t"):
        pass
    assert list(allocator.pointer_to_data) == [kept]
    allocator.sleep(())
    allocator.wake_up()
    pools.free(kept)
    with allocator.use_memory_pool("t"):
        pass
    assert allocator.allocator_and_pools == {}
    assert pools.snapshot((0, 1)) == [], "PyTorch freed both, with the one whose memory was released before"


def test_a_pool_that_an_outer_scope_uses_is_not_trimmed(allocator: CuMemAllocator, pools: Pools) -> None:
    """PyTorch would reuse a segment without memory."""
    with allocator.use_memory_pool("runtime"):
        outer = pools.empty(SIZE)
        pools.free(outer)
        with allocator.use_memory_pool("kv_cache"), allocator.use_memory_pool("runtime"):
            inner = pools.empty(SIZE)
        assert pools.empty(SIZE) == outer
        ctypes.memset(outer, 1, SIZE)
    assert tags(allocator) == ["runtime", "runtime"]
    assert inner != outer


def test_scopes_nest_with_tags_of_their_own(allocator: CuMemAllocator, pools: Pools) -> None:
    with allocator.use_memory_pool("runtime"):
        state = pools.empty(SIZE)
        with allocator.use_memory_pool("kv_cache"):
            pools.empty(SIZE)
        assert allocator.current_tag == "runtime"
    assert tags(allocator) == ["kv_cache", "runtime"]
    ctypes.memset(state, 5, SIZE)
    # vLLM's levels keep these.
    for level in (("weights", "runtime", "cudagraph"), ("runtime", "cudagraph")):
        allocator.sleep(level)
        assert mapped(allocator) == 0
        assert allocator.get_current_usage() == 2 * SIZE
        allocator.wake_up(["weights"])
        assert contents(state) == b"\5" * SIZE
        assert mapped(allocator) == SIZE, "a wake of weights restores what is internal, and no cache"
        allocator.wake_up(["kv_cache"])
        assert mapped(allocator) == 2 * SIZE


def test_graphs_have_one_pool_that_sleeps_with_its_contents(allocator: CuMemAllocator, pools: Pools) -> None:
    with allocator.cudagraph_pool() as id:
        assert allocator.current_tag == "cudagraph"
        with pools.use(id):
            address = pools.empty(SIZE)
    assert allocator.current_tag == "default"
    ctypes.memset(address, 9, SIZE)
    with allocator.cudagraph_pool() as again:
        assert again == id
    assert allocator.allocator_and_pools["cudagraph"][0][0].id == id
    with allocator.use_memory_pool("cudagraph"):
        pass
    assert list(allocator.pointer_to_data) == [address]
    for level in (("weights", "runtime", "cudagraph"), ("runtime", "cudagraph")):
        allocator.sleep(level)
        assert mapped(allocator) == 0
        allocator.wake_up(["kv_cache"])
        assert contents(address) == b"\x09" * SIZE
    pools.free(address)
    with pools.use(id):
        assert pools.empty(SIZE) == address, "its pool stays"


def test_a_sleep_empties_pytorchs_cache_once(allocator: CuMemAllocator, pools: Pools) -> None:
    make(allocator, pools, None)
    pools.torch.log.clear()
    allocator.sleep()
    assert pools.torch.log.count("empty_cache") == 1
    allocator.wake_up()


def test_the_functions_of_the_module_can_be_replaced(
    allocator: CuMemAllocator, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM's tests do, which fill memory that is mapped again."""
    address = make(allocator, pools, "weights")
    original = vllm.create_and_map

    def poison(handle: vllm.Handle) -> None:
        original(handle)
        ctypes.memset(handle[2], 0xA5, handle[1])

    allocator.sleep(())
    monkeypatch.setattr(vllm, "create_and_map", poison)
    allocator.wake_up()
    assert contents(address) == b"\xa5" * SIZE


def test_expandable_segments_are_off_within_a_scope(
    allocator: CuMemAllocator, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[str] = []
    monkeypatch.setattr(pools.torch.cuda.memory, "_set_allocator_settings", set_to.append, raising=False)
    for settings, off in (
        ("", None),
        ("expandable_segments:False", None),
        ("max_split_size_mb:512, expandable_segments:True", "max_split_size_mb:512,expandable_segments:False"),
    ):
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", settings)
        set_to.clear()
        with pytest.raises(KeyError), allocator.use_memory_pool():
            assert set_to == ([off] if off else [])
            raise KeyError
        assert set_to == ([off, settings] if off else [])
