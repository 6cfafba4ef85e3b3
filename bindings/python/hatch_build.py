"""Builds the native module and the library of vLLM's functions by cargo and puts them into the wheel, with the C ABI's header."""

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


#: The folder of licenses, below this one and in the wheel's metadata.
THIRD_PARTY = "third-party"


class CargoHook(BuildHookInterface):  # type: ignore[misc]
    """One module serves every Python from 3.10 on, by the stable ABI; a free-threaded one has a module of its version.

    The module's file exports the C ABI, too: the package's use by ctypes, and PyTorch's, have the same pools.

    The wheel has the licenses of all linked crates, and their list as an SBOM.

    `VRAMPOOL_PROFILE` is cargo's profile (`release`), `VRAMPOOL_FEATURES` the crate's features where the default ones are
    not wanted; the target folder is cargo's as always. `VRAMPOOL_BUILT_LIBRARY` names a module that is built already, with
    `libcumem_allocator.so` beside it.
    `VRAMPOOL_TORCH_MODULES` is a folder with the modules for PyTorch's versions that torch_module/build.sh built.
    `VRAMPOOL_TARGET` is Rust's name of another platform, and `VRAMPOOL_GLIBC`, as in `2.28`, the C library that the module is
    linked for, by cargo-zigbuild. `VRAMPOOL_CARGO_ARGUMENTS` are further arguments of cargo.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the module, and the tag of wheels that fit the machine, its C library, and Python."""
        if self.target_name != "wheel":
            raise SystemExit("there is no source distribution, which would lack the crates: build a wheel (python -m build --wheel)")
        if sys.platform != "linux":
            raise SystemExit("vrampool's Python package is for Linux")
        library, functions = self._libraries()
        tag, suffix = "cp310-abi3", ".abi3.so"
        if _is_free_threaded():
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            tag, suffix = f"{python}-{python}t", sysconfig.get_config_var("EXT_SUFFIX")
        build_data["pure_python"] = False
        build_data["tag"] = f"{tag}-{self._platform(library)}"
        if version == "editable":
            # Python finds the package in its sources, where the module has to be.
            package = Path(self.root) / "src" / "vrampool"
            self._copy(library, package / f"_native{suffix}")
            (package / "lib").mkdir(exist_ok=True)
            self._copy(functions, package / "lib" / "cumem_allocator.so")
        else:
            build_data["force_include"][str(library)] = f"vrampool/_native{suffix}"
            build_data["force_include"][str(functions)] = "vrampool/lib/cumem_allocator.so"
            build_data["force_include"][str(Path(self.root) / "src" / "vrampool_torch.pth")] = "vrampool_torch.pth"
            if modules := os.environ.get("VRAMPOOL_TORCH_MODULES"):
                for module in sorted(Path(modules).resolve(strict=True).glob("torch_*.so")):
                    build_data["force_include"][str(module)] = f"vrampool/lib/{module.name}"
            header = Path(self.root).parent / "c" / "include" / "vrampool.h"
            build_data["force_include"][str(header)] = "vrampool/include/vrampool.h"
            self._add_licenses(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the list of licenses, which the wheel has."""
        shutil.rmtree(Path(self.root) / THIRD_PARTY, ignore_errors=True)

    def _add_licenses(self, build_data: dict[str, Any]) -> None:
        """Adds the crates' licenses and the SBOM, by the script that the C library's package uses."""
        folder = Path(self.root) / THIRD_PARTY
        script = Path(self.root).parent / "c" / "licenses.py"
        command = [
            sys.executable,
            str(script),
            str(folder),
            "--package",
            "vrampool-python",
            *_features(),
            "--target",
            _target(),
        ]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"the licenses of the crates are not complete: {' '.join(command)}")
        build_data["sbom_files"].append(f"{THIRD_PARTY}/vrampool.cdx.json")
        # The metadata name each of them. Hatchling found the others before this hook ran.
        texts = sorted(path.name for path in folder.iterdir() if path.suffix != ".json")
        self.metadata.core.license_files.extend(f"{THIRD_PARTY}/{name}" for name in texts)

    @staticmethod
    def _copy(library: Path, to: Path) -> None:
        # Processes that have the one before go on with it.
        new = to.with_name(f"{to.name}.{os.getpid()}")
        shutil.copy(library, new)
        new.replace(to)

    def _libraries(self) -> tuple[Path, Path]:
        """The native module, and the library of vLLM's functions."""
        if built := os.environ.get("VRAMPOOL_BUILT_LIBRARY"):
            module = Path(built).resolve(strict=True)
            return module, module.with_name("libcumem_allocator.so").resolve(strict=True)
        module = self._build("native", "vrampool_python", *_features())
        return module, self._build("cumem_allocator", "cumem_allocator")

    def _build(self, folder: str, library: str, *features: str) -> Path:
        crate = Path(self.root) / folder / "Cargo.toml"
        if not (Path(self.root).parent / "c" / "Cargo.toml").is_file():
            raise SystemExit(f"{crate} needs the crates around it: wheels are built within vrampool's repository")
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        if cargo is None:
            raise SystemExit("cargo is not installed: Rust builds the native module of this package (https://rustup.rs)")
        profile = os.environ.get("VRAMPOOL_PROFILE", "release")
        target = os.environ.get("VRAMPOOL_TARGET") or (_target() if _glibc() else "")
        if glibc := _glibc():
            command = [cargo, "zigbuild", "--target", f"{target}.{glibc}"]
        else:
            command = [cargo, "build", *(["--target", target] if target else [])]
        command += ["--locked", "--lib", "--manifest-path", str(crate), "--profile", profile, *features]
        command += ["--message-format=json-render-diagnostics", *os.environ.get("VRAMPOOL_CARGO_ARGUMENTS", "").split()]
        # The stable ABI is the same whatever Python is here.
        python = {"PYO3_PYTHON": sys.executable} if _is_free_threaded() else {"PYO3_NO_PYTHON": "1"}
        environment = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", **python}
        if profile == "release":
            # All crates at once, which then reach each other without tables of addresses: 2 to 4 % of a pair.
            command += ["--config", 'profile.release.strip="debuginfo"', "--config", 'profile.release.lto="fat"']
            environment |= self._without_paths(environment)
            # These flags are others than those of `cargo build`, which would build everything anew after this.
            command += [
                "--target-dir",
                str(Path(environment.get("CARGO_TARGET_DIR") or self._repository() / "target") / "python"),
            ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise SystemExit(f"cargo failed: {' '.join(command)}")
        for line in reversed(done.stdout.splitlines()):
            message = json.loads(line)
            if message.get("reason") == "compiler-artifact" and message["target"]["name"] == library:
                return next(Path(name) for name in message["filenames"] if name.endswith(".so"))
        raise SystemExit(f"cargo built no {library}")

    def _repository(self) -> Path:
        return Path(self.root).resolve().parents[1]

    def _without_paths(self, environment: dict[str, str]) -> dict[str, str]:
        """Flags of rustc's that leave folders of this machine out of messages in the module."""
        registry = Path(environment.get("CARGO_HOME") or Path.home() / ".cargo") / "registry" / "src"
        folders = {registry: "registry", self._repository(): "vrampool"}
        known = environment.get("CARGO_ENCODED_RUSTFLAGS", "\x1f".join(environment.get("RUSTFLAGS", "").split()))
        flags = [*filter(None, [known]), *(f"--remap-path-prefix={folder}={name}" for folder, name in folders.items())]
        return {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}

    @staticmethod
    def _platform(library: Path) -> str:
        """What the module asks of the C library, by the versions of its symbols; at least what it was linked for."""
        machine = _target().split("-")[0]
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
        if not found:
            return f"linux_{machine}"
        needed = max((int(major), int(minor)) for major, minor in found)
        if glibc := _glibc():
            major, minor = (int(part) for part in glibc.split("."))
            if needed > (major, minor):
                raise SystemExit(f"{library} needs the C library {needed[0]}.{needed[1]}, and is to run with {glibc}")
            needed = (major, minor)
        return f"manylinux_{needed[0]}_{needed[1]}_{machine}"


def _target() -> str:
    """Rust's name of the platform that the module is for."""
    return os.environ.get("VRAMPOOL_TARGET") or f"{platform.machine()}-unknown-linux-gnu"


def _glibc() -> str:
    return os.environ.get("VRAMPOOL_GLIBC", "")


def _features() -> list[str]:
    features = os.environ.get("VRAMPOOL_FEATURES")
    return ["--no-default-features", "--features", features] if features else []


def _is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
