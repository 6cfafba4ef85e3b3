"""vLLM's plugin: vrampool's allocator in each process of vLLM, and the sleep-mode backend `vrampool`.

vLLM imports it wherever vrampool is installed, and looks for its own `cumem_allocator` among loaded files: the package's file of this name is
loaded only where `VRAMPOOL_VLLM` is set.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .errors import ConfigurationError, InvalidArgumentError

#: What `install` puts in place, in each process of vLLM: `extension` or `class`.
VARIABLE = "VRAMPOOL_VLLM"

#: The tags whose contents vLLM's levels keep.
_KEPT = {1: ("weights", "runtime", "cudagraph"), 2: ("runtime", "cudagraph")}


def register() -> None:
    """Does what `VRAMPOOL_VLLM` says, and registers the backend. vLLM may call it twice in a process.

    Raises: `ConfigurationError` for another value of the variable; `BusyError` when vLLM has used its own allocator.
    """
    if what := os.environ.get(VARIABLE):
        from . import vllm

        try:
            vllm.install(what)  # type: ignore[arg-type]
        except ConfigurationError as error:
            raise ConfigurationError(f"{VARIABLE}: {error}") from None
    try:
        factory = importlib.import_module("vllm.device_allocator.sleep_mode_backend").SleepModeBackendFactory
    except ImportError:
        # Older than backends.
        return
    if "vrampool" not in factory._registry:
        factory.register_backend("vrampool", __name__, "VrampoolBackend")


#: The class `VrampoolBackend`, once it was asked for.
_backend: type | None = None


def __getattr__(name: str) -> Any:
    """Makes `VrampoolBackend`, whose base is a class of vLLM's."""
    global _backend
    if name != "VrampoolBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _backend is None:
        base = importlib.import_module("vllm.device_allocator.sleep_mode_backend").SleepModeBackend
        _backend = type(name, (Backend, base), {"__module__": __name__})
    return _backend


class Backend:
    """Sleep by vrampool's segments: what `VrampoolBackend` has beside its base. Its state follows calls that succeed.

    Raises: `ConfigurationError` where vLLM allocates by its own extension module.
    """

    _state: str

    def __init__(self) -> None:
        super().__init__()
        used = (sys.modules.get(name) for name in ("vllm.cumem_allocator", "vllm.device_allocator.cumem"))
        if {"vrampool.vllm_extension", "vrampool.vllm"}.isdisjoint(getattr(module, "__name__", "") for module in used):
            raise ConfigurationError(
                f"vLLM allocates by its own extension module: set {VARIABLE}=extension before it starts, for the backend vrampool"
            )

    @property
    def _allocator(self) -> Any:
        return importlib.import_module("vllm.device_allocator").get_mem_allocator_instance()

    def suspend(self, level: int = 1) -> None:
        """Puts all memory to sleep, with the contents that the level keeps.

        Raises: `InvalidArgumentError` for a level other than 1 and 2.
        """
        if level not in _KEPT:
            raise InvalidArgumentError(f"level={level}: vLLM's levels of sleep are 1 and 2")
        self._allocator.sleep(offload_tags=_KEPT[level])
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Wakes these tags, and all but `weights` and `kv_cache`; all without tags."""
        after = self._state
        try:
            self._state = "RESUMING"
            self._allocator.wake_up(tags)
            after = "RUNNING"
        finally:
            self._state = after

    def discard(self, tags: tuple[str, ...]) -> None:
        """Releases these tags without their contents."""
        self._allocator.discard(tags)
        self._state = "SUSPENDED"

    @classmethod
    def preserves_communicators(cls) -> bool:
        """A sleep leaves communicators as they are."""
        return True
