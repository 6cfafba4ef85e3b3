"""The first route: vrampool as PyTorch's allocator, for the whole process."""

from __future__ import annotations

import logging
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import _options
from .._library import LIBRARY, PATH
from ..errors import BusyError, UnavailableError
from . import _module, _settings
from ._devices import has_cuda, pytorch, pytorch_of_any_build
from ._patch import patch_cuda

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import Options

#: How PyTorch's setters of hooks are called, and which function each gets.
HOOKS = {
    "set_init_fn": "torch_init",
    "set_reset_fn": "torch_reset",
    "set_memory_fraction_fn": "torch_memory_fraction",
    "set_base_alloc_fn": "torch_base_alloc",
    "set_record_stream_fn": "torch_record_stream",
    "set_begin_allocate_to_pool": "torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "torch_end_allocate_to_pool",
    "set_release_pool": "torch_release_pool",
}

_log = logging.getLogger("vrampool")
_lock = threading.Lock()
#: What pools were configured as; `None` before that.
_configured: str | None = None
#: What PyTorch allocates by, once it is so.
_installed: Any = None


def configure(*, device: str | None = None, **options: Unpack[Options]) -> None:
    """Says how the pools are to be that PyTorch gets, one for each device: as `vrampool.Pool`'s arguments say.

    `install` and `mem_pool` call this; call it yourself only before `mem_pool`. `device` is a pattern in which `{}` is the
    device's number, `cuda:{}` by default; `name` may have it too. Saying the same twice is fine.

    Raises: `BusyError` when a pool is there already or was configured in another way; `ConfigurationError` for what cannot
    be.
    """
    with _lock:
        _configure(_options.text({"device": device, **options}))


def _configure(text: str) -> None:
    global _configured
    if _configured == text:
        return
    if _configured is not None:
        raise BusyError(f"PyTorch's pools are configured already, as {_configured!r}; not again as {text!r}")
    LIBRARY.call("torch_configure", text.encode())
    _configured = text


def is_configured() -> bool:
    """`configure` was called, or what calls it."""
    return _configured is not None


def _check_throws(torch: ModuleType) -> None:
    """That an out-of-memory can be PyTorch's exception: PyTorch takes null from its allocator for memory at address 0.

    Raises: `UnavailableError`.
    """
    if not LIBRARY.plain["torch_throws"]():
        raise UnavailableError(
            f"PyTorch {torch.__version__} cannot receive an out-of-memory error here: its libc10 was not found, or has the C++ ABI from before "
            "2.7 (PyPI's wheels up to 2.6). Use PyTorch 2.7 or later, a build with torch.compiled_with_cxx11_abi(), or "
            "vrampool.torch.mem_pool()"
        )


def allocator() -> Any:
    """A `torch.cuda.memory.CUDAPluggableAllocator` of vrampool's with all hooks that PyTorch has: what `install` installs.

    Raises: `UnavailableError` where PyTorch cannot receive an out-of-memory error (see `install`).
    """
    _check_throws(pytorch())
    return _pluggable("vrampool_torch_alloc")


def provider() -> Any:
    """The same for a `torch.cuda.MemPool`, below PyTorch's own allocator: that frees its cache and asks again where it gets null."""
    return _pluggable("vrampool_torch_alloc_or_null")


def _pluggable(alloc: str) -> Any:
    pluggable = pytorch().cuda.memory.CUDAPluggableAllocator(PATH, alloc, "vrampool_torch_free")
    of = pluggable.allocator()
    if absent := [setter for setter in HOOKS if not hasattr(of, setter)]:
        _log.warning("this PyTorch has no %s; the features that need them do not work", ", ".join(absent))
    for setter in HOOKS.keys() - absent:
        getattr(of, setter)(LIBRARY.address(HOOKS[setter]))
    return pluggable


def install(*, device: str | None = None, patch: bool = True, **options: Unpack[Options]) -> None:
    """Makes vrampool the allocator of all of PyTorch's CUDA memory, before PyTorch's first use of CUDA.

    Args:
        device: as `configure` takes it.
        options: those of `vrampool.Pool`, for each device.
        patch: without PyTorch's own interface (see below), functions of `torch.cuda` that PyTorch refuses with a foreign allocator
            (`memory_stats`, `memory_summary`, `memory_snapshot`, `reset_peak_memory_stats`, …) answer by this package.

    For the versions of PyTorch that the package has a module for, vrampool implements PyTorch's own interface of an allocator, and all
    of `torch.cuda` works. For others it goes by `CUDAPluggableAllocator`, and a warning states what does not work then.

    Installing twice with the same options is fine. Without a GPU, programs run as on PyTorch alone: statistics are 0 or empty. A PyTorch
    that is built without CUDA is left as it is, because it has no memory of a GPU; the options are checked nevertheless.

    Raises: `UnavailableError` without PyTorch, and for a PyTorch whose exceptions cannot be thrown: PyPI's wheels
    up to 2.6, and others with the C++ ABI of that time. 2.7 and later work. `BusyError` after the first allocation, or installed in another
    way.
    """
    global _installed
    text = _options.text({"device": device, **options})
    torch = pytorch_of_any_build()
    if not has_cuda(torch):
        with _lock:
            _configure(text)
        _log.info("PyTorch %s is built without CUDA, so vrampool has nothing to allocate for it", torch.__version__)
        return
    with _lock:
        if _installed is not None:
            # Equal, or else it is refused there.
            _configure(text)
            return
        if torch.cuda.is_initialized():
            raise BusyError(
                "PyTorch uses CUDA already; call vrampool.torch.install() before the first tensor on a GPU"
            )
        if _module.path_for(torch) is None:
            _check_throws(torch)
        _configure(text)
        if _module.install(torch):
            _installed = _module
            _settings.take_over(torch, options.get("limit") is not None)
            return
        pluggable = allocator()
        try:
            torch.cuda.memory.change_current_allocator(pluggable)
        except RuntimeError as error:
            raise BusyError(f"PyTorch's allocator is in use already: {error}") from error
        _installed = pluggable
    if patch:
        patch_cuda(torch)


def is_installed() -> bool:
    """`install` was called, and PyTorch allocates by vrampool."""
    return _installed is not None
