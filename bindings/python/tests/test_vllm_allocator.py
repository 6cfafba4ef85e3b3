"""vLLM's `CuMemAllocator`, over a stub of PyTorch on a host device."""

from __future__ import annotations

import contextvars
import ctypes
import re
import sys
import urllib.request
from collections.abc import Callable

import pytest

import vrampool
from conftest import SIZE, Interrupt, contents, my_free, my_malloc, raising
from fake_torch import Torch
from vrampool import _contents, vllm
from vrampool._library import LIBRARY
from vrampool.torch import _install
from vrampool.vllm import CuMemAllocator


def make(allocator: CuMemAllocator, tag: str | None, value: int) -> int:
    with allocator.use_memory_pool(tag):
        address = my_malloc(SIZE)
    ctypes.memset(address, value, SIZE)
    return address


@pytest.fixture
def mapped(allocator: CuMemAllocator, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The addresses of segments of `make` that have memory behind them."""
    known: set[int] = set()
    release, give = vllm.python_unmap_and_release, vllm.python_create_and_map

    def released(*handle: int) -> None:
        release(*handle)
        known.discard(handle[2])

    def given(*handle: int) -> None:
        give(*handle)
        known.add(handle[2])

    monkeypatch.setattr(vllm, "python_unmap_and_release", released)
    monkeypatch.setattr(vllm, "python_create_and_map", given)
    return known


def test_memory_sleeps_by_tag_and_wakes_with_its_contents(allocator: CuMemAllocator, mapped: set[int]) -> None:
    plain, weights, cache = make(allocator, None, 1), make(allocator, "weights", 2), make(allocator, "kv_cache", 3)
    assert [allocator.pointer_to_data[at].tag for at in (plain, weights, cache)] == ["default", "weights", "kv_cache"]
    assert allocator.get_current_usage() == 3 * SIZE
    mapped |= {plain, weights, cache}
    allocator.sleep(("weights",))
    assert mapped == set()
    allocator.wake_up(["weights"])
    assert [allocator.pointer_to_data[at].is_asleep for at in (plain, weights, cache)] == [False, False, True]
    assert contents(weights) == b"\2" * SIZE
    allocator.wake_up()
    assert mapped == {plain, weights, cache}
    allocator.discard("kv_cache")
    assert mapped == {plain, weights}
    allocator.wake_up()
    allocator.sleep()
    allocator.wake_up()
    assert contents(weights) != b"\2" * SIZE, "only the default tag was kept"


def test_the_tag_belongs_to_the_context(allocator: CuMemAllocator) -> None:
    def tag() -> str:
        return allocator.pointer_to_data[my_malloc(SIZE)].tag

    with allocator.use_memory_pool("weights"):
        assert contextvars.Context().run(tag) == "default"
        with allocator.use_memory_pool():
            assert tag() == "default"
        assert tag() == allocator.current_tag == "weights"
    allocator.current_tag = "mine"
    assert tag() == "mine"
    allocator.current_tag = "default"


@pytest.mark.parametrize("failure", [RuntimeError("no pinned memory"), Interrupt()])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_sleep_that_fails_leaves_all_awake(
    allocator: CuMemAllocator, mapped: set[int], monkeypatch: pytest.MonkeyPatch, at: int, failure: BaseException
) -> None:
    addresses = [make(allocator, tag, value) for value, tag in enumerate(("a", "b", "c"), 1)]
    release, calls = vllm.python_unmap_and_release, 0

    def fail(*handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise failure
        release(*handle)

    mapped.update(addresses)
    with monkeypatch.context() as patch, pytest.raises(type(failure)):
        patch.setattr(vllm, "python_unmap_and_release", fail)
        allocator.sleep(("a", "b", "c"))
    assert mapped == set(addresses)
    for value, address in enumerate(addresses, 1):
        data = allocator.pointer_to_data[address]
        assert not data.is_asleep
        assert data.cpu_backup_tensor is None
        assert contents(address) == bytes([value]) * SIZE
    # Also where a backup fails, when nothing was released.
    with monkeypatch.context() as patch, pytest.raises(type(failure)):
        patch.setattr(_contents, "save", raising(failure))
        allocator.sleep(("a", "b", "c"))
    assert mapped == set(addresses)
    assert [contents(address)[0] for address in addresses] == [1, 2, 3]
    allocator.sleep(("a", "b", "c"))
    allocator.wake_up()
    assert [contents(address)[0] for address in addresses] == [1, 2, 3]


def test_a_sleep_that_fails_restores_each_segment_that_can_be_mapped(
    allocator: CuMemAllocator, mapped: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third cannot be released, and then the first or the second cannot be mapped; the second's contents are not kept."""
    kept, lost, last = addresses = [make(allocator, tag, value) for value, tag in enumerate(("kept", "lost", "lost"), 1)]
    release, give = vllm.python_unmap_and_release, vllm.python_create_and_map

    def fail_release(*handle: int) -> None:
        if handle[2] == last:
            raise RuntimeError("the device fails")
        release(*handle)

    for refused in (lost, kept):
        mapped.update(addresses)

        def fail_map(*handle: int, refused: int = refused) -> None:
            if handle[2] == refused:
                raise vrampool.OutOfMemoryError("the memory went elsewhere")
            give(*handle)

        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="the device fails"):
            patch.setattr(vllm, "python_unmap_and_release", fail_release)
            patch.setattr(vllm, "python_create_and_map", fail_map)
            allocator.sleep("kept")
        assert mapped == {*addresses} - {refused}
        assert [data.handle[2] for data in allocator.pointer_to_data.values() if data.is_asleep] == [refused]
        assert refused == kept or contents(kept) == b"\1" * SIZE
        assert contents(last) == b"\3" * SIZE
        allocator.wake_up()
        assert contents(kept) == b"\1" * SIZE


