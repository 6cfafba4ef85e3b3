"""Training steps on two or more GPUs, with each allocator: FSDP and DDP steps of a GPT-2 on texts of random lengths, and all-reduces.

Each allocator has a process for each GPU. The allocators take turns step by step, and a step is compared with the same step of PyTorch's
allocator beside it, because a host's speed changes by a fifth within seconds. Losses must be the same bit for bit. Fails if they are not,
or if a step is longer than `--most` times that with PyTorch's allocator, by the median of these ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import TITLES, Worker, comparison, in_turn, mib, pin, pool_figures, printed, pytorch, ratio, save, serve, table

WORKLOADS = ("ddp", "fsdp", "fsdp2")
#: Bytes of an all-reduce.
ALL_REDUCES = (1 << 20, 16 << 20, 128 << 20, 1 << 30)
#: Seconds that the all-reduces of one size take in a turn.
ALL_REDUCE_SECONDS = 0.05
ALL_REDUCE_TURNS = 7
LONGEST = 1024
VOCABULARY = 50304


def gpt2(torch: Any, layers: int, width: int, heads: int, vocabulary: int) -> Any:
    """A GPT-2 with random weights. Attention in plain operations: fused kernels do not add up in the same order each time."""
    functional = torch.nn.functional

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.first(x)).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(LONGEST, width)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
            self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

        def forward(self, text: Any) -> Any:
            x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
            for layer in self.layers:
                x = layer(x)
            said = self.head(self.norm(x))[:, :-1].flatten(0, 1)
            return functional.cross_entropy(said.float(), text[:, 1:].flatten())

    model = Model()
    model.layer_type = Layer
    return model


def sharded(torch: Any, workload: str, model: Any) -> Any:
    """The model as this workload spreads it over the GPUs."""
    layer_type, device = model.layer_type, torch.cuda.current_device()
    if workload == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[device], gradient_as_bucket_view=True)
    if workload == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_type})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device, use_orig_params=True)
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


class Rank:
    """A process of one GPU."""

    def __init__(self, torch: Any, given: argparse.Namespace) -> None:
        self.torch, self.quick, self.rank, self.ranks = torch, given.quick, given.rank, given.ranks
        device = torch.device("cuda", given.rank)
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{given.store}", rank=given.rank, world_size=given.ranks, device_id=device
        )
        self.step: Callable[[], float] | None = None

    def turn(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Builds a workload, runs steps of it, or times all-reduces."""
        if "build" in ask:
            self.build(ask["build"])
            return {}
        if "bytes" in ask:
            return {"bandwidth": self.all_reduce(ask["bytes"])}
        torch = self.torch
        assert self.step is not None
        seconds, losses, processor_seconds = [], [], []
        for _ in range(ask["steps"]):
            torch.cuda.synchronize()
            begin, processor_begin = time.perf_counter(), time.process_time()
            losses.append(self.step().hex())
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
            processor_seconds.append(time.process_time() - processor_begin)
        stats = torch.cuda.memory_stats()
        return {
            "seconds": seconds,
            "processor_seconds": processor_seconds,
            "losses": losses,
            "reserved_peak": int(stats["reserved_bytes.all.peak"]),
            "requested_peak": int(stats.get("requested_bytes.all.peak", 0)),
            "stream_waits": int(stats.get("vrampool.stream_waits", 0)),
            "memory_calls": (pool_figures() or {}).get("memory_calls", 0),
        }

    def build(self, workload: str) -> None:
        """Forgets the workload before, and makes this one."""
        torch = self.torch
        self.step = None
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(7)
        layers, width, heads = (4, 512, 8) if self.quick else (12, 768, 12)
        model = sharded(torch, workload, gpt2(torch, layers, width, heads, VOCABULARY).cuda())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        # Each rank has texts of its own, and all have the same lengths.
        made, rng = torch.Generator().manual_seed(100 + self.rank), random.Random(3)
        lengths = [rng.randrange(LONGEST // 4, LONGEST + 1, 8) for _ in range(8)]
        texts = [torch.randint(0, VOCABULARY, (4, length), generator=made).pin_memory() for length in lengths]
        done = 0

        def step() -> float:
            nonlocal done
            text = texts[done % len(texts)].cuda(non_blocking=True)
            done += 1
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(text)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        self.step = step

    def all_reduce(self, bytes: int) -> float:
        """Bus bandwidth, GB/s, of all-reduces of that many bytes.

        Raises: `RuntimeError` for a wrong sum.
        """
        torch, distributed = self.torch, self.torch.distributed
        tensor = torch.ones(bytes // 4, device="cuda")
        distributed.all_reduce(tensor)
        if not bool((tensor == self.ranks).all().item()):
            raise RuntimeError(f"an all-reduce of {bytes} bytes has a wrong sum")
        tensor.zero_()
        count = 2
        while True:
            distributed.barrier()
            torch.cuda.synchronize()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(count):
                distributed.all_reduce(tensor)
            end.record()
            end.synchronize()
            # All ranks go on, or none.
            seconds = torch.tensor([begin.elapsed_time(end) / 1e3], device="cuda")
            distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
            longest = float(seconds.item())
            if longest >= ALL_REDUCE_SECONDS or count >= 4096:
                return float(2 * (self.ranks - 1) / self.ranks * bytes * count / longest / 1e9)
            count *= 4


class Group:
    """The processes of one allocator."""

    def __init__(self, nth: int, allocator: str, given: argparse.Namespace, folder: Path) -> None:
        self.allocator = allocator
        store = folder / f"{nth}.store"
        options = ["--ranks", str(given.ranks), "--store", str(store)]
        self.ranks = [
            Worker("distributed.py", allocator, given.quick, sys.stderr, [*options, "--rank", str(rank)])
            for rank in range(given.ranks)
        ]
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []
        self.losses: list[str] = []
        self.reserved = self.requested = self.waits = self.memory_calls = self.memory_calls_before = 0
        self.bandwidths: dict[int, list[float]] = {}

    def hear(self) -> list[dict[str, Any]]:
        """An answer of each rank."""
        return [rank.hear() for rank in self.ranks]

    def ask(self, what: dict[str, Any]) -> list[dict[str, Any]]:
        """All ranks work at the same time."""
        for rank in self.ranks:
            rank.send(what)
        return self.hear()

    def build(self, workload: str) -> None:
        self.ask({"build": workload})
        self.seconds, self.processor_seconds, self.losses = [], [], []
        self.memory_calls = 0

    def steps(self, count: int, is_timed: bool) -> None:
        said = self.ask({"steps": count})
        if is_timed:
            # A step is as long as its slowest rank.
            self.seconds += [max(of) for of in zip(*(rank["seconds"] for rank in said), strict=True)]
            processor_seconds = zip(*(rank["processor_seconds"] for rank in said), strict=True)
            self.processor_seconds += [max(of) for of in processor_seconds]
            self.memory_calls += sum(rank["memory_calls"] for rank in said) - self.memory_calls_before
        self.memory_calls_before = sum(rank["memory_calls"] for rank in said)
        for rank in said:
            self.losses += rank["losses"]
        self.reserved = max(rank["reserved_peak"] for rank in said)
        self.requested = max(rank["requested_peak"] for rank in said)
        self.waits = sum(rank["stream_waits"] for rank in said)

    def all_reduce(self, bytes: int) -> None:
        said = self.ask({"bytes": bytes})
        self.bandwidths.setdefault(bytes, []).append(min(rank["bandwidth"] for rank in said))

    def end(self) -> None:
        for rank in self.ranks:
            rank.end()


def train(groups: list[Group], workload: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each allocator."""
    for group in groups:
        group.build(workload)
        group.steps(given.warmup, is_timed=False)
    for turn in range(given.rounds):
        for group in in_turn(groups, turn):
            group.steps(given.steps, is_timed=True)
    first = groups[0]
    return [
        {
            "bench": "distributed",
            "workload": workload,
            "allocator": group.allocator,
            "ranks": given.ranks,
            "steps": len(group.seconds),
            "median_ms": statistics.median(group.seconds) * 1e3,
            "ratio": ratio(group.seconds, first.seconds),
            "processor_ratio": ratio(group.processor_seconds, first.processor_seconds),
            "memory_calls_a_step": group.memory_calls / given.ranks / len(group.seconds),
            "same_losses": group.losses == first.losses,
            "last_loss": float.fromhex(group.losses[-1]),
            "reserved_peak": group.reserved,
            "requested_peak": group.requested,
            "stream_waits": group.waits,
        }
        for group in groups
    ]


def all_reduces(groups: list[Group], given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each allocator and size."""
    sizes = ALL_REDUCES[:3] if given.quick else ALL_REDUCES
    for turn in range(ALL_REDUCE_TURNS):
        for bytes in sizes:
            for group in in_turn(groups, turn):
                group.all_reduce(bytes)
    first = groups[0]
    return [
        {
            "bench": "all_reduce",
            "bytes": bytes,
            "allocator": group.allocator,
            "ranks": given.ranks,
            "gb_per_second": statistics.median(group.bandwidths[bytes]),
            "ratio": statistics.median(group.bandwidths[bytes]) / statistics.median(first.bandwidths[bytes]),
        }
        for bytes in sizes
        for group in groups
    ]


def main() -> int:
    """0 when everything ran, losses are the same, and no step is longer than it may be."""
    parser = comparison(str(__doc__), quick="a smaller model")
    parser.add_argument(
        "--workloads", type=lambda text: text.split(","), default=list(WORKLOADS), metavar=",".join(WORKLOADS)
    )
    parser.add_argument("--ranks", type=int, default=2, help="GPUs")
    parser.add_argument("--rounds", type=int, default=72, help="turns of each allocator: a multiple of the 8 lengths")
    parser.add_argument("--steps", type=int, default=1, help="timed steps of a turn")
    parser.add_argument("--warmup", type=int, default=16, help="steps before them")
    parser.add_argument(
        "--most", type=float, default=1.01, help="the longest step, as a multiple of that with PyTorch's allocator"
    )
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        # Virtual machines may have NVLink without its multicast.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        # One thread is busy at a time: that of the steps, or that of the backward pass.
        pin(given.rank, 2)
        torch = pytorch(given.allocator)
        torch.cuda.set_device(given.rank)
        serve(torch, lambda: Rank(torch, given).turn)
        return 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        groups = []
        for nth, allocator in enumerate(given.allocators):
            groups.append(Group(nth, allocator, given, Path(folder)))
            ends.callback(groups[-1].end)
        for group in groups:
            group.hear()
        for group in groups:
            group.ask({})
        rows = []
        for workload in given.workloads:
            rows += printed(train(groups, workload, given))
        bandwidths = printed(all_reduces(groups, given))
    print()
    failed = report(rows, bandwidths, given.most)
    save(rows + bandwidths, given.out, "distributed")
    for failure in failed:
        print(failure)
    return 1 if failed else 0


def report(rows: list[dict[str, Any]], bandwidths: list[dict[str, Any]], most: float) -> list[str]:
    """Prints the tables, and returns a line for each row that is not as it should be."""
    failed = []
    for row in rows:
        if not row["same_losses"]:
            failed.append(f"{row['workload']}, {row['allocator']}: losses differ from those with PyTorch's allocator")
        if row["allocator"] == "vrampool" and row["ratio"] > most:
            failed.append(
                f"{row['workload']}: a step takes {row['ratio']:.3f} times as long as with PyTorch's allocator, not {most}"
            )
    head = ("workload", "allocator", "same losses", "median ms", "× PyTorch", "processor", "calls a step", "reserved peak MiB", "÷ requested", "waits")
    table(
        head,
        [
            (
                row["workload"],
                TITLES[row["allocator"]],
                "yes" if row["same_losses"] else "NO",
                f"{row['median_ms']:.2f}",
                f"{row['ratio']:.3f}",
                f"{row['processor_ratio']:.3f}",
                f"{row['memory_calls_a_step']:.1f}",
                mib(row["reserved_peak"]),
                f"{row['reserved_peak'] / max(row['requested_peak'], 1):.3f}",
                str(row["stream_waits"]),
            )
            for row in rows
        ],
    )
    print()
    table(
        ("all-reduce MiB", "allocator", "GB/s", "× PyTorch"),
        [
            (mib(row["bytes"]), TITLES[row["allocator"]], f"{row['gb_per_second']:.1f}", f"{row['ratio']:.3f}")
            for row in bandwidths
        ],
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
