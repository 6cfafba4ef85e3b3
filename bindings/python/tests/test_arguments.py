"""Arguments: the same sizes everywhere, and what cannot be is a `TypeError`, `ValueError` or `OverflowError`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vrampool
import vrampool.cupy
import vrampool.torch
from conftest import MIB
from fake_cupy import CuPy
from fake_torch import Torch
from vrampool import Pool, _arguments


class Index:
    """As NumPy's integers."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def limit_of(pool: Pool, size: Any) -> int:
    pool.limit = size
    return pool.limit


#: Each way in which a size is given; returns what became of it.
WAYS: dict[str, Callable[[Pool, Any], int]] = {
    "allocate": lambda pool, size: pool.allocate(size).requested,
    "limit": limit_of,
    "option": lambda _, size: Pool("host", host_capacity="64MiB", limit=size).limit,
    "trim": lambda pool, size: [pool.trim(size), 4 * MIB][1],
    "argument": lambda _, size: _arguments.size(size),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [4 * MIB, "4MiB", " 4 mib ", "4096KiB", str(4 * MIB), "4Mi", Index(4 * MIB), "4194.304kB"])
def test_sizes_are_the_same_everywhere(host: Pool, way: str, size: Any) -> None:
    assert WAYS[way](host, size) == 4 * MIB


@pytest.mark.parametrize("text", ["7", "7B", "1.5KiB", "2k", "3MB", "1.25GiB", "1TiB", "0", "18446744073709551614"])
def test_text_is_read_as_the_library_reads_it(text: str) -> None:
    read = Pool("host", host_capacity="64MiB", source="direct", budget=text).stats().budget_bytes
    assert _arguments.size(text) == read


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (1.5, TypeError),
        (2.0, TypeError),
        (True, TypeError),
        (b"1MiB", TypeError),
        ([1], TypeError),
        (-1, ValueError),
        (Index(-1), ValueError),
        ("-1", ValueError),
        ("much", ValueError),
        ("1XiB", ValueError),
        ("4MiB\0", ValueError),
        ("", ValueError),
        (2**64, OverflowError),
        (2**200, OverflowError),
        ("17EiB", (OverflowError, vrampool.ConfigurationError)),
    ],
)
def test_what_is_no_size_is_refused_everywhere(host: Pool, way: str, wrong: Any, error: Any) -> None:
    with pytest.raises(error) as caught:
        WAYS[way](host, wrong)
    assert isinstance(caught.value, vrampool.Error), "one class catches all of them"
    assert host.stats().live_buffers == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.allocate(),
        lambda pool: pool.tag(5).__enter__(),
        lambda pool: pool.tag("a\0b").__enter__(),
        lambda pool: pool.is_asleep("a\0b"),
        lambda pool: vrampool.torch._devices.device_index(2**32),
        lambda pool: vrampool.torch._devices.device_index(-(2**32)),
        lambda pool: pool.sleep(["a\0b"]),
        lambda pool: pool.wake([5]),
        lambda pool: Pool("host\0"),
        lambda pool: Pool("host", name="a\0b"),
        lambda pool: vrampool.start_metrics("127.0.0.1\0:0"),
        lambda pool: vrampool.trace.load("a\0b"),
        lambda pool: vrampool.trace.record(pool, events=1.5).__enter__(),  # type: ignore[arg-type]
        lambda pool: pool.allocate(1, -1),
        lambda pool: pool.allocate(1, 1.5),
        lambda pool: pool.allocate(1, "0"),
        lambda pool: pool.allocate(1, 2**64),
        lambda pool: vrampool.Stream("7"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_argument_is_refused(host: Pool, call: Callable[[Pool], Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        call(host)


@pytest.mark.parametrize("call", ["Pool", "cupy.install", "cupy.CuPyAllocator", "torch.install", "torch.configure"])
def test_a_misspelt_keyword_is_a_type_error_that_names_the_right_one(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", CuPy())
    monkeypatch.setitem(sys.modules, "torch", Torch())
    function: Any = vrampool
    for name in call.split("."):
        function = getattr(function, name)
    with pytest.raises(TypeError, match="'limt': did you mean 'limit'"):
        function(limt="1GiB")


def test_a_file_that_is_not_the_module_is_an_import_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "libother.so"
    path.write_bytes(b"no library")
    done = subprocess.run(
        [sys.executable, "-c", "import vrampool"],
        env={"VRAMPOOL_LIBRARY": str(path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"ImportError: {path}" in done.stderr
