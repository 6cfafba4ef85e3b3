"""Blocks, streams and errors as other libraries and `help` see them."""

from __future__ import annotations

import ctypes
import gc
import pydoc
import sys
from typing import Any

import pytest

import vrampool
from conftest import MIB, run, skip_without
from vrampool import Pool, Stream, from_dlpack
from vrampool.stats import PoolStats


def numpy() -> Any:
    skip_without("numpy")
    import numpy

    return numpy


def test_numpy_has_a_blocks_memory_without_a_copy(host: Pool) -> None:
    np = numpy()
    block = host.allocate(1000)
    array = np.from_dlpack(block)
    assert (array.ctypes.data, array.nbytes, array.dtype) == (block.address, 1000, np.uint8)
    array[:] = 7
    assert ctypes.string_at(block.address, 1000) == b"\7" * 1000
    other = np.asarray(block)
    assert other.ctypes.data == block.address
    del other
    with pytest.raises(BufferError, match="arrays of it exist"):
        block.free()
    with block:
        pass
    assert block.is_live, "it is freed with the last array"
    part = array.view(np.float64)[10:20]
    del array, block
    gc.collect()
    assert host.stats().live_buffers == 1
    assert part.view(np.uint8).tolist() == [7] * 80
    del part


def test_an_array_outlives_its_pool_and_the_interpreters_end() -> None:
    np = numpy()
    pool = Pool("host", host_capacity="64MiB")
    array = np.from_dlpack(pool.allocate(1000))
    view = from_dlpack(pool.allocate(10))
    pool.close()
    del pool
    gc.collect()
    array[:] = 3
    ctypes.memset(view.address, 1, 10)
    assert array.sum() == 3000
    run(
        """
        import numpy, vrampool
        array = numpy.from_dlpack(vrampool.Pool("host", host_capacity="64MiB").allocate(1000))
        array[:] = 1
        class Later:
            def __del__(self, array=array):
                array[:] = 2
        later = Later()
        """
    )


def test_foreign_memory_comes_and_goes_without_a_copy(host: Pool) -> None:
    np = numpy()
    array = np.arange(100, dtype=np.int32).reshape(10, 10)
    before = sys.getrefcount(array)
    view = from_dlpack(array)
    assert (view.address, view.nbytes, len(view)) == (array.ctypes.data, 400, 400)
    assert sys.getrefcount(array) > before
    again = np.from_dlpack(view)
    assert again.ctypes.data == array.ctypes.data
    again[0] = 9
    assert array[0, 0] == 9
    assert np.from_dlpack(from_dlpack(again)).ctypes.data == array.ctypes.data
    del view, again
    gc.collect()
    assert sys.getrefcount(array) == before
    with pytest.raises(vrampool.UnsupportedError, match="not contiguous"):
        from_dlpack(array[:, ::2])
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        from_dlpack([1])
    frozen = np.arange(10)
    frozen.flags.writeable = False
    if tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1):
        view = from_dlpack(frozen)
        assert not np.asarray(view).flags.writeable
        assert not np.from_dlpack(view).flags.writeable


def test_pytorch_has_a_blocks_memory_without_a_copy(host: Pool) -> None:
    skip_without("torch")
    import torch

    block = host.allocate(1000)
    tensor = torch.from_dlpack(block)
    assert tensor.data_ptr() == block.address
    assert from_dlpack(tensor).address == block.address


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stream": 1}, ValueError),
        ({"copy": True}, BufferError),
        ({"dl_device": (2, 0)}, BufferError),
    ],
)
def test_what_dlpack_asks_and_cannot_be_is_refused(host: Pool, options: dict[str, Any], error: type[Exception]) -> None:
    with host.allocate(10) as block:
        assert block.__dlpack_device__() == (1, 0)
        block.__dlpack__(dl_device=(1, 0), copy=False, max_version=(2, 0))
        with pytest.raises(error):
            block.__dlpack__(**options)


def test_a_freed_block_has_no_interface(host: Pool) -> None:
    block = host.allocate(100)
    assert block.__array_interface__["data"] == (block.address, False)
    assert not hasattr(block, "__cuda_array_interface__")
    block.free()
    for name in ("__array_interface__", "__cuda_array_interface__"):
        with pytest.raises(AttributeError, match="was freed"):
            getattr(block, name)
    for use in (block.__dlpack__, block.__dlpack_device__, lambda: from_dlpack(block), lambda: block.record_stream(None)):
        with pytest.raises(vrampool.InvalidPointerError, match="was freed"):
            use()
    with pytest.raises(BufferError, match="was freed"):
        block.__buffer__(0)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the buffer protocol of classes in Python is of 3.12")
def test_a_host_block_is_a_buffer(host: Pool) -> None:
    block: Any = host.allocate(100)
    view = memoryview(block)
    view[:] = b"\5" * 100
    assert ctypes.string_at(block.address, 100) == b"\5" * 100
    with pytest.raises(BufferError, match="arrays of it exist"):
        block.free()
    del block
    gc.collect()
    assert bytes(view) == b"\5" * 100
    view.release()


