"""Loads the native module, whose file has the functions of the C ABI too."""

from __future__ import annotations

import os
import sys

#: The ABI that this package is written for.
ABI = 1

#: The native module, whose file has the functions of the C ABI too.
_NATIVE = f"{__name__.rpartition('.')[0]}._native"


def _load() -> str:
    """Imports the native module from this package, or from where `VRAMPOOL_LIBRARY` says. Returns its file."""
    path = os.environ.get("VRAMPOOL_LIBRARY")
    if path:
        _load_from(path)
    try:
        from . import _native
    except ModuleNotFoundError as error:
        text = f"{_NATIVE} is missing: install vrampool, or set VRAMPOOL_LIBRARY to the module's file"
        raise ImportError(text, name=_NATIVE) from error
    path = path or str(_native.__file__)
    if (abi := getattr(_native, "ABI", None)) != ABI:
        raise ImportError(f"{path} has ABI {abi}, and this package needs {ABI}", name=_NATIVE, path=path)
    return path


def _load_from(path: str) -> None:
    import importlib.machinery
    import importlib.util

    loader = importlib.machinery.ExtensionFileLoader(_NATIVE, path)
    found = importlib.util.spec_from_file_location(_NATIVE, path, loader=loader)
    if found is None or _NATIVE in sys.modules:
        return
    try:
        module = importlib.util.module_from_spec(found)
        loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"{path} is not the native module of this vrampool: {error}", name=_NATIVE, path=path) from error
    sys.modules[_NATIVE] = module


PATH = _load()
