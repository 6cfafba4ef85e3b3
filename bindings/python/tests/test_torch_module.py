"""PyTorch's own interface: which module serves a version, and what programs start with it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vrampool
import vrampool.torch as vt
from vrampool.torch import _module, _settings

#: A PyTorch without CUDA, which has no memory of a GPU.
PYTORCH = '__version__ = "2.11.0"\nclass _C: pass\n'


class Version:
    def __init__(self, version: str) -> None:
        self.__version__ = version


@pytest.mark.parametrize("version", ["1.0.0", "2.999.1", "of another kind"])
def test_an_unknown_version_is_served_in_the_other_way(version: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vrampool"):
        assert not _module.install(Version(version))
    assert len(caplog.records) == 1
    assert "CUDAPluggableAllocator" in caplog.text and "no module" in caplog.text


def test_a_module_that_does_not_load_is_served_in_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch_2_11.so").write_bytes(b"no library")
    monkeypatch.setattr(_module, "__file__", str(tmp_path / "torch" / "_module.py"))
    with caplog.at_level(logging.WARNING, "vrampool"):
        assert not _module.install(Version("2.11.0"))
    assert "torch_2_11.so" in caplog.text and not vt.is_installed()


def test_settings_of_pytorchs_allocator_are_taken_over_or_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fractions: list[Any] = []

    class Cuda:
        device_count = staticmethod(lambda: 2)
        _lazy_call = staticmethod(lambda call: call())
        set_per_process_memory_fraction = staticmethod(lambda *given: fractions.append(given))

    class Torch:
        cuda = Cuda

    text = "expandable_segments:True,roundup_power2_divisions:[256:1,512:2],per_process_memory_fraction:0.5,pinned_use_background_threads:True"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
    with caplog.at_level(logging.WARNING, "vrampool"):
        _settings.take_over(Torch, has_limit=False)
        assert fractions == [(0.5, 0), (0.5, 1)]
        _settings.take_over(Torch, has_limit=True)
    assert len(fractions) == 2 and "roundup_power2_divisions have" in caplog.text


def run(folder: Path, *arguments: str, **variables: str) -> str:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(PYTORCH)
    program = folder / "program.py"
    program.write_text("import sys, vrampool.torch as v\nimport torch\nprint(v.is_configured(), sys.argv[1:], torch.__version__)\n")
    path = os.pathsep.join([str(folder), str(Path(vrampool.__file__).parents[1])])
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_runs_on_vrampool(tmp_path: Path) -> None:
    found = run(tmp_path, "-m", "vrampool", "run", "--limit", "1GiB", str(tmp_path / "program.py"), "--steps", "3")
    assert found == "True ['--steps', '3'] 2.11.0"


def test_a_module_runs_on_vrampool(tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "vrampool", "run", "-m", "program", "x") == "True ['x'] 2.11.0"


@pytest.mark.parametrize(("value", "is_configured"), [("1", True), ("limit=1GiB", True), ("0", False), ("limit=nothing", False)])
def test_the_environment_starts_it_and_breaks_no_import(tmp_path: Path, value: str, is_configured: bool) -> None:
    start = "import runpy, sys; from vrampool.torch_start import from_environment as s; s(); runpy.run_path(sys.argv.pop(1))"
    found = run(tmp_path, "-c", start, str(tmp_path / "program.py"), VRAMPOOL_TORCH=value)
    assert found == f"{is_configured} [] 2.11.0"
