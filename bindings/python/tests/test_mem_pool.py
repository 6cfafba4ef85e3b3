"""`vrampool.torch.mem_pool`: PyTorch's pools over segments of vrampool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vrampool
import vrampool.torch as vt
from conftest import MIB, torch_alloc, torch_free
from fake_torch import SETTERS, Torch

Configure = Callable[..., None]


def test_a_mem_pool_of_an_older_pytorch_takes_what_that_has(
    fresh: Configure, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older:
        def __init__(self, allocator: object, use_on_oom: bool = False) -> None:
            self.allocator, self.use_on_oom, self.id = allocator, use_on_oom, (0, 7)

    monkeypatch.setattr(torch.cuda, "MemPool", Older)
    fresh()
    with vt.mem_pool("weights", use_on_oom=True) as pool:
        assert pool.use_on_oom
    with pytest.raises(vrampool.UnsupportedError, match=r"2\.11\.0 has no no_split"), vt.mem_pool("others", no_split=True):
        pass


def test_a_mem_pool_is_pytorchs_over_our_segments_with_a_tag(fresh: Configure, torch: Torch) -> None:
    fresh(size_classes="exact:2MiB", max_cached_bytes=0)
    with vt.mem_pool("weights") as first:
        assert set(first.allocator.hooks) == set(SETTERS)
        address = torch_alloc(2 * MIB)
    with vt.mem_pool("weights") as again, vt.mem_pool("kv_cache") as other:
        assert again is first
        assert other is not first
    assert torch.log == [("begin", 0, (0, 7)), ("end", 0, (0, 7))] + [("begin", 0, (0, 7))] * 2 + [("end", 0, (0, 7))] * 2
    assert vt.snapshot()["segments"][0]["vrampool_tag"] == "weights"
    torch_free(address, 2 * MIB)
    assert vt.pool().stats().live_bytes == 0
    vt.empty_cache()
    assert vt.pool().stats().reserved_bytes == 0
    vt.release_mem_pools()


def test_a_mem_pool_of_all_threads(fresh: Configure, torch: Torch) -> None:
    fresh()
    with pytest.raises(KeyError), vt.mem_pool("weights", all_threads=True):
        raise KeyError
    names = [name for name, _, _ in torch.log]
    assert names == ["_cuda_beginAllocateToPool", "_cuda_endAllocateToPool", "_cuda_releasePool"]


def test_a_mem_pool_configures_pools_for_segments(fresh: Configure, torch: Torch) -> None:
    configured: list[dict[str, Any]] = []

    def configure(**options: Any) -> None:
        configured.append(options)
        fresh()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vrampool.torch._install.configure", configure)
        with vt.mem_pool():
            pass
    assert configured == [{"size_classes": "exact:2MiB", "max_cached_bytes": 0}]


def test_a_mem_pool_below_vrampool_itself_is_refused(place: dict[str, Any], fresh: Configure, torch: Torch) -> None:
    vt.install(**place)
    with pytest.raises(vrampool.BusyError, match=r"vrampool.torch.tag\(\)"), vt.mem_pool("weights"):
        pass
