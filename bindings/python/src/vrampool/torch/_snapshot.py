"""Snapshots in PyTorch's own format, which its visualiser opens."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from ._install import device_index, pool

#: Above so many bytes PyTorch calls a segment large.
_LARGEST_SMALL = 2 << 20


def snapshot(device: object = None) -> dict[str, Any]:
    """The memory of a device's pool, as `torch.cuda.memory._snapshot()` tells of PyTorch's own.

    `segments` are runs of addresses with memory behind them, and their blocks cover them. `device_traces` are empty:
    vrampool keeps no history of each block.
    """
    index = device_index(device)
    return convert(pool(device).snapshot(), index)


def convert(of_pool: dict[str, Any], device: int) -> dict[str, Any]:
    """A pool's snapshot in PyTorch's format, as of this device."""
    return {
        "segments": [_segment(segment, device) for segment in of_pool["segments"]],
        "device_traces": [[] for _ in range(device + 1)],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "expandable_segments": of_pool["source"] == "virtual",
            "vrampool": {key: of_pool[key] for key in ("pool", "device", "backend", "source", "limit")},
        },
        "external_annotations": [],
    }


def _segment(segment: dict[str, Any], device: int) -> dict[str, Any]:
    blocks = [_block(block) for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] == "active_allocated"]
    size = sum(block["size"] for block in active)
    streams = {block["stream"] for block in segment["blocks"] if block["stream"]}
    return {
        "device": device,
        "address": segment["address"],
        "total_size": segment["bytes"],
        "allocated_size": size,
        "active_size": size,
        "requested_size": sum(block["requested_size"] for block in active),
        # Segments are nobody's; where all blocks are of one stream it is named.
        "stream": streams.pop() if len(streams) == 1 else 0,
        "segment_type": "small" if segment["bytes"] <= _LARGEST_SMALL else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment["kind"] == "virtual",
        "frames": [],
        "blocks": blocks,
        "vrampool_kind": segment["kind"],
        "vrampool_tag": segment["tag"],
    }


def _block(block: dict[str, Any]) -> dict[str, Any]:
    is_live = block["state"] in ("live", "private")
    return {
        "address": block["address"],
        "size": block["bytes"],
        "requested_size": min(block["requested"], block["bytes"]) if is_live else 0,
        "state": "active_allocated" if is_live else "inactive",
        "frames": [],
    }


def dump_snapshot(path: str | os.PathLike[str] = "dump_snapshot.pickle", device: object = None) -> None:
    """Writes `snapshot()` as a pickle of plain dicts, lists, texts and numbers: for https://pytorch.org/memory_viz, and
    `python -m torch.cuda._memory_viz`."""
    Path(path).write_bytes(pickle.dumps(snapshot(device), protocol=2))
