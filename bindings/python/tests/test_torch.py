"""What is below PyTorch, on host devices: its functions called as PyTorch calls them."""

from __future__ import annotations

import asyncio
import ctypes
import pickle
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vrampool
import vrampool.torch as vt
from conftest import MIB
from conftest import torch_alloc as alloc
from conftest import torch_free as free
from fake_torch import SETTERS, Torch
from vrampool._library import LIBRARY, PATH
from vrampool.torch import _install, _mem_pool

Configure = Callable[..., None]


def test_install_gives_pytorch_the_functions_and_all_hooks(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place, limit="32MiB")
    assert vt.is_installed()
    assert torch.current is not None
    assert torch.current.arguments == (PATH, "vrampool_torch_alloc", "vrampool_torch_free")
    hooks = torch.current.allocator().hooks
    assert set(hooks) == set(SETTERS)
    assert len(set(hooks.values())) == len(SETTERS)
    assert all(hooks.values())
    assert vt.pool().limit == 32 * MIB


def test_hooks_that_pytorch_does_not_have_are_named(
    fresh: Configure, torch: Torch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fake_torch.SETTERS", SETTERS[1:])
    assert "set_reset_fn" in vt.allocator().allocator().hooks
    assert SETTERS[0] in caplog.text
    assert SETTERS[1] not in caplog.text


def test_install_answers_what_pytorch_refuses(place: dict[str, Any], fresh: Configure, torch: Torch, tmp_path: Path) -> None:
    vt.install(**place, limit="16MiB")
    address = alloc(MIB)
    for module in (torch.cuda, torch.cuda.memory):
        assert module.memory_stats()["allocated_bytes.all.current"] == MIB
        assert len(module.memory_snapshot()) == 1
        module.reset_peak_memory_stats()
        assert module.get_per_process_memory_fraction() == 0.25
    torch.cuda.memory._dump_snapshot(str(tmp_path / "dump"))
    assert pickle.loads((tmp_path / "dump").read_bytes()) == torch.cuda.memory._snapshot()
    free(address, MIB)


def test_install_leaves_pytorch_as_it_is_when_asked(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place, patch=False)
    with pytest.raises(RuntimeError, match="does not yet support"):
        torch.cuda.memory_stats()


def test_install_refuses_a_pytorch_that_cannot_receive_an_out_of_memory_error(
    fresh: Configure, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIBRARY.plain, "torch_throws", lambda: 0)
    torch.__version__ = "2.5.1"
    for refused in (vt.install, vt.allocator):
        with pytest.raises(vrampool.UnavailableError, match=r"PyTorch 2\.5\.1 .*2\.7 or later"):
            refused()
    assert torch.current is None
    assert not vt.is_configured()
    # Below PyTorch's own allocator null is what it takes.
    fresh()
    with vt.mem_pool("weights"):
        pass
    assert _mem_pool._provider.arguments == (PATH, "vrampool_torch_alloc_or_null", "vrampool_torch_free")
    assert LIBRARY.plain["torch_alloc_or_null"](1 << 50, 0, None) is None
    assert isinstance(LIBRARY.last_failure(), vrampool.OutOfMemoryError)


def test_what_is_asked_of_the_accelerator_is_vrampools(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place)
    for module in (torch.accelerator, torch.accelerator.memory):
        free(alloc(MIB), MIB)
        assert module.memory_stats(0)["reserved_bytes.all.peak"] >= MIB
        module.empty_cache()
        assert module.memory_stats()["reserved_bytes.all.current"] == 0
        module.reset_peak_memory_stats(0)
    assert torch.log == []


def test_figures_open_no_device(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place, limit="16MiB")
    for device in range(3):
        assert torch.cuda.memory_stats(device)["allocated_bytes.all.current"] == 0
        assert torch.cuda.memory.get_per_process_memory_fraction(device) == 1.0
        assert torch.cuda.memory._snapshot(device)["segments"] == []
        torch.cuda.reset_peak_memory_stats(device)
    assert vt.pools() == {}, "asking made a pool, and opened its device"


def test_installing_twice_is_fine_when_it_is_the_same(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place, limit=MIB)
    first = torch.current
    torch.is_used = True
    vt.install(**place, limit=MIB)
    assert torch.current is first
    with pytest.raises(vrampool.BusyError, match="configured already"):
        vt.install(limit=2 * MIB, device="host")


def test_installing_after_the_first_allocation_is_refused_and_changes_nothing(fresh: Configure, torch: Torch) -> None:
    torch.is_used = True
    with pytest.raises(vrampool.BusyError, match="already"):
        vt.install()
    assert torch.current is None
    assert not vt.is_configured()


def test_installing_with_options_that_cannot_be_changes_nothing(fresh: Configure, torch: Torch) -> None:
    with pytest.raises(vrampool.ConfigurationError, match="moon"):
        vt.install(size_classes="moon")
    assert torch.current is None
    assert not vt.is_configured()


def test_configuring_after_the_first_pool_is_refused(fresh: Configure) -> None:
    LIBRARY.call("torch_configure", b"device=host;host_capacity=1MiB")
    vt.pool(0)
    with pytest.raises(vrampool.BusyError):
        fresh()


def test_statistics_have_pytorchs_names(fresh: Configure) -> None:
    fresh(limit=32 * MIB)
    addresses = [alloc(100_000) for _ in range(3)]
    free(addresses.pop(), 100_000)
    with pytest.raises(vrampool.OutOfMemoryError, match="out of memory"):
        alloc(40 * MIB)
    stats = vt.memory_stats()
    assert stats["requested_bytes.all.current"] == 200_000
    assert stats["requested_bytes.all.peak"] == 300_000
    assert 200_000 <= stats["allocated_bytes.all.current"] <= stats["reserved_bytes.all.current"]
    assert stats["allocated_bytes.all.peak"] <= stats["reserved_bytes.all.peak"] <= 32 * MIB
    assert stats["allocation.all.current"] == 2
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.all.freed"] == 1
    assert stats["num_ooms"] == 1
    assert stats["vrampool.limit_bytes"] == 32 * MIB
    assert stats["active_bytes.all.current"] == stats["allocated_bytes.all.current"]
    # As PyTorch's memory_summary reads them.
    assert stats["segment.small_pool.peak"] == stats["oversize_segments.current"] == 0
    for address in addresses:
        free(address, 100_000)
    vt.reset_peak_memory_stats()
    assert vt.memory_stats()["allocated_bytes.all.peak"] == 0
    vt.empty_cache()
    assert vt.memory_stats()["reserved_bytes.all.current"] == 0


@pytest.mark.usefixtures("two_devices")
def test_each_device_has_a_pool_of_its_own(fresh: Configure) -> None:
    fresh()
    assert vt.snapshot()["segments"] == []
    assert vt.pools() == {}, "no memory was requested"
    first, second = alloc(1000, 0), alloc(2000, 1)
    assert vt.memory_stats(0)["requested_bytes.all.current"] == 1000
    assert vt.memory_stats(1)["requested_bytes.all.current"] == 2000
    assert len(vt.snapshot(1)["device_traces"]) == 2
    assert list(vt.pools()) == [0, 1]
    # Of all devices, in their order, unless one is named.
    for taken, devices in [(vt.snapshot(), [0, 1]), (vt.snapshot(0), [0]), (vt.snapshot(1), [1])]:
        assert [segment["device"] for segment in taken["segments"]] == devices
        assert sum(segment["requested_size"] for segment in taken["segments"]) == sum(1000 * (of + 1) for of in devices)
        assert list(taken["allocator_settings"]["vrampool"]) == devices
        assert len(taken["device_traces"]) == devices[-1] + 1
    free(first, 1000, 0)
    free(second, 2000, 1)
    with pytest.raises(vrampool.InvalidArgumentError):
        vt.pool(1000)


@pytest.mark.parametrize("seed", range(3))
def test_snapshots_are_pytorchs(fresh: Configure, seed: int, tmp_path: Path) -> None:
    fresh()
    rng = random.Random(seed)
    live: dict[int, int] = {}
    for _ in range(200):
        if live and rng.random() < 0.4:
            address = rng.choice(list(live))
            free(address, live.pop(address))
        else:
            size = int(2 ** rng.uniform(3, 20))
            live[alloc(size)] = size
    vt.dump_snapshot(tmp_path / "dump")
    taken = pickle.loads((tmp_path / "dump").read_bytes())
    requested = 0
    for segment in taken["segments"]:
        blocks = segment["blocks"]
        assert sum(block["size"] for block in blocks) == segment["total_size"]
        assert blocks[0]["address"] == segment["address"]
        active = [block for block in blocks if block["state"] == "active_allocated"]
        assert sum(block["size"] for block in active) == segment["active_size"] == segment["allocated_size"]
        assert all(block["requested_size"] <= block["size"] for block in blocks)
        requested += segment["requested_size"]
        assert segment["segment_type"] in ("small", "large")
    assert requested == sum(live.values())
    for address, size in live.items():
        free(address, size)


def test_memory_sleeps_by_tag(fresh: Configure) -> None:
    fresh()
    with vt.tag("weights"):
        weights = alloc(3 * MIB)
    scratch = alloc(MIB)
    ctypes.memset(weights, 9, 3 * MIB)
    report = vt.sleep(offload="weights")
    assert (report.copied_bytes, report.discarded_bytes) == (3 * MIB, MIB)
    assert vt.pool().stats().reserved_bytes == 0
    # PyTorch frees a tensor that sleeps.
    free(scratch, MIB)
    assert vt.wake_up(["weights"]).copied_bytes == 3 * MIB
    assert ctypes.string_at(weights, 3 * MIB) == b"\x09" * (3 * MIB)
    assert vt.sleep(offload=True).copied_bytes == 3 * MIB
    vt.wake_up()
    assert vt.discard("weights").discarded_bytes == 3 * MIB
    vt.wake_up()
    assert vt.sleep(offload=False).discarded_bytes == 3 * MIB
    vt.wake_up()
    with pytest.raises(vrampool.InvalidArgumentError, match="not tags"):
        vt.sleep(offload=3)  # type: ignore[arg-type]
    free(weights, 3 * MIB)


def test_a_sleep_waits_for_pytorch(fresh: Configure, torch: Torch) -> None:
    fresh()
    vt.sleep()
    vt.wake_up()
    assert torch.log == []
    torch.is_used = True
    vt.sleep()
    vt.wake_up()
    vt.discard("default")
    vt.wake_up()
    assert torch.log == [("synchronize", 0)] * 2
    # A wait for the device would invalidate a capture.
    torch.is_captured = True
    for call in (vt.sleep, partial(vt.discard, "default")):
        with pytest.raises(vrampool.CaptureError, match="after the capture"):
            call()
    assert len(torch.log) == 2


def test_limits_are_changed_and_shares_are_checked(fresh: Configure) -> None:
    fresh()
    assert vt.get_per_process_memory_fraction() == 1.0
    vt.set_limit("1MiB")
    assert vt.pool().limit == MIB
    vt.set_per_process_memory_fraction(0.5)
    assert vt.pool().limit == 32 * MIB
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(vrampool.InvalidArgumentError, match="between 0 and 1"):
            vt.set_per_process_memory_fraction(wrong)
        assert LIBRARY.last_failure() is None
    assert vt.pool().limit == 32 * MIB


def test_without_a_gpu_pytorchs_functions_answer_as_pytorchs_own(fresh: Configure, torch: Torch, tmp_path: Path) -> None:
    torch.has_gpu = False
    vt.install(limit="1GiB")
    for device in (None, 0, "cuda", "cuda:1"):
        for module in (torch.cuda, torch.cuda.memory, torch.accelerator, torch.accelerator.memory):
            assert module.memory_stats(device) == {}
            module.reset_peak_memory_stats(device)
        assert torch.cuda.memory._snapshot(device)["segments"] == []
        assert vt.get_per_process_memory_fraction(device) == 1.0
    assert torch.cuda.memory_snapshot() == []
    torch.cuda.memory._dump_snapshot(str(tmp_path / "dump"))
    torch.accelerator.empty_cache()
    vt.empty_cache()
    assert vt.pools() == {}


def test_a_pytorch_without_cuda_is_left_as_it_is(fresh: Configure, torch: Torch) -> None:
    del torch._C._cuda_customAllocator
    torch.__version__, torch.has_gpu = "2.11.0+cpu", False
    before = dict(vars(torch.cuda)), dict(vars(torch.cuda.memory))
    for _ in range(2):
        vt.install(limit="1GiB")
    assert not vt.is_installed()
    assert torch.current is None
    assert (dict(vars(torch.cuda)), dict(vars(torch.cuda.memory))) == before
    for device in (None, 0, "cuda"):
        assert vt.memory_stats(device) == {}
        vt.reset_peak_memory_stats(device)
        assert vt.snapshot(device)["segments"] == []
        assert vt.get_per_process_memory_fraction(device) == 1.0
    vt.empty_cache()
    # What is wrong with a GPU is wrong without one.
    with pytest.raises(vrampool.BusyError):
        vt.install(limit="2GiB")
    with pytest.raises(TypeError, match="limt"):
        vt.install(limt="2GiB")  # type: ignore[call-arg]


def test_a_tag_of_a_thread_is_not_opened_within_another_tasks(fresh: Configure) -> None:
    fresh()

    async def first(opened: asyncio.Event, tried: asyncio.Event) -> None:
        with vt.tag("weights"):
            opened.set()
            await tried.wait()

    async def second(opened: asyncio.Event, tried: asyncio.Event) -> None:
        await opened.wait()
        try:
            with pytest.raises(vrampool.BusyError, match="before `await`"), vt.tag("kv_cache"):
                pass
        finally:
            tried.set()

    async def main() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(first(*events), second(*events))

    asyncio.run(main())
    with vt.tag("weights"), vt.tag("kv_cache"):
        address = alloc(1000)
    assert [segment["vrampool_tag"] for segment in vt.snapshot()["segments"] if segment["active_size"]] == ["kv_cache"]
    with vt.pool().allocate(1000):
        pass
    free(address, 1000)


def test_without_a_gpu_nothing_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that programs run as before."""
    if any(device["backend"] == "cuda" for device in vrampool.devices()["devices"]):
        pytest.skip("there is a GPU")
    monkeypatch.setattr(_install, "_configured", None)
    LIBRARY.call("torch_shutdown")
    assert vt.sleep().no_op
    assert vt.wake_up().no_op
    assert vt.discard("default").no_op
    assert vt.sleep(True).no_op
