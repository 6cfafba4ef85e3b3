"""The cost of `allocate` and `free` of a block from Python, beside `numpy.empty`, and what several threads do in all.

Needs NumPy and no GPU. `taskset -c 2,3 python pair.py` for figures without migrations; medians of `--rounds` rounds, in which the
measurements take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy

import vrampool


def nanoseconds(act: Callable[[int], None], calls: int) -> float:
    """The time of one of so many calls."""
    began = time.perf_counter_ns()
    act(calls)
    return (time.perf_counter_ns() - began) / calls


def of_threads(act: Callable[[int], None], threads: int, calls: int) -> float:
    """Millions of calls a second, of all threads together."""
    barrier = threading.Barrier(threads + 1)

    def work() -> None:
        barrier.wait()
        act(calls // threads)
        barrier.wait()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter_ns()
    barrier.wait()
    took = time.perf_counter_ns() - began
    for worker in workers:
        worker.join()
    return calls // threads * threads * 1e3 / took


def measure(pool: vrampool.Pool, size: int, calls: int, rounds: int) -> dict[str, Any]:
    """Medians: nanoseconds of each pair, and millions of pairs a second by the number of threads."""

    def pair(times: int) -> None:
        for _ in range(times):
            block = pool.allocate(size)
            block.free()

    def drop(times: int) -> None:
        for _ in range(times):
            block = pool.allocate(size)
        del block

    def scope(times: int) -> None:
        for _ in range(times):
            with pool.allocate(size):
                pass

    def empty(times: int) -> None:
        for _ in range(times):
            array: object = numpy.empty(size, dtype=numpy.uint8)
        del array

    acts = {"pair_ns": pair, "drop_ns": drop, "with_ns": scope, "numpy_empty_ns": empty}
    costs: dict[str, list[float]] = {name: [] for name in acts}
    # NumPy's, too: what threads cost with any function, by the interpreter's lock.
    threaded = {"million_pairs_per_second": pair, "million_numpy_empty_per_second": empty}
    rates: dict[tuple[str, int], list[float]] = {(name, threads): [] for threads in (1, 2, 4) for name in threaded}
    pair(1000)
    for _ in range(rounds):
        for name, act in acts.items():
            costs[name].append(nanoseconds(act, calls))
        for (name, threads), measured in rates.items():
            measured.append(of_threads(threaded[name], threads, calls))
    return {
        "python": sys.version.split()[0],
        "numpy": numpy.__version__,
        **{name: round(statistics.median(cost), 1) for name, cost in costs.items()},
        **{
            name: {str(threads): round(statistics.median(rates[name, threads]), 3) for threads in (1, 2, 4)}
            for name in threaded
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    with vrampool.Pool("host", host_capacity="1GiB") as pool:
        print(json.dumps(measure(pool, given.bytes, given.calls, given.rounds), indent=2))


if __name__ == "__main__":
    main()
