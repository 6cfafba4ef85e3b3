"""The native classes: a pair of calls by many threads, objects that were not made as they should be, and the interpreter's lock."""

from __future__ import annotations

import contextvars
import weakref
from typing import Any

import pytest

import vrampool
from conftest import MIB, options_of, run
from vrampool import Pool, _native


def test_a_block_is_known_by_weak_references(host: Pool) -> None:
    block = host.allocate(100)
    seen: list[object] = []
    known = weakref.ref(block, seen.append)
    assert known() is block
    del block
    assert known() is None
    assert len(seen) == 1


def test_a_block_without_an_allocation_has_no_memory(host: Pool) -> None:
    with pytest.raises(TypeError, match=r"Pool\.allocate"):
        vrampool.Block()
    block = vrampool.Block.__new__(vrampool.Block)
    assert not block.is_live
    with pytest.raises(vrampool.InvalidPointerError, match="was freed"):
        block.free()
    with block:
        pass
    assert not hasattr(block, "__array_interface__")
    for name in ("address", "requested", "stream", "pool", "is_live"):
        with pytest.raises(AttributeError):
            setattr(block, name, 1)


def test_a_block_gets_memory_once(host: Pool) -> None:
    block = host.allocate(100)
    before = block.address
    with pytest.raises(RuntimeError, match="has memory already"):
        host._allocate_into(200, 0, block)
    assert (block.address, block.nbytes, host.stats().live_buffers) == (before, 100, 1)
    block.free()
    host._allocate_into(200, 0, block)
    assert (block.is_live, block.nbytes) == (True, 200)


def test_a_pool_is_made_once() -> None:
    made = Pool.__new__(Pool)
    with pytest.raises(RuntimeError, match="was not made"):
        made.allocate(1)
    made.__init__("host", host_capacity=64 * MIB, name="the first")  # type: ignore[misc]
    block = made.allocate(100)
    with pytest.raises(RuntimeError, match="made already"):
        made.__init__("host", host_capacity=64 * MIB)  # type: ignore[misc]
    assert (made.name, made.stats().live_buffers) == ("the first", 1)
    block.free()
    made.close()


def test_the_class_of_blocks_is_checked() -> None:
    def size(_: object) -> int:
        return 1

    class Own(vrampool.Block):
        def __new__(cls) -> Own:
            raise AssertionError

    wrong: Any
    for wrong in (int, object, Own):
        with pytest.raises(TypeError, match="inherits from Block"):
            _native.Package(wrong, size, size, contextvars.ContextVar("tags"))


def test_memory_that_is_not_kept_is_released_by_free_and_by_the_last_reference() -> None:
    with Pool("host", host_capacity=64 * MIB, source="direct", max_cached_bytes=0, magazine_bytes=0) as pool:
        for size in (100, 5 * MIB):
            pool.allocate(size).free()
            assert pool.stats().reserved_bytes == 0
            block = pool.allocate(size)
            assert pool.stats().reserved_bytes >= size
            del block
            assert (pool.stats().reserved_bytes, pool.stats().live_buffers) == (0, 0)


@pytest.mark.parametrize("act", ["block.free()", "del block", "exit(block)", "block.free(); pool.allocate(40 * MIB)"])
def test_a_call_that_waits_for_the_device_lets_python_run(act: str) -> None:
    """The device waits for a function in Python, and the call for the device."""
    options_of("simulated CUDA")
    caps = "" if "allocate" in act else ", max_cached_bytes=0"
    run(
        f"""
        import ctypes, faulthandler, sys, vrampool

        # By a function of C, which needs no lock of the interpreter's: the test fails, and does not hang.
        faulthandler.dump_traceback_later(60, exit=True)
        launch = ctypes.PyDLL("libcuda.so.1").cuLaunchHostFunc
        ran = []
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ran.append)
        exit = lambda block: block.__exit__(None, None, None)
        options = dict(source="direct", size_classes="exact", magazine_bytes=0{caps})
        with vrampool.Pool("cuda:0", **options) as pool, pool.stream() as stream:
            block = pool.allocate(32 * MIB, stream)
            # No other thread runs before a call releases the lock.
            sys.setswitchinterval(1000)
            assert launch(ctypes.c_void_p(stream.handle), work, None) == 0
            assert not ran
            {act}
            sys.setswitchinterval(0.005)
            assert ran, "the call did not wait, which is what the test is about"
        """
    )


def test_a_subinterpreter_is_refused() -> None:
    run(
        """
        import sys
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
            new, run = interpreters.create, lambda number, text: interpreters.exec(number, text)
        else:
            import _xxsubinterpreters as interpreters
            new, run = interpreters.create, interpreters.run_string
        import vrampool
        text = (
            "try:\\n    import vrampool\\n"
            "except ImportError as error:\\n    assert 'interpreter' in str(error), error\\n"
            "else:\\n    raise AssertionError('it is imported')\\n"
        )
        failed = run(new(), f"import sys; sys.path[:] = {sys.path!r}\\n{text}")
        assert failed is None, failed
        """
    )


def test_the_package_may_be_imported_again() -> None:
    run(
        """
        import sys, vrampool
        before = vrampool.Pool("host", host_capacity=64 * MIB)
        held = before.allocate(100)
        for name in [name for name in sys.modules if name.split(".")[0] == "vrampool"]:
            del sys.modules[name]
        import vrampool as again
        assert again is not vrampool
        with again.Pool("host", host_capacity=64 * MIB) as pool, pool.allocate(100) as block:
            assert type(block) is again.Block
        assert type(before.allocate(1)) is vrampool.Block
        held.free()
        """
    )
