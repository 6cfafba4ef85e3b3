"""Runs workloads with each allocator, in turns, and says where they differ: results bit for bit, time, memory held.

Ratios of wall and processor time are medians of the ratios of steps beside each other. Processor time is that until a
step's work is queued. Device time is that of steps after the others, by PyTorch's profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from typing import Any

from harness import TITLES, Worker, comparison, in_turn, mib, ratio, save, table, workers

WORKLOADS = (
    "train_resnet50",
    "train_gpt2",
    "train_bert",
    "train_gnn",
    "diffusion_unet",
    "generate",
    "serve_decode",
    "input_pipeline",
)
#: Too long to print.
UNPRINTED = ("pool", "seconds", "processor_seconds")


def compare(workload: str, given: argparse.Namespace, errors: Any) -> list[dict[str, Any]]:
    """A row for each allocator; the first one is what the others are compared with."""
    with workers(f"{workload}.py", given.allocators, given.quick, errors) as made:
        for worker in made:
            worker.steps(given.warmup, is_timed=False)
        per_turn = max(1, given.steps // given.rounds)
        for turn in range(given.rounds):
            for worker in in_turn(made, turn):
                worker.steps(per_turn, is_timed=True)
        for worker in made if given.profiled else ():
            # What was timed before is worth a report without it.
            try:
                worker.profile(given.profiled)
            except RuntimeError as error:
                print(json.dumps({"workload": workload, "not_profiled": str(error)}), flush=True)
    return [row(workload, worker, made[0]) for worker in made]


def row(workload: str, worker: Worker, first: Worker) -> dict[str, Any]:
    """What a worker's steps took, beside those of the first one."""
    device, first_device = worker.device_seconds, first.device_seconds
    return {
        "workload": workload,
        "allocator": worker.allocator,
        "steps": len(worker.seconds),
        # One that could not be profiled has fewer.
        "same_numbers": all(mine == theirs for mine, theirs in zip(worker.numbers, first.numbers, strict=False)),
        "last_number": float.fromhex(worker.numbers[-1]),
        "median_ms": statistics.median(worker.seconds) * 1e3,
        "least_ms": min(worker.seconds) * 1e3,
        "ratio": ratio(worker.seconds, first.seconds),
        "processor_ms": statistics.median(worker.processor_seconds) * 1e3,
        "processor_ratio": ratio(worker.processor_seconds, first.processor_seconds),
        "device_ms": device and device * 1e3,
        "device_ratio": device / first_device if device and first_device else None,
        "kernels": worker.kernels,
        "reserved_peak": worker.reserved_peak,
        "device_peak": worker.peak,
        "pool": worker.pool,
        "seconds": worker.seconds,
        "processor_seconds": worker.processor_seconds,
    }


def cell(value: float | None, digits: int) -> str:
    """For tables."""
    return "not measured" if value is None else f"{value:.{digits}f}"


def main() -> int:
    """0 when everything ran, all numbers are the same, and the profiler saw the kernels of each allocator."""
    parser = comparison(str(__doc__), quick="smaller batches: all of it takes a few minutes")
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--steps", type=int, default=32, help="timed steps of each allocator")
    parser.add_argument("--rounds", type=int, default=32, help="turns that they are in")
    parser.add_argument("--warmup", type=int, default=8, help="steps before them")
    parser.add_argument("--profiled", type=int, default=4, help="steps after them, under the profiler")
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
        for one in of:
            print(json.dumps({key: value for key, value in one.items() if key not in UNPRINTED}), flush=True)
        rows += of
    print()
    report(rows)
    save(rows, given.out, "compare")
    is_profiled = not given.profiled or all(row["kernels"] for row in rows)
    return 0 if rows and not failed and is_profiled and all(row["same_numbers"] for row in rows) else 1


def report(rows: list[dict[str, Any]]) -> None:
    """Prints the table."""
    times = ("ms", "× PyTorch", "processor ms", "× PyTorch", "device ms", "× PyTorch", "kernels")
    table(
        ("workload", "allocator", "same, bit for bit", *times, "reserved peak MiB", "device peak MiB"),
        [
            (
                row["workload"],
                TITLES[row["allocator"]],
                "yes" if row["same_numbers"] else "NO",
                cell(row["median_ms"], 2),
                cell(row["ratio"], 3),
                cell(row["processor_ms"], 2),
                cell(row["processor_ratio"], 3),
                cell(row["device_ms"], 2),
                cell(row["device_ratio"], 3),
                cell(row["kernels"], 0),
                mib(row["reserved_peak"]),
                mib(row["device_peak"]),
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
