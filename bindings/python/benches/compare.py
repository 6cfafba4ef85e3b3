"""Runs workloads with each allocator, in turns, and says where they differ: results bit for bit, time, memory held."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from harness import ALLOCATORS, TITLES, Worker, mib, table, workers

WORKLOADS = ("train_resnet50", "train_gpt2", "generate", "input_pipeline")


def order(made: list[Worker], turn: int) -> list[Worker]:
    """None comes twice in a row, where the caches are as it left them; of more than two each begins a round in its turn."""
    first = turn % len(made) if len(made) > 2 else 0
    return made[first:] + made[:first]


def compare(workload: str, given: argparse.Namespace, errors: Any) -> list[dict[str, Any]]:
    """A row for each allocator; the first one is what the others are compared with."""
    with workers(f"{workload}.py", given.allocators, given.quick, errors) as made:
        for worker in made:
            worker.steps(given.warmup, is_timed=False)
        per_turn = max(1, given.steps // given.rounds)
        for turn in range(given.rounds):
            for worker in order(made, turn):
                worker.steps(per_turn, is_timed=True)
    first = made[0]
    return [
        {
            "workload": workload,
            "allocator": worker.allocator,
            "steps": len(worker.seconds),
            "same_numbers": worker.numbers == first.numbers,
            "last_number": float.fromhex(worker.numbers[-1]),
            "median_ms": statistics.median(worker.seconds) * 1e3,
            "least_ms": min(worker.seconds) * 1e3,
            "ratio": statistics.median(worker.seconds) / statistics.median(first.seconds),
            "ratio_of_pairs": statistics.median(
                mine / theirs for mine, theirs in zip(worker.seconds, first.seconds, strict=True)
            ),
            "reserved_peak": worker.reserved_peak,
            "device_peak": worker.peak,
            "pool": worker.pool,
        }
        for worker in made
    ]


def main() -> int:
    """0 when everything ran and all numbers are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument(
        "--allocators",
        type=lambda text: text.split(","),
        default=list(ALLOCATORS),
        help="one may be there twice: how much do two differ that are the same? Default: " + ",".join(ALLOCATORS),
    )
    parser.add_argument("--steps", type=int, default=25, help="timed steps of each allocator")
    parser.add_argument("--rounds", type=int, default=5, help="turns that they are in")
    parser.add_argument("--warmup", type=int, default=8, help="steps before them")
    parser.add_argument("--quick", action="store_true", help="smaller batches: all of it takes a few minutes")
    parser.add_argument("--out", type=Path, help="a folder for the rows and what the workers say")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    failed = []
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    for workload in given.workloads:
        path = given.out / f"{workload}.err" if given.out else os.devnull
        try:
            with open(path, "w") as errors:
                of = compare(workload, given, errors if given.out else sys.stderr)
        except RuntimeError as error:
            failed.append(workload)
            print(json.dumps({"workload": workload, "failed": str(error)}), flush=True)
            continue
        for row in of:
            print(json.dumps({key: value for key, value in row.items() if key != "pool"}), flush=True)
        rows += of
    print()
    head = ("workload", "allocator", "same, bit for bit", "median ms", "× PyTorch", "reserved peak MiB", "device peak MiB")
    table(
        head,
        [
            (
                row["workload"],
                TITLES[row["allocator"]],
                "yes" if row["same_numbers"] else "NO",
                f"{row['median_ms']:.2f}",
                f"{row['ratio']:.3f}",
                mib(row["reserved_peak"]),
                mib(row["device_peak"]),
            )
            for row in rows
        ],
    )
    if given.out:
        (given.out / "compare.json").write_text(json.dumps(rows, indent=1))
    return 0 if rows and not failed and all(row["same_numbers"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
