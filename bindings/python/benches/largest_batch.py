"""The largest batch that trains within a limit on device memory, with each allocator, on three models of changing shapes.

Each allocator has a process of its own. A batch counts when three steps of different shapes succeed after an earlier failure or
success, as in a training that looks for its largest batch. `--jobs 2` searches for two models side by side, each within the whole limit.
What is found is printed at once, and each try on stderr.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import ALLOCATORS, pytorch

GIB = 1 << 30
#: One step of a batch of this size and a number.
Train = Callable[[int, int], None]


def encoder(torch: Any) -> Train:
    """A transformer's encoder, on sequences of changing lengths."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train(batch: int, number: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(batch, (512, 328, 440)[number % 3], 1024, device="cuda")).square().mean().backward()
        optimizer.step()

    return train


def convolutions(torch: Any) -> Train:
    """Residual convolutions, on images of changing sizes."""

    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            norm = torch.nn.BatchNorm2d
            self.inner = torch.nn.Sequential(
                torch.nn.Conv2d(width, width, 3, padding=1), norm(width), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3, padding=1), norm(width)
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.inner(x))

    stages: list[Any] = [torch.nn.Conv2d(3, 64, 7, stride=2, padding=3)]
    for width in (64, 128, 256):
        stages += [Residual(width), Residual(width), torch.nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)]
    model = torch.nn.Sequential(*stages).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(batch: int, number: int) -> None:
        size = (224, 160, 192)[number % 3]
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(batch, 3, size, size, device="cuda")).square().mean().backward()
        optimizer.step()

    return train


def gpt2(torch: Any) -> Train:
    """transformers' GPT-2 with random weights, on texts of changing lengths."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation="eager")
    model = GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train(batch: int, number: int) -> None:
        text = torch.randint(0, config.vocab_size, (batch, (768, 520, 640)[number % 3]), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        model(text, labels=text, use_cache=False).loss.backward()
        optimizer.step()

    return train


MODELS = {"encoder": encoder, "convolutions": convolutions, "gpt2": gpt2}


def largest(torch: Any, train: Train, least: int, report: Callable[[int, bool], None]) -> int:
    """The largest batch that fits, to a 64th of the next power of two; `report` gets each try."""

    def fits(batch: int) -> bool:
        it_does = trained(batch)
        report(batch, it_does)
        return it_does

    def trained(batch: int) -> bool:
        try:
            for number in range(3):
                train(batch, number)
            torch.cuda.synchronize()
            return True
        except torch.OutOfMemoryError:
            pass
        gc.collect()
        torch.cuda.empty_cache()
        return False

    good = 0
    batch = least
    while fits(batch):
        good, batch = batch, 2 * batch
    step = max(batch // 64, 1)
    low, high = good // step, batch // step
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * step):
            low = middle
        else:
            high = middle
    return max(low * step, good)


def worker(allocator: str, name: str, limit: int) -> None:
    """One allocator and one model: a line of JSON."""
    torch = pytorch(allocator)
    torch.use_deterministic_algorithms(False)
    if allocator == "vrampool":
        import vrampool.torch

        vrampool.torch.set_limit(limit)
    else:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    begin = time.monotonic()

    def report(batch: int, fits: bool) -> None:
        after = time.monotonic() - begin
        print(f"{name}, {allocator}: {after:.0f} s, {batch} {'fits' if fits else 'is too large'}", file=sys.stderr, flush=True)

    batch = largest(torch, MODELS[name](torch), 4, report)
    print(json.dumps({"bench": "largest_batch", "model": name, "allocator": allocator, "limit": limit, "batch": batch}), flush=True)


def search(name: str, limit: int) -> bool:
    """One model with each allocator after the other: whether vrampool's batch is the largest, or as large."""
    found: dict[str, int] = {}
    complete = True
    for allocator in ALLOCATORS[:3]:
        command = [sys.executable, __file__, "--limit", str(limit), "--worker", allocator, name]
        ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        line = next((line for line in ended.stdout.splitlines() if line.startswith("{")), "")
        if not line:
            print(f"{name}, {allocator}: no batch was found, exit code {ended.returncode}", file=sys.stderr, flush=True)
            complete = False
            continue
        # Models that end at the same time do not share a line.
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        found[allocator] = json.loads(line)["batch"]
    return complete and found.get("vrampool", 0) >= max(found.values(), default=1)


def main() -> int:
    """0 when vrampool's batch is the largest for each model, or as large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=24, help="GiB")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--worker", nargs=2, metavar=("ALLOCATOR", "MODEL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        allocator, model = given.worker
        worker(allocator, model, given.limit * GIB)
        return 0
    with ThreadPoolExecutor(given.jobs) as jobs:
        return 0 if all(list(jobs.map(lambda name: search(name, given.limit), given.models))) else 1


if __name__ == "__main__":
    sys.exit(main())
