"""Functions of `torch.cuda` that PyTorch refuses with a foreign allocator, answered by this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _control, _figures, _snapshot


def _segments(mempool_id: object = None, include_traces: bool = True) -> list[Any]:
    return list(_snapshot.snapshot()["segments"])


def _whole(device: object = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    return _snapshot.snapshot(device)


def _dump(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    _snapshot.dump_snapshot(filename)


#: By the names that they have in `torch.cuda.memory`, and most in `torch.cuda` too. What PyTorch makes of them
#: (`memory_allocated`, `memory_summary`, …) works then.
PATCHES: dict[str, Callable[..., Any]] = {
    "get_per_process_memory_fraction": _control.get_per_process_memory_fraction,
    "memory_stats": _figures.memory_stats,
    "memory_snapshot": _segments,
    "reset_peak_memory_stats": _figures.reset_peak_memory_stats,
    "_snapshot": _whole,
    "_dump_snapshot": _dump,
}


#: Of `torch.accelerator`, from PyTorch 2.9 on: its own reach PyTorch's unused allocator, do nothing, and say so nowhere. What
#: PyTorch makes of them there (`memory_allocated`, `max_memory_reserved`, …) works then.
ACCELERATOR: dict[str, Callable[..., Any]] = {
    "empty_cache": _control.empty_cache,
    "memory_stats": _figures.memory_stats,
    "reset_peak_memory_stats": _figures.reset_peak_memory_stats,
}


def patch_cuda(torch: Any) -> None:
    """Puts them in the place of PyTorch's."""
    if (accelerator := getattr(torch, "accelerator", None)) is not None:
        for name, function in ACCELERATOR.items():
            for module in (getattr(accelerator, "memory", None), accelerator):
                if module is not None and hasattr(module, name):
                    setattr(module, name, function)
    for name, function in PATCHES.items():
        for module in (torch.cuda.memory, torch.cuda):
            if hasattr(module, name):
                setattr(module, name, function)
