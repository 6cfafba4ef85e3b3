"""Builds the native module by cargo and puts it into the wheel, with the C ABI's header."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CargoHook(BuildHookInterface):  # type: ignore[misc]
    """One module serves every Python from 3.10 on, by the stable ABI; a free-threaded one has a module of its version.

    The module's file exports the C ABI, too: the package's use by ctypes, and PyTorch's, have the same pools.

    `VRAMPOOL_PROFILE` is cargo's profile (`release`), `VRAMPOOL_FEATURES` the crate's features where the default ones are
    not wanted; the target folder is cargo's as always. `VRAMPOOL_BUILT_LIBRARY` names a module that is built already.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the module, and the tag of wheels that fit the machine, its C library, and Python."""
        if self.target_name != "wheel":
            return
        if sys.platform != "linux":
            raise SystemExit("vrampool's Python package is for Linux")
        library = self._library()
        tag, suffix = "cp310-abi3", ".abi3.so"
        if _is_free_threaded():
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            tag, suffix = f"{python}-{python}t", sysconfig.get_config_var("EXT_SUFFIX")
        build_data["pure_python"] = False
        build_data["tag"] = f"{tag}-{self._platform(library)}"
        if version == "editable":
            # Python finds the package in its sources, where the module has to be.
            self._copy(library, Path(self.root) / "src" / "vrampool" / f"_native{suffix}")
        else:
            build_data["force_include"][str(library)] = f"vrampool/_native{suffix}"
            header = Path(self.root).parent / "c" / "include" / "vrampool.h"
            build_data["force_include"][str(header)] = "vrampool/include/vrampool.h"

    @staticmethod
    def _copy(library: Path, to: Path) -> None:
        # Processes that have the one before go on with it.
        new = to.with_name(f"{to.name}.{os.getpid()}")
        shutil.copy(library, new)
        new.replace(to)

    def _library(self) -> Path:
        if built := os.environ.get("VRAMPOOL_BUILT_LIBRARY"):
            return Path(built).resolve(strict=True)
        crate = Path(self.root) / "native" / "Cargo.toml"
        if not (Path(self.root).parent / "c" / "Cargo.toml").is_file():
            raise SystemExit(f"{crate} needs the crates around it: wheels are built within vrampool's repository")
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        if cargo is None:
            raise SystemExit("cargo is not there: Rust builds the native module of this package (https://rustup.rs)")
        profile = os.environ.get("VRAMPOOL_PROFILE", "release")
        command = [cargo, "build", "--locked", "--lib", "--manifest-path", str(crate), "--profile", profile]
        command.append("--message-format=json-render-diagnostics")
        if profile == "release":
            command += ["--config", 'profile.release.strip="debuginfo"']
        if features := os.environ.get("VRAMPOOL_FEATURES"):
            command += ["--no-default-features", "--features", features]
        # The stable ABI is the same whatever Python is here.
        python = {"PYO3_PYTHON": sys.executable} if _is_free_threaded() else {"PYO3_NO_PYTHON": "1"}
        environment = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", **python}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise SystemExit(f"cargo failed: {' '.join(command)}")
        for line in reversed(done.stdout.splitlines()):
            message = json.loads(line)
            if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "vrampool_python":
                return next(Path(name) for name in message["filenames"] if name.endswith(".so"))
        raise SystemExit("cargo built no vrampool_python")

    @staticmethod
    def _platform(library: Path) -> str:
        """What the module asks of the C library, by the versions of its symbols."""
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
        if not found:
            return f"linux_{platform.machine()}"
        major, minor = max((int(major), int(minor)) for major, minor in found)
        return f"manylinux_{major}_{minor}_{platform.machine()}"


def _is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
