"""What tests share: pools on a host device, and fixtures for absent packages."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vrampool
from fake_torch import Torch
from vrampool._library import LIBRARY
from vrampool.torch import _install, _mem_pool, _module

MIB = 1 << 20


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which pytest would handle."""


def has_gpu() -> bool:
    """CUDA's driver finds a device."""
    return any(device["backend"] == "cuda" for device in vrampool.devices()["devices"])


def skip_without(*names: str) -> None:
    """Skips a test that lacks one of these (`gpu`, or a module), and fails it where `VRAMPOOL_REQUIRE` names that."""
    required = os.environ.get("VRAMPOOL_REQUIRE", "").split(",")
    for name in names:
        is_here = has_gpu() if name == "gpu" else importlib.util.find_spec(name) is not None
        if not is_here and name in required:
            pytest.fail(f"{name} is required and not here")
        if not is_here:
            pytest.skip(f"{name} is not here")


def run(program: str) -> None:
    """Runs a program in a process of its own, because an allocator is for a process. `MIB` is there."""
    text = "MIB = 1 << 20\n" + textwrap.dedent(program) + "\nprint('all is well')\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all is well\n")


def in_threads(*works: Callable[[], None]) -> None:
    """Runs each in a thread, with a switch between threads as often as the interpreter can; raises the first failure."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]


PLACES = ["host", "simulated CUDA"]


def options_of(place: str) -> dict[str, Any]:
    """Options that say where pools are: on a host device of 64 MiB; none for the simulated CUDA driver's devices of that size."""
    if place == "host":
        return {"device": "host", "host_capacity": 64 * MIB}
    if "VRAMPOOL_SIMULATOR" not in os.environ:
        pytest.skip("the simulated CUDA driver is not loaded (backends/cuda/simulator/run.sh loads it)")
    assert "memory=64MiB" in os.environ["VRAMPOOL_SIMULATOR"], "the tests count on devices of 64 MiB"
    return {}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of each place."""
    return options_of(request.param)


@pytest.fixture
def two_devices(place: dict[str, Any]) -> None:
    """Skips a test where the driver simulates one device."""
    devices = [device for device in vrampool.devices()["devices"] if device["backend"] == "cuda"]
    if not place and len(devices) < 2:
        pytest.skip("the driver simulates one device (VRAMPOOL_SIMULATOR=devices=2)")


@pytest.fixture
def host() -> Iterator[vrampool.Pool]:
    """A pool on a host device, of which no block is live when the test ends."""
    with vrampool.Pool("host", host_capacity=64 * MIB) as pool:
        yield pool
        gc.collect()
        assert pool.stats().live_buffers == 0


@pytest.fixture
def pool(place: dict[str, Any]) -> Iterator[vrampool.Pool]:
    """A pool of 32 MiB; all is released in the end.

    Tests read and write the memory by its address, which a real GPU does not allow.
    """
    with vrampool.Pool(**{"device": "cuda:0", **place}, limit=32 * MIB) as made:
        yield made
        made.trim()
        assert made.stats().live_buffers == 0


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, place: dict[str, Any]) -> Iterator[Callable[..., None]]:
    """PyTorch's pools destroyed before and after; gives `configure` for devices of `place`."""
    LIBRARY.call("torch_shutdown")
    monkeypatch.setattr(_install, "_configured", None)
    monkeypatch.setattr(_install, "_installed", None)

    def configure(**options: int | str) -> None:
        vrampool.torch.configure(**{**place, **options})

    yield configure
    LIBRARY.call("torch_shutdown")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    # A module needs PyTorch's own libraries.
    monkeypatch.setattr(_module, "path_for", lambda _: None)
    monkeypatch.setattr(_mem_pool, "_provider", None)
    monkeypatch.setattr(_mem_pool, "_pools", {})
    # Its exceptions can be thrown.
    monkeypatch.setitem(LIBRARY.plain, "torch_throws", lambda: 1)
    return fake


def torch_alloc(size: int, device: int = 0) -> int:
    address: int | None = LIBRARY.plain["torch_alloc_or_null"](size, device, None)
    if address is None:
        raise LIBRARY.last_failure() or AssertionError("no failure is known")
    return address


def torch_free(address: int, size: int, device: int = 0) -> None:
    LIBRARY.plain["torch_free"](address, size, device, None)


def raising(failure: BaseException) -> Callable[..., None]:
    """A function that raises."""

    def fail(*_: object) -> None:
        raise failure

    return fail
