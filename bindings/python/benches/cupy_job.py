"""A matrix job through CuPy over vrampool: the same result as with CuPy's own pool, in turns, and the memory of each."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import vrampool.cupy


def job(cupy: Any, size: int, seed: int) -> Any:
    """Products, sums and sorts of matrices, some of them on a second stream."""
    rng = cupy.random.RandomState(seed)
    one, other = rng.rand(size, size), rng.rand(size, size)
    product = one @ other
    with cupy.cuda.Stream(non_blocking=True) as side:
        aside = cupy.sort(cupy.arange(size * size, dtype=cupy.float64)[::-1])
    side.synchronize()
    for _ in range(4):
        product = (product @ one) / cupy.linalg.norm(product) + other.T
    return float(product.sum() + aside[: size // 2].sum())


def main() -> int:
    """0 when results are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="smaller matrices")
    given = parser.parse_args()
    import cupy

    size = 1024 if given.quick else 4096
    own = cupy.get_default_memory_pool()
    times: dict[str, list[float]] = {"cupy": [], "vrampool": []}
    results: dict[str, set[float]] = {"cupy": set(), "vrampool": set()}
    ours = vrampool.cupy.CuPyAllocator()
    for step in range(given.steps + 2):
        for name, malloc in (("cupy", own.malloc), ("vrampool", ours.malloc)):
            with cupy.cuda.using_allocator(malloc):
                cupy.cuda.Device().synchronize()
                begin = time.perf_counter()
                results[name].add(job(cupy, size, 5))
                cupy.cuda.Device().synchronize()
                if step >= 2:
                    times[name].append(time.perf_counter() - begin)
    stats = ours.pool().stats()
    result = {
        "bench": "cupy_job",
        "same": results["cupy"] == results["vrampool"] and len(results["cupy"]) == 1,
        "cupy_ms": statistics.median(times["cupy"]) * 1e3,
        "vrampool_ms": statistics.median(times["vrampool"]) * 1e3,
        "cupy_total": own.total_bytes(),
        "vrampool_reserved_peak": stats.peak_reserved_bytes,
        "hit_rate": stats.hit_rate,
        "bucket_hit_rate": stats.bucket_hit_rate,
        "live_buffers": stats.live_buffers,
    }
    result["ratio"] = result["vrampool_ms"] / result["cupy_ms"]
    result["ok"] = bool(result["same"])
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