def test_memory_of_cuda_is_ordered_by_streams(host: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrampool.memory.device_of", lambda _: ("cuda", 3))
    # The first one may have the number that is the default stream's in DLPack.
    with host.stream(), host.stream() as stream, host.allocate(100, stream) as block:
        recorded: list[Any] = []
        monkeypatch.setattr(type(block), "record_stream", lambda _, stream: recorded.append(stream))
        assert block.__dlpack_device__() == (2, 3)
        assert block.__cuda_array_interface__ == {
            "shape": (100,),
            "typestr": "|u1",
            "data": (block.address, False),
            "version": 3,
            "stream": stream.handle,
        }
        assert not hasattr(block, "__array_interface__")
        with pytest.raises(BufferError, match="CUDA"):
            block.__buffer__(0)
        for given in (None, 1, 2, 77, -1, stream.handle):
            block.__dlpack__(stream=given)
        # The consumer's stream is behind the block's own, unless it is that or there shall be no order.
        assert recorded == [0, 0, 2, 77]
        with pytest.raises(ValueError, match="ambiguous"):
            block.__dlpack__(stream=0)
        view = from_dlpack(block, stream=99)
        assert recorded[4:] == [99]
        assert view.__cuda_array_interface__["stream"] == 99
        del view
        gc.collect()


class CudaCore:
    """`cuda.core.Stream`: the protocol, and a handle that is an object."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 21

    handle = property(lambda self: (_ for _ in ()).throw(AssertionError("the protocol comes first")))


class Attribute:
    """As early implementations have it."""

    __cuda_stream__ = (0, 22)


class CuPy:
    ptr = 23


class PyTorch:
    cuda_stream = 24


class Numba:
    handle = ctypes.c_void_p(25)


class NumbaDefault:
    handle = ctypes.c_void_p(0)


class Binding:
    """`cuda.bindings.driver.CUstream`."""

    def __int__(self) -> int:
        return 26


class OfBinding:
    handle = Binding()


def test_streams_of_all_libraries_are_streams(host: Pool) -> None:
    known = [None, 20, CudaCore(), Attribute(), CuPy(), PyTorch(), Numba(), NumbaDefault(), OfBinding(), Stream(27)]
    assert [Stream.of(stream) for stream in known] == [0, 20, 21, 22, 23, 24, 25, 0, 26, 27]
    assert Stream(28).__cuda_stream__() == (0, 28)
    assert repr(Stream(28)) == "Stream(0x1c)"

    class Later:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 7, 1

    class Broken:
        __cuda_stream__ = 5

    for wrong in (Later(), Broken(), object(), "7", 1.5, True):
        for use in (Stream.of, lambda wrong: host.allocate(1, wrong)):
            with pytest.raises(TypeError, match="is not a stream"):
                use(wrong)

    class Foreign:
        def __init__(self, stream: Stream) -> None:
            self.__cuda_stream__ = lambda: (0, stream.handle)

    with host.stream() as stream:
        # Wherever a stream is taken.
        foreign = Foreign(stream)
        with host.allocate(10, foreign) as block:
            assert block.stream == stream.handle
            block.record_stream(foreign)
            block.record_stream(None)
            host.synchronize(foreign)
            block.free(foreign)
        host.retire_stream(foreign)


def test_pools_and_blocks_say_what_they_are(host: Pool) -> None:
    assert (host.device, host.closed) == ("host", False)
    block = host.allocate(1000)
    assert (len(block), block.nbytes, bool(block)) == (1000, 1000, True)
    assert bool(host.allocate(0))
    assert repr(block) == f"Block(1000 bytes at {block.address:#x})"
    assert repr(host).startswith(f"<Pool {host.name!r} on host: ")
    block.free()
    assert "freed" in repr(block)
    pool = Pool("host", host_capacity=MIB)
    pool.close()
    assert pool.closed
    assert "closed" in repr(pool)
    with pytest.raises(vrampool.ClosedError):
        _ = pool.name


def test_the_device_is_known_while_a_block_lives(pool: Pool, place: dict[str, Any]) -> None:
    expected = ("host", (1, 0)) if place else ("cuda:0", (2, 0))
    with pool.stream() as stream:
        block = pool.allocate(1000, stream)
    # Behind a stream that is destroyed by then.
    with block:
        assert (pool.device, block.__dlpack_device__()) == expected
        assert hasattr(block, "__array_interface__") == bool(place)
        assert hasattr(block, "__cuda_array_interface__") == (not place)
        assert from_dlpack(block).address == block.address
    options = {"device": "cuda:0", **place}
    with Pool(**options) as closed:
        block = closed.allocate(1000)
    assert block.__dlpack_device__() == expected[1]
    block.free()


def test_out_of_memory_has_its_numbers(host: Pool) -> None:
    with host.allocate("16MiB"):
        with pytest.raises(vrampool.OutOfMemoryError) as caught:
            host.allocate("60MiB")
        error = caught.value
        assert (error.requested, error.held, error.limit) == (60 * MIB, 16 * MIB, vrampool.UNLIMITED)
        assert error.free == 48 * MIB
        host.limit = "24MiB"
        with pytest.raises(vrampool.OutOfMemoryError) as caught:
            host.allocate("10MiB")
        assert caught.value.limit == 24 * MIB


def test_help_shows_every_statistic_and_its_unit() -> None:
    shown = pydoc.plain(pydoc.render_doc(PoolStats))
    assert PoolStats.__doc__ is not None
    for name in PoolStats._fields:
        assert f"    {name}: " in PoolStats.__doc__, name
        assert f"{name}: " in shown
    assert "bytes" in PoolStats.__doc__


@pytest.mark.parametrize("name", vrampool.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    of = getattr(vrampool, name)
    if name == "UNLIMITED":
        return
    assert of.__doc__
    if isinstance(of, type):
        for attribute, value in vars(of).items():
            if not attribute.startswith("_") and (callable(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{attribute}"


@pytest.mark.parametrize("device", [(), (1,), None, 1])
def test_a_device_that_is_no_pair_is_an_error_of_type(device: object) -> None:
    class Array:
        def __dlpack__(self, **_: object) -> None: ...
        def __dlpack_device__(self) -> object:
            return device

    with pytest.raises(vrampool.ArgumentTypeError, match="no pair"):
        from_dlpack(Array())
