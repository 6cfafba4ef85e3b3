#!/usr/bin/env python3
"""Time of programs and of a `torch.empty` with its end, with vrampool beside PyTorch's own allocator: pairs of processes on the same core,
in turns.

    speed.py RESULTS [SECONDS]

Writes RESULTS/speed.json and prints a table of ratios, medians of pairs. Programs for which less than a minute is left of SECONDS (240) do
not begin. Nothing else should use the GPU or the processors meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bindings/python/benches"))

import compare
import empty_pairs

#: Each with its steps.
PROGRAMS = {"generate": 9, "beams": 9, "rollout": 9, "serve_decode": 17, "moe": 25, "train_gpt2": 25}
ALLOCATORS = ["native", "vrampool"]
#: Steps before those that are timed.
WARMUP = 3
SIZES = [512, 1 << 20, 8 << 20]


def main() -> int:
    results = Path(sys.argv[1]).resolve()
    results.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 240)
    rows: list[dict[str, Any]] = []
    lines: list[str] = []

    def add(name: str, row: dict[str, Any]) -> None:
        rows.append({"name": name, **{key: value for key, value in row.items() if key != "pool"}})
        if row["allocator"] == "vrampool":
            processor = row.get("processor_ratio")
            pool = row.get("pool")
            requests = pool and sum(pool[f"served_by_{by}"] for by in ("bucket", "arena", "driver")) / (WARMUP + row["steps"])
            lines.append(
                f"{name:32} wall {row['ratio']:6.3f}   processor {'     -' if processor is None else f'{processor:6.3f}'}"
                + (f"   {row['median_ms']:8.2f} ms and {requests:6.0f} requests a step" if requests else "")
            )
        (results / "speed.json").write_text(json.dumps(rows, indent=1))

    pairs = argparse.Namespace(allocators=ALLOCATORS, sizes=SIZES, rings=[0], written=[512, 4096], steps=15, quick=True)
    for row in empty_pairs.compare(pairs):
        written = f", {row['written_kib']} KiB written" if row["written_kib"] else ""
        add(f"empty of {row['size']} B{written}", row)
    is_complete = True
    for program, steps in PROGRAMS.items():
        if time.monotonic() > ends - 60:
            lines.append(f"{program:32} not run: no time is left")
            is_complete = False
            continue
        given = argparse.Namespace(allocators=ALLOCATORS, quick=True, warmup=WARMUP, steps=steps, rounds=steps, profiled=0)
        try:
            with (results / f"{program}.err").open("w") as errors:
                for row in compare.compare(program, given, errors):
                    add(program, row)
        except RuntimeError as error:
            lines.append(f"{program:32} failed: {error}")
            is_complete = False
    print("\nvrampool ÷ PyTorch's own allocator\n" + "\n".join(lines))
    (results / "speed.txt").write_text("\n".join(lines) + "\n")
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
