"""Two streams whose kernels take time, with each allocator: how much the second stream speeds the work up, and reserved bytes.

Each allocator has a process of its own; they take turns. Kernels of 0.2 ms use temporaries of 4 KiB to 64 MiB:

- `single`: a temporary is allocated, used by one kernel and freed, in turn over the streams.
- `layers`: a forward pass of ten layers; a temporary of mixed size is freed when the next layer, which reads it, is launched.
- `loader`: the first stream fills batches, the second one uses them behind an event and `record_stream`. Printed, not asserted.

Contents are verified. Fails if a second stream speeds `single` or `layers` up less than 0.97 times as much as with PyTorch's allocator.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from harness import TITLES, Worker, comparison, mib, pin, printed, pytorch, save, serve, table, workers

SIZES = (4 << 10, 1 << 20, 8 << 20, 64 << 20)
SCENES = ("single", "layers", "loader")
ASSERTED = ("single", "layers")
#: The lowest speed-up, as a share of that with PyTorch's allocator.
LEAST = 0.97
#: Milliseconds of a kernel.
KERNEL_MS = 0.2
#: Kernels of a stream in a step.
KERNELS = 50
#: Sizes of the layers' temporaries, in eighths of the given size.
EIGHTHS = (8, 5, 11, 6, 8, 12, 4, 9, 7, 10)
#: Words at the beginning of a temporary that kernels write and read.
WORDS = 1024
#: Batches that are queued at most before the oldest one is complete.
AHEAD = 4


class Program:
    """Steps of the scenes, on PyTorch's streams."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.cycles = self.calibrate()
        #: Of each stream: what its kernels read, summed up; and what that should be.
        self.sums = [torch.zeros(WORDS, dtype=torch.int32, device="cuda") for _ in self.streams]
        self.expected = [0, 0]
        self.number = 0
        torch.cuda.synchronize()

    def calibrate(self) -> int:
        """Cycles of a kernel that takes `KERNEL_MS`."""
        torch = self.torch
        cycles = 20_000_000
        times = []
        for _ in range(4):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return int(cycles / min(times) * KERNEL_MS)

    def produce(self, words: int) -> tuple[Any, int]:
        """A temporary that a kernel fills, and what it is filled with."""
        temporary = self.torch.empty(words, dtype=self.torch.int32, device="cuda")
        self.number = self.number % 1000 + 1
        temporary[:WORDS].fill_(self.number)
        self.torch.cuda._sleep(self.cycles)
        return temporary, self.number

    def consume(self, stream: int, temporary: tuple[Any, int]) -> None:
        """Reads a temporary on this stream."""
        self.sums[stream].add_(temporary[0][:WORDS])
        self.expected[stream] += temporary[1]

    def single(self, streams: list[int], words: int) -> None:
        for _ in range(KERNELS):
            for stream in streams:
                with self.torch.cuda.stream(self.streams[stream]):
                    self.consume(stream, self.produce(words))

    def layers(self, streams: list[int], words: int) -> None:
        for _ in range(KERNELS // len(EIGHTHS)):
            for stream in streams:
                with self.torch.cuda.stream(self.streams[stream]):
                    previous = None
                    for eighths in EIGHTHS:
                        layer = self.produce(max(words * eighths // 8, WORDS))
                        if previous is not None:
                            self.consume(stream, previous)
                        previous = layer

    def loader(self, streams: list[int], words: int) -> None:
        torch = self.torch
        first, second = streams[0], streams[-1]
        load, train = self.streams[first], self.streams[second]
        queued: list[Any] = []
        for _ in range(KERNELS):
            if len(queued) == AHEAD:
                queued.pop(0).synchronize()
            with torch.cuda.stream(load):
                batch = self.produce(words)
            train.wait_stream(load)
            with torch.cuda.stream(train):
                self.produce(words)
                self.consume(second, batch)
                batch[0].record_stream(train)
                queued.append(train.record_event())
            del batch

    def step(self, scene: str, streams: int, bytes: int) -> float:
        """Seconds of a step.

        Raises: `RuntimeError` for wrong contents.
        """
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        getattr(self, scene)(list(range(streams)), bytes // 4)
        self.torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        for stream, total in enumerate(self.sums):
            if not bool((total == self.expected[stream]).all().item()):
                raise RuntimeError(
                    f"{scene}, {bytes} bytes, {streams} streams: memory was reused before its work was complete"
                )
            total.zero_()
            self.expected[stream] = 0
        return seconds

    def turn(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Some steps of a scene; a `first` turn forgets what earlier scenes kept."""
        torch = self.torch
        if ask["first"]:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        seconds = [self.step(ask["scene"], ask["streams"], ask["bytes"]) for _ in range(ask["steps"])]
        stats = torch.cuda.memory_stats()
        return {
            "seconds": seconds,
            "reserved_peak": int(stats["reserved_bytes.all.peak"]),
            "stream_waits": int(stats.get("vrampool.stream_waits", 0)),
        }


def build(torch: Any) -> Any:
    """What a worker does in its turn."""
    # The host's share of a step is the same for all.
    pin()
    return Program(torch).turn


def measure(made: list[Worker], given: argparse.Namespace, scene: str, bytes: int) -> list[dict[str, Any]]:
    """A row for each allocator."""
    seconds: dict[tuple[str, int], list[float]] = {}
    reserved: dict[tuple[str, int], int] = {}
    waits: dict[str, int] = {}
    for streams in (1, 2):
        ask = {"scene": scene, "streams": streams, "bytes": bytes, "first": False}
        for worker in made:
            worker.ask({**ask, "first": True, "steps": 2})
        for turn in range(given.rounds):
            for worker in made if turn % 2 == 0 else reversed(made):
                said = worker.ask({**ask, "steps": given.steps})
                seconds.setdefault((worker.allocator, streams), []).extend(said["seconds"])
                reserved[worker.allocator, streams] = said["reserved_peak"]
                waits[worker.allocator] = said["stream_waits"]
    rows = []
    # A second stream doubles the work of `single` and `layers`, and shares that of `loader`.
    work = 1 if scene == "loader" else 2
    for worker in made:
        one, two = (statistics.median(seconds[worker.allocator, streams]) for streams in (1, 2))
        rows.append(
            {
                "bench": "streams",
                "scene": scene,
                "bytes": bytes,
                "allocator": worker.allocator,
                "steps": len(seconds[worker.allocator, 2]),
                "one_stream_ms": one * 1e3,
                "two_streams_ms": two * 1e3,
                "speed_up": work * one / two,
                "reserved_one_stream": reserved[worker.allocator, 1],
                "reserved_two_streams": reserved[worker.allocator, 2],
                "stream_waits": waits[worker.allocator],
            }
        )
    return rows


def main() -> int:
    """0 when everything ran and the second stream is worth as much as with PyTorch's allocator."""
    parser = comparison(str(__doc__), quick="two sizes")
    parser.add_argument("--scenes", type=lambda text: text.split(","), default=list(SCENES))
    parser.add_argument("--rounds", type=int, default=7, help="turns of each allocator in each case")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a turn")
    given = parser.parse_args()
    if given.serve:
        torch = pytorch(given.allocator)
        torch.use_deterministic_algorithms(False)
        serve(torch, lambda: build(torch))
        return 0
    sizes = (SIZES[0], SIZES[2]) if given.quick else SIZES
    rows: list[dict[str, Any]] = []
    with workers("streams.py", given.allocators, given.quick, sys.stderr) as made:
        for scene in given.scenes:
            for bytes in sizes:
                rows += printed(measure(made, given, scene, bytes))
    print()
    failed = report(rows)
    save(rows, given.out, "streams")
    for failure in failed:
        print(failure)
    return 1 if failed else 0


def report(rows: list[dict[str, Any]]) -> list[str]:
    """Prints the table, and returns a line for each case in which vrampool is slower than it may be."""
    cells, failed = [], []
    native = {(row["scene"], row["bytes"]): row for row in rows if row["allocator"] == "native"}
    for row in rows:
        base = native.get((row["scene"], row["bytes"]))
        share = row["speed_up"] / base["speed_up"] if base else 1.0
        case = f"{row['scene']}, {row['bytes'] >> 10} KiB"
        if row["allocator"] == "vrampool" and row["scene"] in ASSERTED and share < LEAST:
            failed.append(
                f"{case}: a second stream speeds the work up {share:.3f} times as much as with PyTorch's allocator, not {LEAST}"
            )
        cells.append(
            (
                case,
                TITLES[row["allocator"]],
                f"{row['one_stream_ms']:.2f}",
                f"{row['two_streams_ms']:.2f}",
                f"{row['speed_up']:.2f}",
                f"{share:.3f}",
                f"{mib(row['reserved_one_stream'])} / {mib(row['reserved_two_streams'])}",
                str(row["stream_waits"]),
            )
        )
    head = ("case", "allocator", "one stream ms", "two ms", "speed-up", "× PyTorch's", "reserved MiB, one / two", "waits")
    table(head, cells)
    return failed


if __name__ == "__main__":
    sys.exit(main())
