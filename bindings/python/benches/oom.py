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
    given = parser.parse_args()
    limit, width = ("512MiB", 512) if given.quick else ("4GiB", 4096)
    vrampool.torch.install(limit=limit)
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch, failures, done, text = 1 << 20, 0, 0, ""
    while done < given.steps and batch > 0:
        try:
            optimizer.zero_grad(set_to_none=True)
            model(torch.randn(batch, width, device="cuda")).square().mean().backward()
            optimizer.step()
            done += 1
        except torch.OutOfMemoryError as error:
            text = str(error)
            failures += 1
            # In one step to what fits: under compute-sanitizer PyTorch keeps tensors of failed steps, with its own allocator, too.
            batch //= 64
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
        "limit": stats["vrampool.limit_bytes"],
        "text": text,
        "ok": failures > 0
        and done == given.steps
        and "vrampool" in text
        and stats["num_ooms"] >= failures
        and stats["reserved_bytes.all.peak"] <= stats["vrampool.limit_bytes"],
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
