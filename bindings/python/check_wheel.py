#!/usr/bin/env python3
"""Checks the contents of wheels: check_wheel.py [--any-path] WHEEL...

* The licenses of the package, of the linked crates and of Rust's standard library are named in the metadata and present.
* The SBOM is CycloneDX, and lists the crates with version, license and checksum.
* The module, the library of vLLM's functions, the header, the types and their marker, and the file for Python's start are present.
* A module for a version of PyTorch has less than 500 KB.
* No file has the path of a folder of the machine that built it, unless `--any-path` is given.
* The module has no unwinder of its own: exceptions of C++ are thrown through it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    *("vrampool/__init__.py", "vrampool/_native.pyi", "vrampool/py.typed", "vrampool/include/vrampool.h"),
    "vrampool/lib/cumem_allocator.so",
    "vrampool_torch.pth",
)
LICENSES = ("LICENSE-APACHE", "LICENSE-MIT", "third-party/THIRD_PARTY_LICENSES.txt")


def faults_of(wheel: Path, is_any_path_fine: bool) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    info = next(name.split("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(files[f"{info}/METADATA"].decode())
    named = metadata.get_all("License-File", [])
    faults = [f"{name} is missing" for name in FILES if name not in files]
    faults += [f"the metadata lack License-File: {name}" for name in LICENSES if name not in named]
    faults += [f"the license {name} is missing" for name in named if not files.get(f"{info}/licenses/{name}")]
    if not any("RUST_LIBRARY_LICENSES" in name for name in named):
        faults.append("the metadata lack the licenses of Rust's standard library")
    faults += sbom_faults(files.get(f"{info}/sboms/vrampool.cdx.json", b"{}"))
    for_torch = [name for name in files if re.fullmatch(r"vrampool/lib/torch_.*so", name)]
    faults += [f"{name} has {len(files[name])} bytes" for name in for_torch if len(files[name]) >= 500_000]
    modules = [name for name in files if re.fullmatch(r"vrampool/_native\..*so", name)]
    if len(modules) != 1:
        faults.append(f"there is not one native module: {modules}")
    # A home that is the root is in every path.
    folders = {ROOT, Path.home(), Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")} - {Path("/")}
    if is_any_path_fine:
        folders = set()
    for name, content in files.items():
        for folder in folders:
            if re.search(re.escape(f"{folder}/".encode()), content):
                faults.append(f"{name} has the path {folder}")
    for name in modules:
        if b"libgcc_s.so.1" not in files[name]:
            faults.append(f"{name} does not use the unwinder of libgcc_s")
    return faults


def sbom_faults(content: bytes) -> list[str]:
    bom = json.loads(content)
    if bom.get("bomFormat") != "CycloneDX":
        return ["there is no SBOM of CycloneDX"]
    components = {component["name"]: component for component in bom["components"]}
    faults = [f"the SBOM lacks {name}" for name in ("vrampool", "vrampool-python", "pyo3") if name not in components]
    for name, component in components.items():
        is_own = name == "vrampool" or name.startswith("vrampool-")
        if not component["version"] or not component["licenses"] or not (is_own or component.get("hashes")):
            faults.append(f"the SBOM lacks version, license or checksum of {name}")
    return faults


def main() -> int:
    option = "--any-path"
    wheels = [argument for argument in sys.argv[1:] if argument != option]
    if not wheels:
        print(__doc__, file=sys.stderr)
        return 2
    faults = [f"{wheel}: {fault}" for wheel in wheels for fault in faults_of(Path(wheel), option in sys.argv)]
    print("\n".join(faults) or f"{len(wheels)} wheel(s): licenses, SBOM and paths are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
