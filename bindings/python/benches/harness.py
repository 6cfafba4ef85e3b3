"""What the benchmarks share: a process for each allocator, asked in turns, so that they are measured side by side.

A worker imports PyTorch, waits, builds its work, and does steps on request: one line of JSON in, one out. Only one
worker works at a time, so that what the device has in use changes by that one alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ALLOCATORS = ("native", "expandable", "vrampool")

#: What the rows of tables say.
TITLES = {
    "native": "PyTorch",
    "expandable": "PyTorch, expandable_segments:True",
    "vrampool": "vrampool",
}

#: Queues one step without a wait for the device, and returns a number, or a tensor of one, that must be the same with
#: every allocator.
Step = Callable[[int], Any]


def options() -> dict[str, Any]:
    """Those of the pool: `VRAMPOOL_BENCH_OPTIONS`, as JSON."""
    return dict(json.loads(os.environ.get("VRAMPOOL_BENCH_OPTIONS", "{}")))


def pytorch(allocator: str) -> Any:
    """PyTorch with this allocator and settings that make each run the same, bit for bit."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        os.environ.pop(name, None)
    if allocator == "expandable":
        os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    warnings.simplefilter("ignore")
    import torch

    if allocator == "vrampool":
        import vrampool.torch

        vrampool.torch.install(**options())
    torch.manual_seed(7)
    random.seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling what empty() makes is for the search for bugs, and is no part of what is measured.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    return torch


def pin(nth: int = 0, cores: int = 1) -> None:
    """Keeps this process on the cores that all workers of this number share, of which one works at a time: cores are not
    equally fast, and what else runs on them is not equally busy. Does nothing on a machine with fewer cores."""
    with contextlib.suppress(AttributeError, OSError):
        mine = sorted(os.sched_getaffinity(0), reverse=True)[nth * cores :][:cores]
        if len(mine) == cores:
            os.sched_setaffinity(0, mine)


def reserved_peak(torch: Any) -> int:
    """The most that was taken from the device. With vrampool installed PyTorch's function asks vrampool."""
    return int(torch.cuda.memory_stats()["reserved_bytes.all.peak"])


def pool_figures() -> dict[str, int] | None:
    """All figures of vrampool's pool, where there is one."""
    if "vrampool.torch" not in sys.modules:
        return None
    import vrampool.torch

    return vrampool.torch.pool().stats()._asdict()


def in_use(torch: Any) -> int:
    """Bytes of the device that all processes use."""
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


