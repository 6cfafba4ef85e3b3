#!/usr/bin/env python3
"""Fetches what a module for one minor version of PyTorch is built from: the headers of `c10`, `libc10.so` and `libc10_cuda.so`, and the
headers of CUDA, out of their wheels by range (some MB of 900), with pip and its configured index.

    fetch.py FOLDER 2.11 2.10 ...

Writes `FOLDER/2.11/include` and `FOLDER/2.11/lib`. A complete folder is left as it is.
"""

import re
import sys
import zipfile
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.models.target_python import TargetPython
from pip._internal.network.lazy_wheel import LazyZipOverHTTP
from pip._vendor.packaging.version import Version

PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(40, 4, -1)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
TORCH = re.compile(r"torch/(include/(?:c10|torch/headeronly)/.*\.\w+|lib/libc10(?:_cuda)?\.so)")
#: One version's headers serve for all: the module has handles of streams alone in its interface.
CUDA = (
    ("nvidia-cuda-runtime-cu12", "12.8", re.compile(r"nvidia/cuda_runtime/(include/\w+\.hp?p?)")),
    ("nvidia-cuda-nvcc-cu12", "12.8", re.compile(r"nvidia/cuda_nvcc/(include/crt/\w+\.\w+)")),
)
#: Files that are nearer to each other than this are read at once.
GAP = 1 << 18


class Index:
    """The wheels of pip's index."""

    def __init__(self) -> None:
        command = create_command("download")
        options, _ = command.parse_args([])
        target = TargetPython(platforms=PLATFORMS, py_version_info=(3, 12), abis=["cp312", "none"], implementation="cp")
        self.session = command._build_session(options)
        self.finder = command._build_package_finder(options, self.session, target, ignore_requires_python=True)

    def newest(self, name: str, minor: str) -> str:
        """The address of the newest wheel of this minor version."""
        found = [one for one in self.finder.find_all_candidates(name) if one.link.is_wheel and is_of(one.version, minor)]
        if not found:
            sys.exit(f"{name} {minor} is not on pip's index")
        return max(found, key=lambda one: one.version).link.url_without_fragment

    def extract(self, name: str, minor: str, files: re.Pattern[str], into: Path) -> None:
        """Writes the files of a wheel that match, under what the pattern's group says."""
        with LazyZipOverHTTP(self.newest(name, minor), self.session) as wheel, zipfile.ZipFile(wheel) as archive:
            wanted = [(one, match[1]) for one in archive.infolist() if (match := files.fullmatch(one.filename))]
            wanted.sort(key=lambda pair: pair[0].header_offset)
            runs: list[list[int]] = []
            for one, _ in wanted:
                end = one.header_offset + len(one.filename) + 1024 + one.compress_size
                if runs and one.header_offset - runs[-1][1] < GAP:
                    runs[-1][1] = end
                else:
                    runs.append([one.header_offset, end])
            for start, end in runs:
                wheel.seek(start)
                wheel.read(end - start)
            for one, place in wanted:
                path = into / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(one))


def is_of(version: Version, minor: str) -> bool:
    return f"{version.major}.{version.minor}" == minor and not version.is_prerelease


def main() -> None:
    folder, versions = Path(sys.argv[1]), sys.argv[2:]
    index = None
    for minor in versions:
        into = folder / minor
        complete = into / "complete"
        if complete.exists():
            continue
        index = index or Index()
        index.extract("torch", minor, TORCH, into)
        for name, of_cuda, files in CUDA:
            index.extract(name, of_cuda, files, into)
        complete.touch()
        print(f"PyTorch {minor}: headers and libraries are in {into}", flush=True)


main()
