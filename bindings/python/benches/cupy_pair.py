"""The cost of CuPy's allocator call by vrampool, beside CuPy's own pool, and beside the objects that CuPy takes for each call.

With a GPU all three are measured. Without one, CuPy's questions for the current device and stream are answered by constants, memory is the
host's, and CuPy's own pool, which asks the driver, is left out: its users measured 750 ns a call (cupy#2672). Figures are the lower decile of
short rounds, in which the measurements take turns, so that other programs matter little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import cupy

import vrampool
import vrampool.cupy


def has_gpu() -> bool:
    return any(device["backend"] == "cuda" for device in vrampool.devices()["devices"])


def without_gpu() -> None:
    """Constants in place of the current device and stream."""
    stream = types.SimpleNamespace(ptr=0, done=True)
    real = cupy.cuda
    names = ("MemoryPointer", "UnownedMemory", "ExternalStream", "memory")
    cuda = types.SimpleNamespace(**{name: getattr(real, name) for name in names})
    cuda.runtime = types.SimpleNamespace(getDevice=lambda: 0)
    cuda.get_current_stream = lambda: stream
    cupy.cuda = cuda


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2000)
    given = parser.parse_args()
    options: dict[str, Any] = {}
    own = None
    if has_gpu():
        own = cupy.cuda.MemoryPool().malloc
    else:
        without_gpu()
        options = {"device": "host", "host_capacity": "1GiB"}
    allocator = vrampool.cupy.CuPyAllocator(**options)
    memory, pointer, keep = cupy.cuda.UnownedMemory, cupy.cuda.MemoryPointer, object()

    def objects(size: int) -> Any:
        return pointer(memory(4096, size, keep, 0), 0)

    acts: dict[str, Callable[[int], Any]] = {"vrampool": allocator.malloc, "objects_of_cupy": objects}
    if own is not None:
        acts["pool_of_cupy"] = own
    costs: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(given.rounds):
        for name, act in acts.items():
            began = time.perf_counter_ns()
            for _ in range(given.calls):
                act(given.bytes)
            costs[name].append((time.perf_counter_ns() - began) / given.calls)
    figures = {f"{name}_ns": round(statistics.quantiles(cost, n=10)[0], 1) for name, cost in costs.items()}
    print(json.dumps({"python": sys.version.split()[0], "cupy": cupy.__version__, **figures}, indent=2))


if __name__ == "__main__":
    main()
