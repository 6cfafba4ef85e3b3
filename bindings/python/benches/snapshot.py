"""Statistics and a snapshot where PyTorch refuses them, and the HTML that PyTorch's visualiser makes of it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import vrampool.torch


def main() -> int:
    """0 when there is one, and its figures fit together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a smaller model")
    parser.add_argument("--out", type=Path, default=Path("snapshot"), help="a folder for the files")
    given = parser.parse_args()
    vrampool.torch.install()
    import torch
    from torch.cuda import _memory_viz
    from torchvision.models import resnet18, resnet50

    model = (resnet18 if given.quick else resnet50)(weights=None).cuda()
    kept = []
    for _ in range(given.steps):
        loss = model(torch.randn(16, 3, 224, 224, device="cuda")).square().mean()
        loss.backward()
        kept.append(loss)
    torch.cuda.synchronize()
    given.out.mkdir(parents=True, exist_ok=True)
    taken = vrampool.torch.snapshot()
    vrampool.torch.dump_snapshot(given.out / "snapshot.pickle")
    pages = {
        "segments.html": _memory_viz.segment_plot(taken),
        "timeline.html": _memory_viz.trace_plot(taken),
        "segments.txt": _memory_viz.segsum(taken),
        "summary.txt": torch.cuda.memory_summary(),
        "stats.json": json.dumps(torch.cuda.memory_stats(), indent=1),
    }
    for name, text in pages.items():
        (given.out / name).write_text(text)
    stats = vrampool.torch.memory_stats()
    active = sum(segment["active_size"] for segment in taken["segments"])
    total = sum(segment["total_size"] for segment in taken["segments"])
    result = {
        "bench": "snapshot",
        "segments": len(taken["segments"]),
        "blocks": sum(len(segment["blocks"]) for segment in taken["segments"]),
        "active": active,
        "allocated": stats["allocated_bytes.all.current"],
        "total": total,
        "reserved": stats["reserved_bytes.all.current"],
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "html_bytes": len(pages["segments.html"]),
        "ok": active == stats["allocated_bytes.all.current"] and total >= active > 0 and "<html>" in pages["segments.html"],
    }
    print(json.dumps(result))
    print(pages["summary.txt"])
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
