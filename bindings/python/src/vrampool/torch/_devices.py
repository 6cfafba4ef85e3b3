"""PyTorch, its devices, and the pools that they have."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from .. import _arguments, _native
from .._library import LIBRARY
from ..errors import UnavailableError
from ..pool import Pool


def pytorch() -> ModuleType:
    """PyTorch.

    Raises: `UnavailableError` when it is not installed, or is built without CUDA.
    """
    torch = pytorch_of_any_build()
    if not has_cuda(torch):
        raise UnavailableError(f"PyTorch {torch.__version__} is built without CUDA")
    return torch


def pytorch_of_any_build() -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UnavailableError(f"PyTorch cannot be imported: {error}") from error


def has_cuda(torch: Any) -> bool:
    """Whether it is built with CUDA; a GPU is another question."""
    return hasattr(torch._C, "_cuda_customAllocator")


def device_index(device: object = None) -> int:
    """The number of a device as PyTorch takes them: a number, `"cuda:1"`, a `torch.device`.

    Without any it is PyTorch's current one, once it uses CUDA, else 0: asking opens no device.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return _arguments.number(device, "device", 32, signed=True)
    index: int = 0
    if device is not None:
        index = pytorch().cuda._utils._get_device_index(device, optional=True)
    elif (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        index = torch.cuda.current_device()
    return index


def pool(device: object = None) -> Pool:
    """The pool of a device of PyTorch's, made if there is none.

    Raises: `UnavailableError` where there is no such device.
    """
    return Pool.of_handle(LIBRARY.number("torch_pool", device_index(device)))


def pool_if_any(device: object = None) -> Pool | None:
    """The pool of a device of PyTorch's; `None` where there is none yet. Opens no device."""
    return pools().get(device_index(device))


def pools() -> dict[int, Pool]:
    """The pools of PyTorch's devices that have one, by the device's number. Makes none."""
    return {of["device"]: Pool.of_handle(of["pool"]) for of in LIBRARY.json("torch_pools")}


def tag(name: str, device: object = None) -> _native.Scope:
    """What this thread allocates within has this tag, and sleeps and wakes with it. Scopes nest; outside it is `default`.

    Only this thread's: gradients come from a thread of autograd's, and have the tag `default`. A scope ends where it is left, in
    whatever thread that is.
    """
    return pool(device).tag(name)
