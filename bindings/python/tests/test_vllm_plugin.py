"""vLLM's plugin, over stubs of the modules of vLLM that it calls."""

from __future__ import annotations

import abc
import importlib.metadata
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import vrampool
from conftest import run
from vrampool import vllm, vllm_extension, vllm_plugin


class Base(abc.ABC):
    """`SleepModeBackend`."""

    def __init__(self) -> None:
        self._state = "RUNNING"

    @abc.abstractmethod
    def suspend(self, level: int = 1) -> None: ...

    @abc.abstractmethod
    def resume(self, tags: list[str] | None = None) -> None: ...

    def state(self) -> str:
        return self._state


class Factory:
    """`SleepModeBackendFactory`."""

    def __init__(self) -> None:
        self._registry: dict[str, tuple[str, str]] = {}

    def register_backend(self, name: str, module: str, of: str) -> None:
        if name in self._registry:
            raise ValueError(f"{name} is registered")
        self._registry[name] = (module, of)


class Allocator:
    """Of vLLM's class, what the backend calls."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.failure: Exception | None = None

    def _call(self, *of: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.log.append(of)

    def sleep(self, offload_tags: tuple[str, ...]) -> None:
        self._call("sleep", offload_tags)

    def wake_up(self, tags: list[str] | None) -> None:
        self._call("wake_up", tags)

    def discard(self, tags: tuple[str, ...]) -> None:
        self._call("discard", tags)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    made, backends = Allocator(), types.ModuleType("vllm.device_allocator.sleep_mode_backend")
    package: Any = types.ModuleType("vllm.device_allocator")
    package.get_mem_allocator_instance = lambda: made
    backends.__dict__.update(SleepModeBackend=Base, SleepModeBackendFactory=Factory())
    for module in (types.ModuleType("vllm"), package, backends):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("vllm.cumem_allocator", "vllm.device_allocator.cumem"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv(vllm_plugin.VARIABLE, raising=False)
    monkeypatch.setattr(vllm_plugin, "_backend", None)
    yield made
    sys.modules.pop("vllm.cumem_allocator", None)
    sys.modules.pop("vllm.device_allocator.cumem", None)


def registry() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = sys.modules["vllm.device_allocator.sleep_mode_backend"].__dict__["SleepModeBackendFactory"]._registry
    return found


def test_the_backend_is_registered_once_and_nothing_is_replaced(allocator: Allocator) -> None:
    for _ in range(2):
        vllm_plugin.register()
    assert registry() == {"vrampool": ("vrampool.vllm_plugin", "VrampoolBackend")}
    assert "vllm.cumem_allocator" not in sys.modules
    with pytest.raises(vrampool.ConfigurationError, match="VRAMPOOL_VLLM=extension"):
        vllm_plugin.VrampoolBackend()


def test_without_the_variable_no_file_is_loaded_that_vllm_may_take_for_its_own() -> None:
    run(
        """
        import pathlib, vrampool
        from vrampool import vllm_plugin
        vllm_plugin.register()
        try: vllm_plugin.Backend()
        except vrampool.ConfigurationError: pass
        assert "/cumem_allocator." not in pathlib.Path("/proc/self/maps").read_text()
        """
    )


@pytest.mark.parametrize(
    ("what", "name", "module"),
    [("extension", "vllm.cumem_allocator", vllm_extension), ("class", "vllm.device_allocator.cumem", vllm)],
)
def test_the_variable_replaces_a_module(
    allocator: Allocator, monkeypatch: pytest.MonkeyPatch, what: str, name: str, module: types.ModuleType
) -> None:
    monkeypatch.setenv(vllm_plugin.VARIABLE, what)
    for _ in range(2):
        vllm_plugin.register()
    package, _, last = name.rpartition(".")
    assert getattr(sys.modules[package], last) is sys.modules[name] is module
    assert vllm_plugin.VrampoolBackend().state() == "RUNNING"
    monkeypatch.setenv(vllm_plugin.VARIABLE, "weights")
    with pytest.raises(vrampool.ConfigurationError, match="VRAMPOOL_VLLM: 'weights'"):
        vllm_plugin.register()
    sys.modules["vllm.device_allocator.cumem"] = sys.modules[name] = types.ModuleType("theirs")
    with pytest.raises(vrampool.BusyError, match="imported already"):
        vllm.install(what)  # type: ignore[arg-type]


def test_a_vllm_without_backends_has_the_allocator(allocator: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.sleep_mode_backend", None)
    monkeypatch.setenv(vllm_plugin.VARIABLE, "extension")
    vllm_plugin.register()
    assert sys.modules["vllm.cumem_allocator"] is vllm_extension


def test_the_state_follows_calls_that_succeed(allocator: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm.install("extension")
    backend = vllm_plugin.VrampoolBackend()
    assert Base in type(backend).__mro__
    assert backend.preserves_communicators()
    with pytest.raises(vrampool.InvalidArgumentError, match="level=3"):
        backend.suspend(3)
    backend.suspend(1)
    backend.suspend(level=2)
    assert backend.state() == "SUSPENDED"
    allocator.failure = vrampool.OutOfMemoryError("no memory")
    with pytest.raises(vrampool.OutOfMemoryError):
        backend.resume()
    assert backend.state() == "SUSPENDED"
    allocator.failure = None
    backend.resume(["weights"])
    assert backend.state() == "RUNNING"
    backend.discard(("kv_cache",))
    assert backend.state() == "SUSPENDED"
    kept = ("runtime", "cudagraph")
    assert allocator.log == [
        *(("sleep", ("weights", *kept)), ("sleep", kept)),
        *(("wake_up", ["weights"]), ("discard", ("kv_cache",))),
    ]


def test_the_package_names_the_plugin() -> None:
    try:
        points = importlib.metadata.distribution("vrampool").entry_points
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("vrampool is not installed")
    (point,) = (point for point in points if point.group == "vllm.general_plugins")
    assert point.load() is vllm_plugin.register