def test_segments_are_looked_through_while_one_is_freed(
    allocator: CuMemAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may do so while the callback waits for Python's lock."""
    remove = allocator._segments.remove

    def removed(address: int) -> vllm.Handle:
        assert allocator.get_current_usage() == SIZE
        with monkeypatch.context() as patch:
            patch.setattr(_contents, "is_asleep", lambda number: None)
            assert allocator.get_current_usage() == 0
        return remove(address)

    monkeypatch.setattr(allocator._segments, "remove", removed)
    vllm.forget_callbacks()
    allocator._segments.claim()
    my_free(make(allocator, "mine", 1))
    assert allocator.pointer_to_data == {}


def test_a_wake_that_fails_leaves_all_asleep(
    allocator: CuMemAllocator, mapped: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [make(allocator, tag, value) for value, tag in enumerate(("a", "b"), 1)]
    mapped.update(addresses)
    allocator.sleep(("a", "b"))
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="the copy failed"):
        patch.setattr(_contents, "restore", raising(RuntimeError("the copy failed")))
        allocator.wake_up()
    assert mapped == set()
    give = vllm.python_create_and_map

    def fail(*handle: int) -> None:
        if mapped:
            raise vrampool.OutOfMemoryError("the memory went elsewhere")
        give(*handle)

    with monkeypatch.context() as patch, pytest.raises(vrampool.OutOfMemoryError):
        patch.setattr(vllm, "python_create_and_map", fail)
        allocator.wake_up()
    assert mapped == set()
    assert all(data.is_asleep for data in allocator.pointer_to_data.values())
    allocator.wake_up()
    assert [contents(address)[0] for address in addresses] == [1, 2]


def test_below_vrampool_itself_it_is_refused(allocator: CuMemAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrampool.torch._install._installed", object())
    with pytest.raises(vrampool.BusyError, match=r"vrampool\.torch\.tag"):
        CuMemAllocator()


def test_a_tag_is_a_whole_word(allocator: CuMemAllocator) -> None:
    """In one text a part of a word is no tag."""
    weights, part = make(allocator, "weights", 1), make(allocator, "eight", 2)
    allocator.sleep(("weights", "eight"))
    allocator.wake_up("weights")
    assert [allocator.pointer_to_data[at].is_asleep for at in (weights, part)] == [False, False], "`eight` is internal"
    cache = make(allocator, "kv_cache", 3)
    allocator.sleep(("weights", "eight", "kv_cache"))
    allocator.wake_up("weights")
    assert [allocator.pointer_to_data[at].is_asleep for at in (weights, cache)] == [False, True]
    with pytest.raises(vrampool.InvalidArgumentError, match="weights_and_kv_cache"):
        allocator.wake_up("weights_and_kv_cache")
    assert allocator.pointer_to_data[cache].is_asleep


def test_a_tag_that_does_not_exist_is_an_error(allocator: CuMemAllocator) -> None:
    """Such a tag would be discarded, or stay asleep, in silence."""
    address = make(allocator, "mine", 1)
    for call in (allocator.sleep, allocator.discard, allocator.wake_up):
        for tags in ("wieghts", ("mine", "wieghts")):
            with pytest.raises(vrampool.InvalidArgumentError, match="'wieghts'.*cudagraph, default, kv_cache, mine, runtime, weights, workspace"):
                call(tags)
    for wrong in (3, [3], b"mine"):
        with pytest.raises(vrampool.ArgumentTypeError):
            allocator.discard(wrong)  # type: ignore[arg-type]
    assert not allocator.pointer_to_data[address].is_asleep
    assert contents(address) == b"\1" * SIZE
    my_free(address)
    allocator.discard("mine")
    allocator.wake_up(["weights"])


def test_a_wake_tolerates_segments_that_are_freed_meanwhile(
    allocator: CuMemAllocator, mapped: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread frees one just before it would be mapped, and one just before it would be filled."""
    first, second, third = (make(allocator, "a", value) for value in (1, 2, 3))
    allocator.sleep("a")
    give, before = vllm.python_create_and_map, iter([first])

    def freed(*handle: int) -> None:
        for address in before:
            my_free(address)
        give(*handle)

    with monkeypatch.context() as patch:
        patch.setattr(vllm, "python_create_and_map", freed)
        allocator.wake_up()
    assert mapped == {second, third}
    assert [contents(address)[0] for address in (second, third)] == [2, 3]
    assert allocator.get_current_usage() == 2 * SIZE
    # One that is freed once it is mapped has nothing to be filled.
    allocator.sleep("a")

    def freed_when_mapped(*handle: int) -> None:
        give(*handle)
        if handle[2] == second:
            my_free(second)

    with monkeypatch.context() as patch:
        patch.setattr(vllm, "python_create_and_map", freed_when_mapped)
        allocator.wake_up()
    assert contents(third)[0] == 3
    # And a failure is no less one.
    allocator.sleep("a")
    with monkeypatch.context() as patch, pytest.raises(vrampool.InvalidPointerError):
        patch.setattr(vllm, "python_create_and_map", lambda *handle: give(handle[0], handle[1], handle[2] + 1, handle[3]))
        allocator.wake_up()
    assert allocator.pointer_to_data[third].is_asleep
    allocator.wake_up()
    assert contents(third)[0] == 3


def test_a_sleep_is_refused_during_a_capture(allocator: CuMemAllocator) -> None:
    """A wait for the device would invalidate it."""
    address = make(allocator, "mine", 1)
    torch = sys.modules["torch"]
    assert isinstance(torch, Torch)
    torch.log.clear()
    torch.is_captured = True
    for call in (allocator.sleep, allocator.discard):
        with pytest.raises(vrampool.CaptureError, match="after the capture"):
            call("mine")
    assert torch.log == []
    assert contents(address) == b"\1" * SIZE
    torch.is_captured = False
    allocator.sleep("mine")
    allocator.wake_up()


def test_another_policy_for_what_sleeps_is_a_warning(allocator: CuMemAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """The contents of what sleeps are kept, or discarded: a later call for the other does nothing."""
    address = make(allocator, "weights", 1)
    for first, second, text in (
        (allocator.sleep, allocator.discard, "on the host"),
        (allocator.discard, allocator.sleep, "discarded"),
    ):
        first("weights")
        caplog.clear()
        first("weights")
        assert caplog.messages == []
        second("weights")
        assert len(caplog.messages) == 1
        assert "`weights`" in caplog.messages[0]
        assert text in caplog.messages[0]
        allocator.wake_up()
    ctypes.memset(address, 1, SIZE)


def test_progress_that_raises_is_logged_and_changes_nothing(allocator: CuMemAllocator, caplog: pytest.LogCaptureFixture) -> None:
    address = make(allocator, "weights", 1)
    allocator.sleep("weights", progress=raising(RuntimeError("no terminal")))
    assert "a progress callback failed" in caplog.text
    allocator.wake_up(progress=raising(RuntimeError("no terminal")))
    assert contents(address) == b"\1" * SIZE


def test_a_progress_callback_that_sleeps_or_wakes_is_busy(allocator: CuMemAllocator) -> None:
    address = make(allocator, "weights", 1)
    refused: list[str] = []
    calls: list[Callable[[], object]] = [
        lambda: allocator.sleep("weights"),
        lambda: allocator.discard("weights"),
        allocator.wake_up,
    ]

    def again(*_: int) -> None:
        for call in calls:
            with pytest.raises(vrampool.BusyError, match="callback"):
                call()
            refused.append("once")

    allocator.sleep("weights", progress=again)
    assert len(refused) == 3
    allocator.wake_up(progress=again)
    assert len(refused) == 6
    assert contents(address) == b"\1" * SIZE


def test_segments_keep_to_a_limit(
    fresh: Callable[..., None], allocator: CuMemAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asleep they are not charged, and a wake beyond the limit leaves all asleep."""
    limit = 3 * SIZE
    # The allocator's own configuration has no limit.
    LIBRARY.call("torch_shutdown")
    monkeypatch.setattr(_install, "_configured", None)
    fresh(limit=limit)
    addresses = [make(allocator, "weights", value) for value in (1, 2, 3)]
    with pytest.raises(vrampool.OutOfMemoryError, match=f"exceed the limit on segments.*{limit} are mapped"):
        make(allocator, "weights", 4)
    assert allocator.get_current_usage() == 3 * SIZE
    allocator.sleep("weights")
    other = make(allocator, "kv_cache", 5)
    with pytest.raises(vrampool.OutOfMemoryError, match="limit on segments"):
        allocator.wake_up()
    assert all(allocator.pointer_to_data[address].is_asleep for address in addresses)
    my_free(other)
    allocator.wake_up()
    assert [contents(address)[0] for address in addresses] == [1, 2, 3]


def test_segments_are_served_as_metrics_by_tag(allocator: CuMemAllocator) -> None:
    weights, cache = make(allocator, "weights", 1), make(allocator, "kv_cache", 2)
    address = vrampool.start_metrics("127.0.0.1:0")
    try:

        def figures() -> dict[str, dict[str, float]]:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            found: dict[str, dict[str, float]] = {}
            for line in lines:
                if match := re.match(r'vrampool_segments_(\w+)_bytes\{.*tag="(\w+)".*\} ([\d.]+)', line):
                    found.setdefault(match[2], {})[match[1]] = float(match[3])
            return found

        assert figures()["weights"] == {"mapped": SIZE, "asleep": 0, "backup": 0}
        allocator.sleep("weights")
        assert figures()["weights"] == {"mapped": 0, "asleep": SIZE, "backup": SIZE}
        assert figures()["kv_cache"] == {"mapped": 0, "asleep": SIZE, "backup": 0}
        allocator.wake_up()
        my_free(weights)
        my_free(cache)
        assert figures()["weights"] == {"mapped": 0, "asleep": 0, "backup": 0}
    finally:
        vrampool.stop_metrics()
