"""Pairs of `torch.empty` and its end at several sizes, PyTorch's allocator against others, in turns.

With `written`, so many KiB are written before each of the two calls, as a program's own work does, and each call is timed by itself.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from typing import Any

from harness import TITLES, comparison, pin, pytorch, save, serve, table, workers

SIZES = (512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)

#: `one`: a tensor that ends before the next begins; `ring`: so many are live, and the oldest ends first.
RING = 64


def pairs(torch: Any, size: int, count: int, ring: int) -> float:
    """Nanoseconds a pair."""
    device = torch.device("cuda", 0)
    # Bound here: what is timed is one call, in a loop that does nothing else.
    empty, dtype = torch.empty, torch.uint8
    live = [empty(size, dtype=dtype, device=device) for _ in range(max(ring, 1))]
    begin = time.perf_counter_ns()
    if ring:
        for number in range(count):
            live[number % ring] = None
            live[number % ring] = empty(size, dtype=dtype, device=device)
    else:
        live.clear()
        for _ in range(count):
            empty(size, dtype=dtype, device=device)
    return (time.perf_counter_ns() - begin) / count


def cold_pairs(torch: Any, size: int, count: int, kib: int) -> float:
    """Nanoseconds of a pair whose calls find little of their data and code in the processor's nearest caches: the medians' sum."""
    device = torch.device("cuda", 0)
    empty, dtype, clock, memset = torch.empty, torch.uint8, time.perf_counter_ns, ctypes.memset
    junk = ctypes.create_string_buffer(kib << 10)
    allocations, frees = [], []
    for number in range(count):
        memset(junk, number & 1, kib << 10)
        # The first call brings the clock's own lines.
        clock()
        begin = clock()
        live = empty(size, dtype=dtype, device=device)
        allocations.append(clock() - begin)
        memset(junk, number & 1, kib << 10)
        clock()
        begin = clock()
        del live
        frees.append(clock() - begin)
    return statistics.median(allocations) + statistics.median(frees)


def build(torch: Any) -> Any:
    """What a worker does in its turn."""
    pin()

    def turn(ask: dict[str, Any]) -> dict[str, Any]:
        began = time.process_time_ns()
        if ask["written"]:
            return {"ns": cold_pairs(torch, ask["size"], ask["count"] // 100, ask["written"])}
        wall = pairs(torch, ask["size"], ask["count"], ask["ring"])
        return {"ns": wall, "processor_ns": (time.process_time_ns() - began) / ask["count"]}

    return turn


def compare(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each case and allocator; the first one is what the others are compared with."""
    count = 20_000 if given.quick else 100_000
    cases = [(size, ring, 0) for size in given.sizes for ring in given.rings]
    cases += [(size, 0, kib) for kib in given.written for size in given.sizes]
    rows = []
    with workers("empty_pairs.py", given.allocators, given.quick, sys.stderr) as made:
        for size, ring, kib in cases:
            ask = {"size": size, "count": count, "ring": ring if size < 64 << 20 else ring // 8, "written": kib}
            for worker in made:
                worker.ask({**ask, "count": 2_000})
            said: dict[str, list[dict[str, float]]] = {allocator: [] for allocator in given.allocators}
            for turn in range(given.steps):
                for worker in made if turn % 2 == 0 else reversed(made):
                    said[worker.allocator].append(worker.ask(ask))
            first = said[given.allocators[0]]
            for allocator, of in said.items():
                row = {"bench": "empty_pairs", "size": size, "live": ask["ring"] or 1, "written_kib": kib, "allocator": allocator}
                row["median_ns"] = statistics.median(one["ns"] for one in of)
                row["least_ns"] = min(one["ns"] for one in of)
                for name in ("ns", "processor_ns"):
                    if name in of[0]:
                        row[name.replace("ns", "ratio")] = statistics.median(a[name] / b[name] for a, b in zip(of, first, strict=True))
                print(json.dumps(row), flush=True)
                rows.append(row)
    return rows


def main() -> int:
    """0 when everything ran."""

    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = comparison(str(__doc__), quick="fewer pairs a turn")
    parser.add_argument("--steps", type=int, default=15, help="turns of each allocator at each size")
    parser.add_argument("--sizes", type=numbers, default=list(SIZES), help="bytes")
    parser.add_argument("--rings", type=numbers, default=[0, RING], help="live tensors, of which the oldest ends first; 0: one that ends first")
    parser.add_argument("--written", type=numbers, default=[512, 4096], help="KiB written before each call")
    given = parser.parse_args()
    if given.serve:
        torch = pytorch(given.allocator)
        torch.use_deterministic_algorithms(False)
        serve(torch, lambda: build(torch))
        return 0
    rows = compare(given)
    print()
    table(
        ("bytes", "live", "KiB written", "allocator", "median ns a pair", "least", "× PyTorch"),
        [
            (
                str(row["size"]),
                str(row["live"]),
                str(row["written_kib"]),
                TITLES[str(row["allocator"])],
                f"{row['median_ns']:.0f}",
                f"{row['least_ns']:.0f}",
                f"{row['ratio']:.3f}",
            )
            for row in rows
        ],
    )
    save(rows, given.out, "empty_pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
