"""Cycles of sleep and wake through one way into vrampool: cycles.py WAY, which is `extension`, `class` or `saver`; or, beside them, `native`:
vLLM's class on its own extension module.

Weights in tensors of several sizes are kept, a cache of half their size is discarded. Prints a line of JSON: rates beside one copy from
pinned memory, the spread of free memory over the cycles, and whether contents and addresses stayed. Exits with 1 if free memory differs by
more than 2 MiB, contents differ, or the median wake reaches less than 0.9 of the pinned rate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

MIB = 1 << 20

#: Of weights, MiB: matrices of a model, its embedding, and what is small.
SIZES = (32, 64, 64, 128, 3, 1, 64, 256, 20, 11)


class Ways:
    """How memory gets a tag, sleeps and wakes."""

    def __init__(self, way: str) -> None:
        self.region: Callable[[str, bool], contextlib.AbstractContextManager[None]]
        if way == "saver":
            from vrampool.memory_saver import torch_memory_saver as saver

            self.region = lambda tag, keeps: saver.region(tag, enable_cpu_backup=keeps)
            self.sleep: Callable[[], Any] = saver.pause
            self.wake: Callable[[], Any] = saver.resume
        else:
            if way != "native":
                from vrampool import vllm_plugin

                vllm_plugin.register()
            from vllm.device_allocator import get_mem_allocator_instance

            allocator = get_mem_allocator_instance()
            self.region = lambda tag, keeps: allocator.use_memory_pool(tag)
            self.sleep = lambda: allocator.sleep(offload_tags=("weights",))
            self.wake = allocator.wake_up


def tensors(total: int, value: int) -> list[Any]:
    """Tensors of different contents, of `total` bytes in all."""
    made: list[Any] = []
    while total > 0:
        size = min(SIZES[len(made) % len(SIZES)] * MIB, total)
        made.append(torch.randint(0, 1 << 30, (size // 4,), dtype=torch.int32, device="cuda").add_(value + len(made)))
        total -= size
    return made


def sums(of: list[Any]) -> list[int]:
    """A number for the contents of each tensor."""
    return [int(tensor.sum(dtype=torch.int64)) for tensor in of]


def pinned_rate(size: int, to_device: bool) -> float:
    """Bytes a second of copies between pinned memory and the device, the median of seven."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    ends = (device, host) if to_device else (host, device)
    rates = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        ends[0].copy_(ends[1], non_blocking=True)
        torch.cuda.synchronize()
        rates.append(size / (time.perf_counter() - begin))
    return statistics.median(rates[1:])


def free() -> int:
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


def timed(act: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(way: str, total: int, cycles: int) -> dict[str, Any]:
    """All cycles."""
    rates = {"pinned_to_device": pinned_rate(256 * MIB, True), "pinned_to_host": pinned_rate(256 * MIB, False)}
    torch.cuda.empty_cache()
    ways = Ways(way)
    with ways.region("weights", True):
        weights = tensors(total, 1)
    with ways.region("kv_cache", False):
        cache = tensors(total // 2, 2)
    kept = sum(tensor.nbytes for tensor in weights)
    before, addresses = sums(weights), [tensor.data_ptr() for tensor in weights + cache]
    originals = [weights[0].cpu(), weights[-1].cpu()]
    times: dict[str, list[float]] = {"sleep": [], "wake": []}
    frees: dict[str, list[int]] = {"asleep": [], "awake": []}
    wrong = 0
    for cycle in range(cycles + 1):
        times["sleep"].append(timed(ways.sleep))
        frees["asleep"].append(free())
        times["wake"].append(timed(ways.wake))
        frees["awake"].append(free())
        if cycle in (0, cycles) or cycle % 10 == 0:
            wrong += sums(weights) != before
    same = all(torch.equal(tensor.cpu(), original) for tensor, original in zip((weights[0], weights[-1]), originals, strict=True))
    for tensor in cache:
        tensor.fill_(1)
    torch.cuda.synchronize()
    # The first cycle allocates what later ones use again.
    first = {f"first_{name}_seconds": of.pop(0) for name, of in times.items()}
    spread = {name: max(of[1:]) - min(of[1:]) for name, of in frees.items()}
    wake = kept / statistics.median(times["wake"])
    result: dict[str, Any] = {
        "bench": "cycles", "way": way, "gpu": torch.cuda.get_device_name(), "pytorch": torch.__version__, "cycles": cycles,
        "kept_bytes": kept, "discarded_bytes": sum(tensor.nbytes for tensor in cache), "tensors": len(weights) + len(cache),
        **{name: round(rate / 1e9, 2) for name, rate in rates.items()},
        "sleep_gb_per_s": round(kept / statistics.median(times["sleep"]) / 1e9, 2),
        "wake_gb_per_s": round(wake / 1e9, 2),
        "wake_of_pinned": round(wake / rates["pinned_to_device"], 3),
        **{name: round(seconds, 4) for name, seconds in first.items()},
        **{f"median_{name}_seconds": round(statistics.median(of), 5) for name, of in times.items()},
        "returned_bytes": frees["asleep"][-1] - frees["awake"][-1],
        "free_spread_asleep_bytes": spread["asleep"], "free_spread_awake_bytes": spread["awake"],
        "contents_same": wrong == 0 and same,
        "addresses_same": addresses == [tensor.data_ptr() for tensor in weights + cache],
    }
    result["ok"] = (
        max(spread.values()) <= 2 * MIB and result["contents_same"] and result["addresses_same"] and result["wake_of_pinned"] >= 0.9
    )
    return result


def main() -> int:
    """0 when all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=("extension", "class", "saver", "native"))
    parser.add_argument("--gib", type=float, default=4.0, help="bytes of weights")
    parser.add_argument("--cycles", type=int, default=100)
    given = parser.parse_args()
    result = measure(given.way, int(given.gib * 1024) * MIB, given.cycles)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
