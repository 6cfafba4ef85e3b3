"""vrampool below PyTorch by environment: `VRAMPOOL_TORCH=1`, or options as in `VRAMPOOL_TORCH="limit=60GiB;metrics=127.0.0.1:9184"`.

`vrampool_torch.pth` of the package calls `from_environment` when Python starts, where the variable is set. PyTorch is not imported by
that: it has vrampool once the program imports it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType

VARIABLE = "VRAMPOOL_TORCH"
_OFF = ("", "0", "off", "false", "no")


def from_environment() -> None:
    """As `start`, with the variable's options. Reports a failure, and never raises."""
    given = os.environ.get(VARIABLE, "")
    if given.lower() not in _OFF:
        start("" if given in ("1", "on", "true", "yes") else given)


def start(options: str = "") -> None:
    """Installs vrampool as soon as PyTorch is imported."""
    if "torch" in sys.modules:
        _install(options)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(options))


def _install(options: str) -> None:
    try:
        import vrampool.torch

        pairs = [pair.partition("=") for pair in options.split(";") if pair.strip()]
        given = {key.strip(): value.strip() for key, _, value in pairs}
        metrics = given.pop("metrics", None)
        vrampool.torch.install(**given)  # type: ignore[arg-type]
        if metrics is not None:
            vrampool.torch.start_metrics(metrics)
    except Exception as error:
        logging.getLogger("vrampool").warning("PyTorch goes on without vrampool: %s", error)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds PyTorch as others do, and installs vrampool after its import."""

    def __init__(self, options: str) -> None:
        self.options = options

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        # Once: later imports find the module.
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader, self.options)
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, options: str) -> None:
        self.loader, self.options = loader, options

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        _install(self.options)
