"""The interface of `torch_memory_saver`, over a stub of PyTorch's MemPool, in the order in which SGLang, verl and slime call it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import vrampool
from conftest import MIB, SIZE, contents, run
from fake_mem_pool import Pools
from vrampool import _contents, memory_saver, vllm_extension
from vrampool.memory_saver import TorchMemorySaver


class Tensor:
    """A tensor over an address."""

    dtype, shape = "uint8", (SIZE,)

    def __init__(self, address: int, size: int = SIZE, is_whole: bool = True) -> None:
        self.address, self.nbytes, self.is_whole = address, size, is_whole

    def data_ptr(self) -> int:
        return self.address

    def is_contiguous(self) -> bool:
        return self.is_whole


def make(saver: TorchMemorySaver, pools: Pools, tag: str, value: int, kept: bool = False) -> int:
    with saver.region(tag, enable_cpu_backup=kept):
        address = pools.empty(SIZE)
    ctypes.memset(address, value, SIZE)
    return address


def mapped(saver: TorchMemorySaver) -> set[int]:
    assert saver._saver is not None
    return {address for address, data in saver._saver._segments.by_address.items() if not data.is_asleep}


def test_tags_are_paused_and_resumed_as_sglang_does(saver: TorchMemorySaver, pools: Pools) -> None:
    saver.hook_mode = "preload"
    assert (saver.enabled, saver.hook_mode) == (True, "preload")
    weights, cache = make(saver, pools, "weights", 1, kept=True), make(saver, pools, "kv_cache", 2)
    backup: dict[str, Any] = {"enable_cpu_backup": True, "cpu_backup_backend": "pinned"}
    with saver.cuda_graph("graph", pool=None, stream=None, capture_error_mode="global", tag="cuda_graph", **backup):
        graph = pools.empty(SIZE)
    ctypes.memset(graph, 3, SIZE)
    for _ in range(3):
        for tag in ("kv_cache", "weights", "cuda_graph"):
            saver.pause(tag)
        assert mapped(saver) == set()
        for tag in ("cuda_graph", "weights", "kv_cache"):
            saver.resume(tag)
        assert mapped(saver) == {weights, cache, graph}
        assert (contents(weights), contents(graph)) == (b"\1" * SIZE, b"\3" * SIZE)
    # A program without graphs pauses their tag too.
    saver.pause("nothing")
    saver.resume("nothing")


def test_a_second_pause_or_resume_is_an_error_that_changes_nothing(saver: TorchMemorySaver, pools: Pools) -> None:
    address = make(saver, pools, "weights", 1, kept=True)
    with pytest.raises(vrampool.InvalidArgumentError, match="not paused"):
        saver.resume("weights")
    with pytest.raises(vrampool.InvalidArgumentError, match="no memory is paused"):
        saver.resume()
    for tag in ("weights", None):
        saver.pause(tag)
        for again in ("weights", None):
            with pytest.raises(vrampool.AsleepError):
                saver.pause(again)
        with pytest.raises(vrampool.AsleepError, match="resume it"), saver.region("weights"):
            pass
        with pytest.raises(vrampool.AsleepError), saver.cuda_graph("graph", tag="weights"):
            pass
        saver.resume(tag)
        assert contents(address) == b"\1" * SIZE


def test_a_pause_is_refused_during_a_capture(saver: TorchMemorySaver, pools: Pools) -> None:
    address = make(saver, pools, "weights", 1, kept=True)
    pools.torch.is_captured = True
    with pytest.raises(vrampool.CaptureError):
        saver.pause()
    pools.torch.is_captured = False
    assert mapped(saver) == {address}


def test_a_backup_is_read_while_memory_is_paused_as_slime_does(saver: TorchMemorySaver, pools: Pools) -> None:
    kept, lost = make(saver, pools, "default", 7, kept=True), make(saver, pools, "default", 8)
    assert saver.get_cpu_backup(Tensor(kept)) is None
    with pytest.raises(vrampool.InvalidArgumentError, match="no backup"):
        saver.get_cpu_backup(Tensor(kept + (1 << 40)))
    saver.pause()
    backup = saver.get_cpu_backup(Tensor(kept + MIB, MIB))
    assert ctypes.string_at(backup.address, backup.size) == b"\7" * MIB
    same = saver.get_cpu_backup(Tensor(kept), zero_copy=True)
    assert same.address == saver.get_cpu_backup(Tensor(kept), zero_copy=True).address != backup.address
    for wrong in (Tensor(lost), Tensor(kept + MIB), Tensor(kept, SIZE, is_whole=False)):
        with pytest.raises(vrampool.InvalidArgumentError, match="no backup"):
            saver.get_cpu_backup(wrong)
    saver.resume()
    assert saver.get_cpu_backup(Tensor(kept)) is None


def test_memory_of_a_disabled_scope_is_not_paused(saver: TorchMemorySaver, pools: Pools) -> None:
    with pytest.raises(vrampool.InvalidArgumentError, match="within a region"), saver.disable():
        pass
    with saver.region("weights"):
        ours = pools.empty(SIZE)
        with saver.disable():
            own = pools.empty(SIZE)
        again = pools.empty(SIZE)
    saver.pause()
    assert mapped(saver) == set()
    ctypes.memset(own, 1, SIZE)
    saver.resume()
    assert mapped(saver) == {ours, again}
    pools.free(own)
    with pytest.raises(vrampool.UnsupportedError), saver.region("weights"), saver.disable(dispose_mem_pool_after_use=False):
        pass


def test_regions_nest_and_reuse_memory(saver: TorchMemorySaver, pools: Pools) -> None:
    with saver.region("outer"):
        with saver.region("inner"):
            inner = pools.empty(SIZE)
        outer = pools.empty(SIZE)
    pools.free(outer)
    with saver.region("outer"):
        assert pools.empty(SIZE) == outer
    saver.pause("inner")
    assert mapped(saver) == {outer}
    # A tensor may end meanwhile.
    pools.free(inner)
    saver.resume("inner")


def test_captures_share_memory_if_they_name_one_pool(saver: TorchMemorySaver, pools: Pools) -> None:
    def capture(pool: object) -> int:
        with saver.cuda_graph("graph", pool=pool):
            address = pools.empty(SIZE)
        pools.free(address)
        return address

    assert capture(None) != capture(None)
    assert capture((7, 0)) == capture((7, 0))


def test_a_margin_is_left_free(saver: TorchMemorySaver, pools: Pools) -> None:
    pools.torch.cuda.mem_get_info = lambda device: (10 * MIB, 64 * MIB)
    saver.memory_margin_bytes = 9 * MIB
    with saver.region(), pytest.raises(MemoryError):
        pools.empty(SIZE)
    saver.memory_margin_bytes = 8 * MIB
    with saver.region():
        pools.free(pools.empty(SIZE))
    assert saver.memory_margin_bytes == 8 * MIB


def test_settings_that_cannot_be_are_refused(saver: TorchMemorySaver, pools: Pools) -> None:
    with pytest.raises(vrampool.ConfigurationError, match="torch, preload"):
        saver.hook_mode = "nothing"
    with pytest.raises(vrampool.UnsupportedError), saver.region("weights", enable_disk_backup=True):
        pass
    for wrong in (3, None):
        with pytest.raises(vrampool.ArgumentTypeError), saver.region(wrong):  # type: ignore[arg-type]
            pass
    with saver.region():
        pass
    with pytest.raises(vrampool.BusyError):
        saver.hook_mode = "preload"
    with memory_saver.configure_subprocess():
        pass


def test_a_default_region_is_refused(saver: TorchMemorySaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that counts on it would run out of memory."""
    for value in ("1", "true"):
        monkeypatch.setenv("TMS_INIT_ENABLE", value)
        with pytest.raises(vrampool.UnsupportedError, match=r"TMS_INIT_ENABLE.*region.*vrampool\.torch\.sleep"):
            saver.pause()
    monkeypatch.setenv("TMS_INIT_ENABLE", "0")
    with saver.region():
        pass
    with pytest.raises(vrampool.UnsupportedError, match="host memory"):
        saver.set_disk_backup_dir("/tmp")


