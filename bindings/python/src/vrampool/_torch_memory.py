"""What allocators of segments need of PyTorch: tensors over host memory, waits, and the state of its own allocator."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from . import _native
from .errors import BusyError
from .torch import _devices, _install
from .vllm_extension import PATH

_FLAG = "expandable_segments"

#: Variables of PyTorch's settings, in its order of precedence.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class TorchMemory:
    """PyTorch, whose pools may allocate segments.

    Raises: `UnavailableError` without PyTorch, `BusyError` where vrampool is PyTorch's allocator already.
    """

    def __init__(self) -> None:
        self.torch: Any = _devices.pytorch()
        if _install.is_installed():
            raise BusyError("vrampool is PyTorch's allocator already: use vrampool.torch.tag, sleep and wake_up")
        #: PyTorch's allocator that calls the functions of segments.
        self.allocator = self.torch.cuda.memory.CUDAPluggableAllocator(PATH, "my_malloc", "my_free")

    def new_pool(self) -> Any:
        """A pool of PyTorch's over segments."""
        return self.torch.cuda.MemPool(self.allocator.allocator())

    def on_host(self, address: int, size: int) -> Any:
        """Bytes of host memory, which the tensor does not keep alive, as a tensor."""
        return self.torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=self.torch.uint8)

    def synchronize(self, device: int) -> None:
        """Waits for all work of a device."""
        self._of_accelerator("synchronize")(device)

    def release_idle(self) -> None:
        """Releases unreachable tensors, and the idle memory of PyTorch's own allocator."""
        gc.collect()
        self._of_accelerator("empty_cache")()

    def _of_accelerator(self, name: str) -> Any:
        """A function of `torch.accelerator`, or of `torch.cuda` where PyTorch is too old for it."""
        return getattr(getattr(self.torch, "accelerator", None), name, None) or getattr(self.torch.cuda, name)

    def is_capturing(self) -> bool:
        return bool(self.torch.cuda.is_current_stream_capturing())

    @contextlib.contextmanager
    def without_expandable_segments(self) -> Iterator[None]:
        """Disables expandable segments, which bypass the functions of pools, within the scope."""
        settings = self._settings()
        fields = [field.strip() for field in settings.split(",") if field.strip()]
        on = [field for field in fields if field.partition(":")[0].strip() == _FLAG and field.partition(":")[2].strip().lower() in ("true", "1")]
        if not on:
            yield
            return
        # PyTorch resets each setting that the text lacks.
        off = ",".join([*(field for field in fields if field not in on), f"{_FLAG}:False"])
        with _native.Around(partial(self._set_settings, off), partial(self._set_settings, settings)):
            yield

    def _settings(self) -> str:
        """PyTorch's settings: those of its allocator, which a program may have changed, else those of the environment."""
        with contextlib.suppress(Exception):
            known = self.torch.cuda.memory._snapshot().get("allocator_settings") or {}
            for name in _VARIABLES:
                if (settings := known.get(name)) is not None:
                    return str(settings)
        return next((settings for name in _VARIABLES if (settings := os.environ.get(name))), "")

    def _set_settings(self, settings: str) -> None:
        setter = getattr(self.torch._C, "_accelerator_setAllocatorSettings", None)
        (setter or self.torch.cuda.memory._set_allocator_settings)(settings)
