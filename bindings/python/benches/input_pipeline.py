"""Feeds a network by three streams: one uploads, one augments, one computes; `record_stream` keeps what they share."""

from __future__ import annotations

import random
from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is sixteen batches of changing sizes; its number is the sum of what the network says."""
    # Its time is the host's too.
    pin()
    width = 1024 if quick else 2048
    model = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)).cuda()
    upload, augment, compute = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    made, rng = torch.Generator().manual_seed(4), random.Random(4)
    rows = [rng.randrange(256, 2049, 32) for _ in range(16)]
    batches = [torch.randn(count, width, generator=made).pin_memory() for count in rows]

    def step(number: int) -> Any:
        with torch.no_grad():
            return work(number)

    def work(number: int) -> Any:
        said = []
        for batch in batches:
            with torch.cuda.stream(upload):
                raw = batch.cuda(non_blocking=True)
            augment.wait_stream(upload)
            with torch.cuda.stream(augment):
                raw.record_stream(augment)
                image = (raw * 2 + number).sin()
            compute.wait_stream(augment)
            image.record_stream(compute)
            said.append(model(image).double().sum())
            # Both are freed here, before any of the streams has come so far.
            del raw, image
        return torch.stack(said).sum()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