def test_each_device_has_a_pool(saver: TorchMemorySaver, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of PyTorch's serves the device that was current when it was made."""
    with saver.region("weights"):
        pass
    monkeypatch.setattr(pools.torch.cuda, "current_device", lambda: 1)
    with saver.region("weights"):
        pass
    assert saver._saver is not None
    assert {device for _, _, device in saver._saver._pools} == {0, 1}


def test_a_pause_reports_what_it_did_and_may_keep_its_host_memory(saver: TorchMemorySaver, pools: Pools) -> None:
    address, _ = make(saver, pools, "weights", 5, kept=True), make(saver, pools, "kv_cache", 6)
    assert saver.retain_cpu_backup
    places = []
    for retains in (True, True, False, True):
        saver.retain_cpu_backup = retains
        reported: list[tuple[int, int]] = []
        slept = saver.pause(progress=lambda *now: reported.append(now))
        assert (slept.physical_bytes, slept.copied_bytes, slept.discarded_bytes, slept.no_op) == (2 * SIZE, SIZE, SIZE, False)
        assert reported[-1] == (SIZE, SIZE)
        assert slept.seconds > 0
        assert slept.copied_bytes_per_second == slept.copied_bytes / slept.seconds
        places.append(saver.get_cpu_backup(Tensor(address), zero_copy=True).address)
        reported.clear()
        woken = saver.resume(progress=lambda *now: reported.append(now))
        assert (woken.physical_bytes, woken.copied_bytes) == (2 * SIZE, SIZE)
        assert reported[-1] == (SIZE, SIZE)
        assert contents(address) == b"\5" * SIZE
    assert places[0] == places[1] == places[2]


def test_the_package_of_the_name_is_this_module() -> None:
    run(
        """
        import subprocess, sys
        folder = subprocess.run([sys.executable, "-m", "vrampool.memory_saver"], capture_output=True, text=True, check=True).stdout.strip()
        sys.path.insert(0, folder)
        import torch_memory_saver
        from vrampool import memory_saver
        assert torch_memory_saver.torch_memory_saver is memory_saver.torch_memory_saver
        assert torch_memory_saver.__file__.startswith(folder)
        """
    )
    run(
        """
        from vrampool import BusyError, memory_saver
        for _ in range(2):
            memory_saver.install()
        import sys, torch_memory_saver
        assert torch_memory_saver is memory_saver
        sys.modules["torch_memory_saver"] = sys
        try:
            memory_saver.install()
            raise AssertionError
        except BusyError:
            pass
        """
    )


def test_before_any_region_nothing_is_paused(saver: TorchMemorySaver, pools: Pools) -> None:
    """As in their package."""
    assert saver.pause().no_op
    assert saver.resume().no_op
    for call in (saver.pause, saver.resume):
        with pytest.raises(vrampool.ArgumentTypeError):
            call(5)  # type: ignore[arg-type]


def test_a_tag_that_is_paused_in_part_is_paused_and_resumed(saver: TorchMemorySaver, pools: Pools) -> None:
    """An interrupted pause may leave it so."""
    first, second = (make(saver, pools, "weights", value, kept=True) for value in (1, 2))
    assert saver._saver is not None
    for call in (saver.pause, saver.resume):
        data = saver._saver._segments.by_address[first]
        _contents.save([data.handle[3]], None)
        vllm_extension.python_unmap_and_release(*data.handle)
        call("weights")
        if call == saver.pause:
            assert mapped(saver) == set()
            saver.resume("weights")
        assert [contents(address)[0] for address in (first, second)] == [1, 2]
