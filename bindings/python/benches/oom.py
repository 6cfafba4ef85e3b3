"""Out of memory inside PyTorch: `torch.OutOfMemoryError` with vrampool's text, and training goes on with a smaller batch."""

from __future__ import annotations

import argparse
import json
import sys

import vrampool.torch


def main() -> int:
    """0 when it is so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5, help="steps after the failure")
    parser.add_argument("--quick", action="store_true", help="a smaller limit and model")
    parser.add_argument(
        "--elementwise",
        action="store_true",
        help="no matrix products, whose kernels take minutes to load under compute-sanitizer",
    )
    given = parser.parse_args()
    limit, width = ("256MiB", 512) if given.quick else ("4GiB", 4096)
    vrampool.torch.install(limit=limit)
    import torch

    class Scale(torch.nn.Module):
        """Scales each feature."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Returns `x` scaled."""
            return x * self.weight

    def layer() -> torch.nn.Module:
        return Scale() if given.elementwise else torch.nn.Linear(width, width)

    model = torch.nn.Sequential(*(layer() for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch, failures, done, text = 1 << 20, 0, 0, ""
    while done < given.steps:
        try:
            optimizer.zero_grad(set_to_none=True)
            model(torch.randn(batch, width, device="cuda")).square().mean().backward()
            optimizer.step()
            done += 1
        except torch.OutOfMemoryError as error:
            text = str(error)
            failures += 1
            batch //= 2
    torch.cuda.synchronize()
    stats = vrampool.torch.memory_stats()
    result = {
        "bench": "oom",
        "exception": "torch.OutOfMemoryError",
        "failures": failures,
        "batch": batch,
        "steps": done,
        "num_ooms": stats["num_ooms"],
        "reserved_peak": stats["reserved_bytes.all.peak"],
        "limit": stats["vrampool.limit"],
        "text": text,
        "ok": failures > 0
        and "vrampool" in text
        and stats["num_ooms"] >= failures
        and stats["reserved_bytes.all.peak"] <= stats["vrampool.limit"],
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
