"""Pairs of `torch.empty` and its end at several sizes, PyTorch's allocator against others, in turns."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from harness import ALLOCATORS, TITLES, pin, pytorch, serve, table, workers

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


def build(torch: Any) -> Any:
    """What a worker does in its turn."""
    pin()

    def turn(ask: dict[str, Any]) -> dict[str, Any]:
        return {"ns": pairs(torch, ask["size"], ask["count"], ask["ring"])}

    return turn


def main() -> int:
    """0 when everything ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allocators", type=lambda text: text.split(","), default=["native", "expandable", "vrampool"])
    parser.add_argument("--allocator", choices=ALLOCATORS, default="vrampool", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=15, help="turns of each allocator at each size")
    parser.add_argument("--quick", action="store_true", help="fewer pairs a turn")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a folder for the rows")
    given = parser.parse_args()
    if given.serve:
        torch = pytorch(given.allocator)
        torch.use_deterministic_algorithms(False)
        serve(torch, given.allocator, lambda: build(torch))
        return 0
    count = 20_000 if given.quick else 100_000
    rows = []
    with workers("empty_pairs.py", given.allocators, given.quick, sys.stderr) as made:
        for size in SIZES:
            for ring in (0, RING):
                ask = {"size": size, "count": count, "ring": ring if size < 64 << 20 else ring // 8}
                for worker in made:
                    worker.ask({**ask, "count": 2_000})
                said: dict[str, list[float]] = {allocator: [] for allocator in given.allocators}
                for turn in range(given.steps):
                    for worker in made if turn % 2 == 0 else reversed(made):
                        said[worker.allocator].append(worker.ask(ask)["ns"])
                first = statistics.median(said[given.allocators[0]])
                for allocator, of in said.items():
                    median = statistics.median(of)
                    row = {
                        "bench": "empty_pairs",
                        "size": size,
                        "live": ask["ring"] or 1,
                        "allocator": allocator,
                        "median_ns": median,
                        "least_ns": min(of),
                        "ratio": median / first,
                    }
                    print(json.dumps(row), flush=True)
                    rows.append(row)
    print()
    table(
        ("bytes", "live", "allocator", "median ns a pair", "least", "× PyTorch"),
        [
            (
                str(row["size"]),
                str(row["live"]),
                TITLES[str(row["allocator"])],
                f"{row['median_ns']:.0f}",
                f"{row['least_ns']:.0f}",
                f"{row['ratio']:.3f}",
            )
            for row in rows
        ],
    )
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "empty_pairs.json").write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
