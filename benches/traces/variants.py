#!/usr/bin/env python3
"""Writes six variants of each trace beside this file: benches/traces/variants.py FOLDER

Sizes scaled by 0.8, 0.93, 1.07 or 1.25, each size changed by up to 10 %, or the first seventh left out. A policy that is tight on the four
recordings alone is tuned to them. `cargo vrampool replay FOLDER/*.csv.gz --source virtual` replays them.
"""

from __future__ import annotations

import csv
import gzip
import random
import sys
from pathlib import Path

TRACES = ("resnet50", "gpt2", "serve_mixed", "multistream")
SCALES: dict[str, float | None] = {"s080": 0.8, "s093": 0.93, "s107": 1.07, "s125": 1.25, "jitter": None, "skip": 1.0}
#: The longest trace is cut.
MOST_EVENTS = 60_000


def variant(rows: list[dict[str, str]], scale: float | None) -> str:
    """The trace with scaled sizes; without a scale, each size is changed by up to 10 %."""
    chance = random.Random(7)
    scales: dict[int, float] = {}
    live: dict[str, int] = {}
    lines = ["op,id,size,stream,t_us"]
    for row in rows:
        if row["op"] == "a":
            size = int(row["size"])
            factor = scales.setdefault(size, chance.uniform(0.9, 1.1)) if scale is None else scale
            live[row["id"]] = int(size * factor)
        elif row["id"] not in live:
            continue
        lines.append(f"{row['op']},{row['id']},{live[row['id']]},{row['stream']},{row['t_us']}")
    return "\n".join(lines) + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in TRACES:
        with gzip.open(Path(__file__).parent / f"{name}.csv.gz", "rt") as file:
            rows = [row for row in csv.DictReader(file) if row["t_us"]][:MOST_EVENTS]
        for of, scale in SCALES.items():
            used = rows[len(rows) // 7 :] if of == "skip" else rows
            with gzip.open(folder / f"{name}_{of}.csv.gz", "wt") as file:
                file.write(variant(used, scale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
