"""The native module for this version of PyTorch, which implements PyTorch's own interface of an allocator."""

from __future__ import annotations

import ctypes
import logging
import os
import re
from pathlib import Path
from typing import Any

from .._library import PATH
from ..errors import BusyError

_log = logging.getLogger("vrampool")
#: Keeps it loaded.
_module: ctypes.CDLL | None = None
_IN_USE = "PyTorch's allocator is in use already"


def install(torch: Any) -> bool:
    """Installs it. Returns whether that worked; otherwise the reason is logged once.

    Raises: `BusyError` where PyTorch's allocator is in use already.
    """
    reason = _install(torch)
    if reason == _IN_USE:
        raise BusyError(f"{reason}; call vrampool.torch.install() before the first tensor on a GPU")
    if reason is not None:
        _log.warning(
            "PyTorch %s is served through CUDAPluggableAllocator, without graph trees, MemPool, sharing with other processes, and memory "
            "history: %s",
            torch.__version__,
            reason,
        )
    return reason is None


def path_for(torch: Any) -> Path | None:
    """The module for this version, if there is one."""
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    path = Path(__file__).parents[1] / "lib" / f"torch_{version[1]}_{version[2]}.so" if version else None
    return path if path is not None and path.is_file() else None


def _install(torch: Any) -> str | None:
    """Returns why not."""
    global _module
    path = path_for(torch)
    if path is None:
        return "this vrampool has no module for its version"
    try:
        module = ctypes.CDLL(str(path))
        install = module.vrampool_torch_module_install
    except (OSError, AttributeError) as error:
        return str(error)
    install.restype, install.argtypes = ctypes.c_char_p, [ctypes.c_char_p]
    reason: bytes | None = install(os.fsencode(PATH))
    if reason is None:
        _module = module
        return None
    return reason.decode("utf-8", "replace")


def is_installed() -> bool:
    """PyTorch allocates by the module."""
    return _module is not None