class Turns:
    """A worker's steps, and what they took."""

    def __init__(self, torch: Any, step: Step) -> None:
        self.torch = torch
        self.step = step
        self.done = 0

    def turn(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Does `steps` steps, or `profiled` steps under the profiler."""
        return self.profiled(ask["profiled"]) if "profiled" in ask else self.timed(ask["steps"])

    def timed(self, steps: int) -> dict[str, Any]:
        """Wall time of each step, and the processor time of the process until the step's work is queued."""
        torch = self.torch
        before = most = in_use(torch)
        seconds: list[float] = []
        processor_seconds: list[float] = []
        numbers: list[str] = []
        for _ in range(steps):
            torch.cuda.synchronize()
            begin, processor_begin = time.perf_counter(), time.process_time()
            number = self.step(self.done)
            # The rest is a wait for the device, in which the processor spins.
            processor_seconds.append(time.process_time() - processor_begin)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
            numbers.append(float(number).hex())
            self.done += 1
            most = max(most, in_use(torch))
        return {
            "seconds": seconds,
            "processor_seconds": processor_seconds,
            "numbers": numbers,
            "before": before,
            "most": most,
            "after": in_use(torch),
            "reserved_peak": reserved_peak(torch),
            "pool": pool_figures(),
        }

    def profiled(self, steps: int) -> dict[str, Any]:
        """Time of kernels, copies and fills on the device, summed up over these steps, and the number of kernels."""
        from torch.profiler import ProfilerActivity, profile

        torch = self.torch
        numbers: list[str] = []
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                numbers.append(float(self.step(self.done)).hex())
                self.done += 1
            torch.cuda.synchronize()
        # The others are calls of the host.
        on_device = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return {
            "numbers": numbers,
            "device_seconds": sum(event.time_range.elapsed_us() for event in on_device) / 1e6,
            "kernels": sum(not event.name.startswith(("Memcpy", "Memset")) for event in on_device),
        }


def comparison(description: str, quick: str) -> argparse.ArgumentParser:
    """What scripts take that compare allocators by themselves."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--allocators",
        type=lambda text: text.split(","),
        default=list(ALLOCATORS),
        help="one may occur again, as a control: its two ratios differ by what processes differ",
    )
    parser.add_argument("--allocator", choices=ALLOCATORS, default="vrampool", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a folder for the rows")
    return parser


def main(description: str, build: Callable[[Any, bool], Step]) -> None:
    """Runs a workload as a worker of `compare.py`."""
    parser = argparse.ArgumentParser(description=description, epilog="compare.py runs it.")
    parser.add_argument("--serve", action="store_true", required=True)
    parser.add_argument("--allocator", choices=ALLOCATORS, required=True)
    parser.add_argument("--quick", action="store_true", help="a smaller batch")
    given = parser.parse_args()
    torch = pytorch(given.allocator)
    serve(torch, lambda: Turns(torch, build(torch, given.quick)).turn)


def printed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prints rows at once: a later one may fail."""
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def save(rows: list[dict[str, Any]], folder: Path | None, name: str) -> None:
    """Writes the rows to a file of this folder."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(rows, indent=1))


def serve(torch: Any, build: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """A worker: answers lines of JSON until there are none."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # What libraries print is not an answer.
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")

    say({"event": "imported"})
    sys.stdin.readline()
    # The context, alike for all.
    torch.cuda.init()
    torch.cuda.synchronize()
    before = in_use(torch)
    turn = build()
    torch.cuda.synchronize()
    say({"event": "built", "before": before, "after": in_use(torch)})
    for line in sys.stdin:
        say(turn(json.loads(line)))
    # Without an end of Python's, in which libraries free in an order of their own.
    answers.flush()
    os._exit(0)


class Worker:
    """A process with an allocator, from the side of the caller."""

    def __init__(self, script: str, allocator: str, quick: bool, errors: Any, options: Sequence[str] = ()) -> None:
        self.allocator = allocator
        command = [sys.executable, str(Path(__file__).with_name(script)), "--serve", "--allocator", allocator, *options]
        self._process = subprocess.Popen(
            command + ["--quick"] * quick, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        self.held = self.peak = 0
        self.reserved_peak = 0
        self.pool: dict[str, int] | None = None
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []
        #: Of a step, by the profiler; none where it saw none.
        self.device_seconds: float | None = None
        self.kernels: float | None = None
        self.numbers: list[str] = []

    def hear(self) -> dict[str, Any]:
        """The next answer.

        Raises: `RuntimeError` when there is none.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.allocator}: the worker ended with {self._process.wait()}")
        return dict(json.loads(line))

    def send(self, what: dict[str, Any]) -> None:
        """Sends a request, whose answer `hear` returns."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        self.send(what)
        return self.hear()

    def build(self) -> None:
        """Lets it build its work."""
        self.heard_memory(self.ask({}))

    def steps(self, count: int, is_timed: bool) -> None:
        """Lets it do steps."""
        said = self.ask({"steps": count})
        self.heard_memory(said)
        self.numbers += said["numbers"]
        self.reserved_peak, self.pool = said["reserved_peak"], said["pool"]
        if is_timed:
            self.seconds += said["seconds"]
            self.processor_seconds += said["processor_seconds"]

    def profile(self, count: int) -> None:
        """Lets it do steps under the profiler."""
        said = self.ask({"profiled": count})
        self.numbers += said["numbers"]
        if said["kernels"]:
            self.device_seconds, self.kernels = said["device_seconds"] / count, said["kernels"] / count

    def heard_memory(self, said: dict[str, Any]) -> None:
        """No other process worked meanwhile: what changed on the device is this worker's."""
        self.peak = max(self.peak, self.held + said.get("most", said["after"]) - said["before"])
        self.held += said["after"] - said["before"]

    def end(self) -> None:
        """Lets it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextlib.contextmanager
def workers(script: str, allocators: Sequence[str], quick: bool, errors: Any) -> Iterator[list[Worker]]:
    """One for each allocator, built one after the other."""
    made = [Worker(script, allocator, quick, errors) for allocator in allocators]
    try:
        for worker in made:
            worker.hear()
        for worker in made:
            worker.build()
        yield made
    finally:
        for worker in made:
            worker.end()


def in_turn(made: list[Any], turn: int) -> list[Any]:
    """None comes twice in a row, where the caches are as it left them; of more than two each begins a round in its turn."""
    first = turn % len(made) if len(made) > 2 else 0
    return made[first:] + made[:first]


def ratio(of: list[float], to: list[float]) -> float:
    """By the median of the ratios of steps beside each other: a host's speed changes by a fifth within seconds."""
    return statistics.median(one / other for one, other in zip(of, to, strict=True))


def mib(bytes: int) -> str:
    """For tables."""
    return f"{bytes / (1 << 20):.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    sys.stdout.flush()
