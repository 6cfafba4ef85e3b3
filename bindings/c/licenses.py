#!/usr/bin/env python3
"""Writes the licenses and the list of the crates that a library links: licenses.py FOLDER [CARGO_TREE_ARGUMENT...]

FOLDER gets THIRD_PARTY_LICENSES.txt, which has each crate's version, license and license texts; vrampool.cdx.json, the same list as
a CycloneDX SBOM; and, from the toolchain if that has them, RUST_LIBRARY_LICENSES, those of the standard library. The arguments choose a library, its features and its platform as cargo does, for example --no-default-features
--features cuda --target aarch64-unknown-linux-gnu; by default the C library with its default features, for this machine. All depend
on Cargo.lock, the toolchain and the arguments alone. A crate without a license, or without a license text, is an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXT = re.compile(r"(?i)^(un)?(licen[cs]e|copying|copyright|notice)")


def cargo(*arguments: str) -> str:
    command = [os.environ.get("CARGO", "cargo"), *arguments, "--locked", "--manifest-path", str(HERE / "Cargo.toml")]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def rustc(*arguments: str) -> str:
    return subprocess.run([os.environ.get("RUSTC", "rustc"), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(arguments: list[str]) -> list[tuple[str, str]]:
    """Names and versions of all crates that are linked: macros run in the compiler, and so does what they depend on."""
    tree = cargo("tree", "--edges", "normal", "--no-dedupe", "--prefix", "depth", "--format", "\t{p}", *arguments)
    found, macro = set(), sys.maxsize
    for line in tree.splitlines():
        depth, name, version, *rest = line.split()
        if int(depth) <= macro:
            macro = int(depth) if "(proc-macro)" in rest else sys.maxsize
            if macro == sys.maxsize:
                found.add((name, version.removeprefix("v")))
    return sorted(found)


def texts_of(folder: Path) -> list[str]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXT.match(path.name) and path.suffix not in (".py", ".rs"))
    return [path.read_text(errors="replace").strip() for path in files]


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    # Of one platform, so that crates of others are not downloaded.
    target = sys.argv[sys.argv.index("--target") + 1] if "--target" in sys.argv else rustc("-vV").split("host: ")[1].split()[0]
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))
    packages = {(crate["name"], crate["version"]): crate for crate in metadata["packages"]}
    lock = (HERE / "../../Cargo.lock").read_text()
    hashes = {found.group(1, 2): found[3] for found in re.finditer(r'name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "(.+)"', lock)}
    numbers: dict[str, int] = {}
    rows, components, faults = [], [], []
    for key in linked(sys.argv[2:]):
        name, version = key
        license = packages[key]["license"]
        folder = Path(packages[key]["manifest_path"]).parent
        # The Python package's crate has the package's.
        texts = texts_of(folder) or (texts_of(folder.parent) if packages[key]["source"] is None else [])
        if not license or not texts:
            faults.append(f"{name} {version} has no license{' text' if license else ''}")
        refer = ", ".join(str(numbers.setdefault(text, len(numbers) + 1)) for text in texts)
        rows.append(f"{name} {version}: {license} (texts {refer})\n")
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
        component |= {"bom-ref": component["purl"], "licenses": [{"expression": license}]}
        components.append(component | ({"hashes": [{"alg": "SHA-256", "content": hashes[key]}]} if key in hashes else {}))
    for fault in faults:
        print(fault, file=sys.stderr)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    body = "".join(f"\n{'-' * 80}\nText {number}\n\n{text}\n" for text, number in numbers.items())
    (folder / "THIRD_PARTY_LICENSES.txt").write_text(f"Crates that this library links, and their licenses.\n\n{''.join(rows)}{body}")
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    (folder / "vrampool.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
    # Those of rustup's toolchains, or of a Linux distribution's package.
    documents = Path(rustc("--print", "sysroot").strip()) / "share/doc"
    for standard in [*documents.glob("rust/COPYRIGHT-library.html"), *sorted(documents.glob("rustc*/copyright"))][:1]:
        shutil.copyfile(standard, folder / f"RUST_LIBRARY_LICENSES{standard.suffix or '.txt'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
