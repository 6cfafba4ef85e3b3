"""Snapshots in PyTorch's own format, which its visualiser opens."""

from __future__ import annotations

import os
import pickle
from typing import Any

from .._library import LIBRARY
from ._devices import device_index, pools

#: Above so many bytes PyTorch calls a segment large.
_LARGEST_SMALL = 2 << 20


def snapshot(device: object = None) -> dict[str, Any]:
    """The memory of the pools of all devices that have one, or of one device's, as `torch.cuda.memory._snapshot()` describes
    PyTorch's own.

    `segments` are runs of addresses with memory behind them, and their blocks cover them. `device_traces` are empty:
    vrampool keeps no history of each block; `vrampool.trace.record` does.
    """
    known = pools()
    wanted = device_index(device) if known and device is not None else None
    of_pools = {index: of.snapshot() for index, of in known.items() if wanted in (None, index)}
    keys = ("pool", "device", "backend", "source", "limit")
    return {
        "segments": [_segment(segment, device) for device, of in of_pools.items() for segment in of["segments"]],
        "device_traces": [[] for _ in range(max(of_pools, default=-1) + 1)],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "expandable_segments": any(of["source"] == "virtual" for of in of_pools.values()),
            "vrampool": {device: {key: of[key] for key in keys} for device, of in of_pools.items()},
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
        # Segments have no stream; where all blocks are of one stream it is named.
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
    `python -m torch.cuda._memory_viz`. The previous file is replaced completely, or stays as it was.

    Raises: `InvalidArgumentError` for a path that cannot be written.
    """
    content = pickle.dumps(snapshot(device), protocol=2)
    LIBRARY.call("file_write", os.fsencode(path), content, len(content))
