"""Builds the C ABI by cargo and puts it into the wheel."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CargoHook(BuildHookInterface):  # type: ignore[misc]
    """One library serves every Python: it knows none, and Python loads it by ctypes.

    `VRAMPOOL_PROFILE` is cargo's profile (`release`), `VRAMPOOL_FEATURES` the crate's features where the default ones are
    not wanted; the target folder is cargo's as always. `VRAMPOOL_BUILT_LIBRARY` names a library that is built already.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the library, and the tag of wheels that fit the machine and its C library."""
        if self.target_name != "wheel":
            return
        if sys.platform != "linux":
            raise SystemExit("vrampool's Python package is for Linux")
        library = self._library()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{self._platform(library)}"
        build_data["force_include"][str(library)] = "vrampool/libvrampool_c.so"

    def _library(self) -> Path:
        if built := os.environ.get("VRAMPOOL_BUILT_LIBRARY"):
            return Path(built).resolve(strict=True)
        crate = Path(self.root).parent / "c" / "Cargo.toml"
        if not crate.is_file():
            raise SystemExit(f"{crate} is not there: wheels are built within vrampool's repository")
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        if cargo is None:
            raise SystemExit("cargo is not there: Rust builds the library of this package (https://rustup.rs)")
        profile = os.environ.get("VRAMPOOL_PROFILE", "release")
        command = [cargo, "build", "--locked", "--lib", "--manifest-path", str(crate), "--profile", profile]
        command.append("--message-format=json-render-diagnostics")
        if profile == "release":
            command += ["--config", 'profile.release.strip="debuginfo"']
        if features := os.environ.get("VRAMPOOL_FEATURES"):
            command += ["--no-default-features", "--features", features]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"cargo failed: {' '.join(command)}")
        for line in reversed(done.stdout.splitlines()):
            message = json.loads(line)
            if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "vrampool_c":
                return next(Path(name) for name in message["filenames"] if name.endswith(".so"))
        raise SystemExit("cargo built no vrampool_c")

    @staticmethod
    def _platform(library: Path) -> str:
        """What the library asks of the C library, by the versions of its symbols."""
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
        if not found:
            return f"linux_{platform.machine()}"
        major, minor = max((int(major), int(minor)) for major, minor in found)
        return f"manylinux_{major}_{minor}_{platform.machine()}"
