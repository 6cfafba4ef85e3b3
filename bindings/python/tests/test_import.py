"""The package needs nothing to be imported, and says what is missing when it is asked for it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vrampool

# Neither of them is found, whether it is here or not.
ABSENT = """
import sys
for name in ("torch", "cupy"):
    sys.modules[name] = None
import vrampool, vrampool.torch, vrampool.cupy, vrampool.vllm
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ABSENT + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_modules_are_imported_without_pytorch_and_cupy() -> None:
    assert run("print(vrampool.__version__)").strip() == vrampool.__version__


def test_an_import_waits_for_few_other_modules() -> None:
    """The import takes less than 20 ms; what is counted here is what it takes them for."""
    package = str(Path(vrampool.__file__).parents[1])
    program = f"""
import sys
sys.path.append({package!r})
before = set(sys.modules)
import vrampool
print(*sorted(set(sys.modules) - before))
pool = vrampool.Pool("host", host_capacity=1 << 26)
pool.allocate(1 << 20).free()
print(*sorted(set(sys.modules) - before))
"""
    # What ctypes imports itself, which differs between versions of Python.
    of_ctypes = "import sys; before = set(sys.modules); import ctypes; print(*set(sys.modules) - before)"

    def lines(program: str) -> list[str]:
        # Without `site`, which imports modules of others.
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    imported, used = lines(program)
    slow = {"ctypes", "dataclasses", "difflib", "enum", "inspect", "json", "logging", "re", "threading", "typing"}
    assert not slow & set(imported.split())
    assert len(imported.split()) <= 40, imported
    assert not (slow - set(lines(of_ctypes)[0].split())) & set(used.split())
    assert {"vrampool.torch", "vrampool.cupy", "vrampool.trace", "vrampool.vllm"}.isdisjoint(used.split())


def test_every_public_name_is_found() -> None:
    assert {*vrampool.__all__, *vrampool._SUBMODULES} <= set(dir(vrampool))
    for name in vrampool._SUBMODULES:
        assert getattr(vrampool, name).__name__ == f"vrampool.{name}"
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        _ = vrampool.unknown


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("vrampool.torch.install()", "PyTorch cannot be imported"),
        ("vrampool.torch.mem_pool('a').__enter__()", "PyTorch cannot be imported"),
        ("vrampool.torch.allocator()", "PyTorch cannot be imported"),
        ("vrampool.cupy.install()", "CuPy cannot be imported"),
        ("vrampool.vllm.CuMemAllocator.get_instance()", "PyTorch cannot be imported"),
    ],
)
def test_what_is_missing_is_named(call: str, said: str) -> None:
    program = f"try: {call}\nexcept vrampool.UnavailableError as error: print(error)"
    assert said in run(program)


def test_pytorch_without_cuda_is_named() -> None:
    program = """
import types
sys.modules["torch"] = types.SimpleNamespace(_C=types.SimpleNamespace(), __version__="2.11.0+cpu")
for refused in (vrampool.torch.allocator, vrampool.torch.mem_pool().__enter__, vrampool.vllm.CuMemAllocator.get_instance):
    try: refused()
    except vrampool.UnavailableError as error: print(error)
"""
    assert run(program).count("2.11.0+cpu is built without CUDA") == 3


def test_the_host_is_a_device_and_what_is_absent_has_a_reason() -> None:
    found = vrampool.devices()
    assert "host" in [device["backend"] for device in found["devices"]]
    assert all(absent["reason"] for absent in found["absent"])


def test_every_code_of_the_library_has_an_exception_of_its_name() -> None:
    from vrampool.errors import _BY_STATUS

    name = ctypes.CDLL(vrampool.get_library()).vrampool_status_name
    name.restype = ctypes.c_char_p
    for status, kind in _BY_STATUS.items():
        words = name(status).decode().replace("INVALID_HANDLE", "CLOSED").title().replace("_", "")
        assert kind.__name__ == f"{words}Error"
    assert name(len(_BY_STATUS) + 1) == b"UNKNOWN"


def test_c_code_finds_header_and_library(tmp_path: Path) -> None:
    header = Path(vrampool.get_include()) / "vrampool.h"
    assert "vrampool_create" in header.read_text()
    library = ctypes.CDLL(vrampool.get_library())
    library.vrampool_version.restype = ctypes.c_char_p
    assert library.vrampool_version().decode() == vrampool.__version__
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is missing")
    source = tmp_path / "program.c"
    source.write_text("#include <vrampool.h>\nconst char *version(void) { return vrampool_version(); }\n")
    command = [compiler, "-Wall", "-Werror", "-fsyntax-only", f"-I{vrampool.get_include()}", str(source)]
    subprocess.run(command, check=True)
