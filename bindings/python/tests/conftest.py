"""What tests share: pools on a host device, and fixtures for absent packages."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import timeit
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import pytest

import vrampool
from fake_mem_pool import Pools
from fake_torch import Torch
from vrampool import vllm, vllm_extension
from vrampool._library import LIBRARY
from vrampool.memory_saver import TorchMemorySaver
from vrampool.torch import _install, _mem_pool, _module
from vrampool.vllm import CuMemAllocator

MIB = 1 << 20

#: Of the segments of most tests.
SIZE = 2 * MIB


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


def under_interrupts(
    work: Callable[[], None], check: Callable[[], None], count: int, at_once: Callable[[], None] = lambda: None
) -> None:
    """Runs `work` with signals at random moments, and `check` after each run that one ended, until there were `count`.

    `at_once` is called before: while there is the exception, whose traceback refers to what the run left.
    """
    rng = random.Random(1)
    # Repeated: Python may miss a signal that comes while it looks for others, and a finalizer keeps the exception to itself.
    interrupts, again = 0, 0.01
    is_running = False

    def repeated() -> None:
        while True:
            work()

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        while frame is not None and frame.f_code is not repeated.__code__:
            frame = frame.f_back
        if frame is None:
            # Not yet there, or at its end.
            signal.setitimer(signal.ITIMER_REAL, 1e-4 if is_running else 0, again)
            return
        interrupts += 1
        # Further ones come into what the first one led to.
        if rng.random() < 0.7:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 5e-4), again)
        raise Interrupt

    def end() -> None:
        nonlocal is_running
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        duration = min(timeit.repeat(work, number=1, repeat=5))
        check()
        with mock.patch.object(sys, "unraisablehook", lambda _: None):
            while interrupts < count:
                is_running = True
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, max(5e-5, 1.2 * duration)), again)
                    repeated()
                except Interrupt:
                    end()
                    at_once()
                check()
    finally:
        end()
        signal.signal(signal.SIGALRM, before)


def at_each_instruction(
    function: Any, *arguments: Any, check: Callable[[], None], at_once: Callable[[], None] = lambda: None
) -> int:
    """Calls a function with an interrupt at one instruction of it or of the package, for each of them, and `check` after each call.

    `at_once` is as that of `under_interrupts`. Returns the number of instructions.
    """
    package = os.path.dirname(vrampool.__file__)
    count = at = 0
    tracer = sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(package) and frame.f_code is not function.__code__:
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "return"):
            count += 1
            if count == at:
                raise Interrupt
        return trace

    function(*arguments)
    with mock.patch.object(sys, "unraisablehook", lambda _: None):
        while count >= at:
            at, count = at + 1, 0
            try:
                sys.settrace(trace)
                function(*arguments)
            except Interrupt:
                sys.settrace(tracer)
                at_once()
            finally:
                sys.settrace(tracer)
            check()
    return at


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


@pytest.fixture
def pools(fresh: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pools]:
    """PyTorch's pools over segments, whose callbacks are removed in the end."""
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("atexit.register", lambda function: None)
    fresh()
    yield Pools(torch)
    vllm.forget_callbacks()


@pytest.fixture
def allocator(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuMemAllocator]:
    """vLLM's class; in the end all segments are freed: those of PyTorch's pools with the pools."""
    monkeypatch.setattr(CuMemAllocator, "instance", None)
    made = CuMemAllocator.get_instance()
    assert CuMemAllocator.get_instance() is made
    yield made
    for address in list(made.pointer_to_data):
        pools.free(address)
    made.close()
    made.close()
    for address in list(made.pointer_to_data):
        my_free(address)
    assert made.get_current_usage() == 0
    assert made.allocator_and_pools == {}


@pytest.fixture
def saver(pools: Pools) -> Iterator[TorchMemorySaver]:
    """`torch_memory_saver`; in the end all segments are freed."""
    made = TorchMemorySaver()
    yield made
    if made._saver is not None:
        for address in list(made._saver._segments.by_address):
            pools.free(address)
        made._saver.release_pools()
        gc.collect()
        assert made._saver._segments.by_address == {}


def tag_of(pool: vrampool.Pool, address: int) -> str:
    """The tag of the segment that an address is in."""
    (tag,) = [
        segment["tag"]
        for segment in pool.snapshot()["segments"]
        if segment["address"] <= address < segment["address"] + segment["bytes"]
    ]
    return str(tag)


def contents(address: int) -> bytes:
    return ctypes.string_at(address, SIZE)


def torch_alloc(size: int, device: int = 0) -> int:
    address: int | None = LIBRARY.plain["torch_alloc_or_null"](size, device, None)
    if address is None:
        raise LIBRARY.last_failure() or AssertionError("no failure is known")
    return address


def torch_free(address: int, size: int, device: int = 0) -> None:
    LIBRARY.plain["torch_free"](address, size, device, None)


_functions = ctypes.CDLL(vllm_extension.PATH)
_functions.my_malloc.restype = ctypes.c_void_p
_functions.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
_functions.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]


def my_malloc(size: int) -> int:
    """A segment, as PyTorch allocates it by vLLM's functions."""
    LIBRARY.plain["clear_error"]()
    address: int | None = _functions.my_malloc(size, 0, None)
    if address is None:
        raise LIBRARY.last_failure() or AssertionError("no failure is known")
    return address


def my_free(address: int) -> None:
    LIBRARY.plain["clear_error"]()
    _functions.my_free(address, 0, 0, None)
    if (failure := LIBRARY.last_failure()) is not None:
        raise failure


def raising(failure: BaseException) -> Callable[..., None]:
    """A function that raises."""

    def fail(*_: object) -> None:
        raise failure

    return fail
