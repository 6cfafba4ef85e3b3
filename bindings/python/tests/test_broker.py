"""Brokers: batches in chunks on the host device and on the simulated CUDA driver, against NumPy's results in one piece."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from conftest import MIB, skip_without

import vrampool
from vrampool import Broker, Pool
from vrampool.broker import Array, Chunk, Progress

skip_without("numpy")
np: Any = pytest.importorskip("numpy")

#: So that a batch of 100,000 runs is cut: copies through blocks of 64 KiB, and results in pageable memory.
SMALL: dict[str, Any] = {"budget": "256KiB", "staging": "64KiB", "staging_block": "64KiB", "pinned_max": 0}


def view(pool: Pool, chunk: Chunk, array: Array) -> Any:
    """A part as NumPy has it, also on the simulated CUDA driver, whose memory is the host's."""
    part = chunk[array]
    if pool.device == "host":
        return part.numpy()
    pool.synchronize(chunk.stream)

    class OnHost:
        __array_interface__ = {key: value for key, value in part.__cuda_array_interface__.items() if key != "stream"}

    return np.asarray(OnHost())


@pytest.mark.parametrize("options", [{}, SMALL, {"spill_threshold": 1}])
@pytest.mark.parametrize("streams", [1, 3])
def test_a_chunked_batch_has_the_results_of_one_in_one_piece(pool: Pool, options: dict[str, Any], streams: int) -> None:
    runs, times = 100_000, 4
    rates = np.linspace(2, 4, runs, dtype="f4")
    weights = np.array([0.25, 1], dtype="f4")
    expected = np.empty((times, runs), dtype="f4")
    state = np.full(runs, weights[0])
    for time in range(times):
        state = rates * state * (weights[1] - state)
        expected[time] = state
    totals = np.arange(runs * 2, dtype="f8").reshape(runs, 2)

    if pool.device != "host" and "budget" in options:
        # Each array of a chunk takes 2 MiB of CUDA's memory at least.
        options = {**options, "budget": "32MiB"}
    with Broker(pool, **options) as broker:
        client = broker.client("logistic", share="75%")
        array = {
            "rates": client.input("rates", (runs,), "f4"),
            "weights": client.input("weights", (2,), np.float32, axis=None),
            "states": client.output("states", (times, runs), np.dtype("f4"), axis=1),
            "totals": client.in_out("totals", (runs, 2), "=f8"),
            "scratch": client.scratch("scratch", (runs,), "f4"),
        }
        for name, values in (("rates", rates), ("weights", weights), ("totals", totals)):
            array[name].write(values)
        plan = broker.commit(streams=streams, chunk_runs=0 if options == SMALL else 30_000)
        assert plan.runs == runs and plan.chunks == -(-runs // plan.chunk_runs) > 1
        for round in (1, 2):
            seen: dict[int, tuple[int, int]] = {}
            progress: list[Progress] = []

            def work(chunk: Chunk, seen: dict[int, tuple[int, int]] = seen) -> None:
                rates, weights, states, totals, state = (view(pool, chunk, of) for of in array.values())
                assert states.shape == (times, chunk.runs) and totals.shape == (chunk.runs, 2)
                state[:] = weights[0]
                for time in range(times):
                    np.multiply(rates * state, weights[1] - state, out=state)
                    states[time] = state
                totals += 1
                seen[chunk.index] = (chunk.first, chunk.runs)

            report = broker.run(work, progress=progress.append)
            assert (report.runs, report.chunks, report.streams) == (runs, plan.chunks, plan.streams)
            assert report.copied_bytes == rates.nbytes + weights.nbytes + expected.nbytes + 2 * totals.nbytes
            assert report.nanoseconds > 0 and report.shrinks == 0
            assert [seen[index][0] for index in range(plan.chunks)] == list(range(0, runs, plan.chunk_runs))
            assert sorted(progress)[-1] == (plan.chunks, runs, runs)
            results = [np.frombuffer(array[name].read(), dtype) for name, dtype in (("states", "f4"), ("totals", "f8"))]
            assert np.array_equal(results[0].reshape(times, runs), expected)
            assert np.array_equal(results[1].reshape(runs, 2), totals + round)
            if "spill_threshold" not in options:
                assert np.array_equal(array["states"].numpy(), expected)
            else:
                with pytest.raises(vrampool.UnsupportedError, match="is in a file"):
                    array["states"].numpy()


def test_results_are_one_memory_and_outlive_all_else(host: Pool) -> None:
    given: list[dict[str, Any]] = [{}, {"pinned_max": 0}]
    for options in given:
        broker = Broker(host, **options)
        client = broker.client("one")
        numbers, squares = client.input("numbers", (1000,), "i4"), client.output("squares", (1000,), "i4")
        numbers.numpy()[:] = np.arange(1000)
        result = squares.numpy()
        for offset in (0, 1):
            numbers.numpy()[:] += offset
            broker.run(lambda chunk: np.square(chunk.numpy(numbers), out=chunk.numpy(squares)))
            assert np.array_equal(result, (np.arange(1000) + offset) ** 2)
            assert squares.numpy().ctypes.data == result.ctypes.data
        broker.close()
        broker.close()
        client.close()
        before = host.stats().live_bytes
        del numbers, squares, client, broker
        gc.collect()
        assert result.base is not None and result[30] == 31**2 and host.stats().live_bytes == before


def test_a_broker_is_in_the_statistics_of_its_pool_and_within_its_limit() -> None:
    with Pool("host", host_capacity=16 * MIB, limit=4 * MIB, size_classes="exact") as pool, Broker(pool) as broker:
        block = pool.allocate(2 * MIB)
        client = broker.client("one")
        client.scratch("x", (4 * MIB,), "u1")
        assert broker.commit().chunks == 2
        stats = broker.stats()
        held = stats["broker_held_bytes"], stats["by_client"][0]["broker_client_held_bytes"], stats["pool"]["live_bytes"]
        assert held == (2 * MIB, 2 * MIB, 2 * MIB)
        assert pool.stats().live_bytes == 4 * MIB
        broker.close()
        assert pool.stats().live_bytes == 2 * MIB
        block.free()
    with pytest.raises(vrampool.ClosedError):
        broker.stats()


def test_arrays_are_not_used_during_a_run(host: Pool) -> None:
    with Broker(host) as broker:
        client = broker.client("one")
        numbers = client.input("numbers", (100,), "f4")
        here, go = threading.Event(), threading.Event()
        chunks: list[Chunk] = []

        def work(chunk: Chunk) -> None:
            chunks.append(chunk)
            here.set()
            assert go.wait(60)

        run = threading.Thread(target=broker.run, args=(work,))
        run.start()
        assert here.wait(60)
        calls: list[Callable[[], object]] = [numbers.numpy, numbers.read, lambda: numbers.write(b"1"), broker.commit]
        calls.append(lambda: broker.run(print))
        try:
            for call in calls:
                with pytest.raises(vrampool.BusyError):
                    call()
        finally:
            go.set()
            run.join()
        assert len(numbers.numpy()) == 100
        with pytest.raises(vrampool.ClosedError, match="chunk 0 has ended"):
            chunks[0][numbers]


def test_what_callbacks_raise_ends_a_run(host: Pool) -> None:
    with Broker(host) as broker:
        client = broker.client("one")
        numbers = client.in_out("numbers", (100,), "f4")
        broker.commit(chunk_runs=10)
        seen: list[int] = []

        def work(chunk: Chunk) -> None:
            seen.append(chunk.index)
            if chunk.index == 3:
                raise LookupError("no more")

        with pytest.raises(LookupError, match="no more"):
            broker.run(work)
        assert seen == [0, 1, 2, 3]

        def progress(done: Progress) -> None:
            if done.chunks_done == 2:
                raise KeyboardInterrupt

        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            broker.run(lambda chunk: seen.append(chunk.index), progress=progress)
        assert seen == [0, 1]
        seen.clear()
        assert broker.run(lambda chunk: seen.append(chunk.index)).chunks == 10 == len(seen)
        assert len(numbers.read()) == 400


def test_wrong_arguments(host: Pool) -> None:
    error: type[Exception]
    options: dict[str, Any]
    call: Callable[[], object]
    for options, error in (
        ({"budget": "much"}, vrampool.ConfigurationError),
        ({"budget": -1}, vrampool.ConfigurationError),
        ({"budget": 1.5}, TypeError),
        ({"staging": "1MiB"}, vrampool.ConfigurationError),
        ({"spill_directory": "/nowhere"}, vrampool.ConfigurationError),
        ({"spill_directory": "a;b"}, vrampool.ConfigurationError),
    ):
        with pytest.raises(error):
            Broker(host, **options)
    with Broker(host) as broker:
        for share, error in (("moon", ValueError), ("200%", ValueError), (-1, ValueError), (None, TypeError)):
            with pytest.raises(error):
                broker.client("one", share=share)  # type: ignore[arg-type]
        client = broker.client("one", share=1 << 20)
        for arguments, options, error in (
            (("x", (10,), "U7"), {}, TypeError),
            (("x", (10,), "moon"), {}, TypeError),
            (("x", (10,), object), {}, TypeError),
            (("x", (-1,), "f4"), {}, OverflowError),
            (("x", (1.5,), "f4"), {}, TypeError),
            (("x", (0,), "f4"), {}, ValueError),
            (("x", (1 << 63, 8), "f4"), {}, ValueError),
            (("x", (1,) * 33, "f4"), {}, ValueError),
            (("x", (10,), "f4"), {"axis": 1}, ValueError),
            (("x", (10,), "f4"), {"axis": -1}, ValueError),
            (("x", (10,), "f4"), {"order": "K"}, ValueError),
            ((None, (10,), "f4"), {}, TypeError),
        ):
            with pytest.raises(error):
                client.input(*arguments, **options)
        for call in (broker.commit, lambda: broker.run(print)):
            with pytest.raises(vrampool.InvalidArgumentError, match="nothing is queued"):
                call()
        array, scratch = client.input("a", (10,), "f4"), client.scratch("s", (5,), "f4", axis=None)
        for count, offset in ((41, 0), (1, 40), (1, 1 << 63)):
            with pytest.raises(ValueError):
                array.read(offset, count)
            with pytest.raises(ValueError):
                array.write(bytes(count), offset)
        assert array.read(40) == b""
        with pytest.raises(TypeError):
            array.write(7)
        with pytest.raises(vrampool.UnsupportedError, match="scratch"):
            scratch.numpy()
        assert not hasattr(scratch, "__array_interface__")
        with Broker(host) as second:
            other = second.client("two").input("b", (10,), "f4")
            with pytest.raises(vrampool.InvalidArgumentError, match="not in the batch"):
                broker.run(lambda chunk: chunk[other])
        client.input("b", (11,), "f4")
        with pytest.raises(vrampool.InvalidArgumentError, match="`b`"):
            broker.commit()
        client.input("b", (10, 1 << 12), "f4")
        assert broker.commit().chunks == 1
        client.scratch("b", (10, 1 << 20), "f4", axis=None)
        with pytest.raises(vrampool.OutOfMemoryError):
            broker.commit()
        with pytest.raises(vrampool.ConfigurationError):
            broker.commit(streams=5000)
        with pytest.raises(OverflowError):
            broker.commit(chunk_runs=-1)
        client.close()
        with pytest.raises(vrampool.ClosedError):
            client.input("c", (1,), "f4")
    for call in (broker.commit, lambda: broker.run(print), lambda: broker.client("other")):
        with pytest.raises(vrampool.ClosedError):
            call()
    with pytest.raises(TypeError, match="cannot copy"):
        import copy

        copy.copy(array)


def test_cuda_libraries_have_the_parts(pool: Pool) -> None:
    with Broker(pool) as broker:
        client = broker.client("one")
        numbers = client.in_out("numbers", (3, 100), "<i8", axis=1, order="F")
        interfaces: list[dict[str, Any]] = []
        whole = numbers.numpy()
        assert whole.shape == (3, 100) and whole.strides == (8, 24) and whole.dtype == np.int64
        whole[:] = np.arange(300).reshape(3, 100)

        def work(chunk: Chunk) -> None:
            part, seen = chunk[numbers], view(pool, chunk, numbers)
            assert np.array_equal(seen, whole[:, chunk.first : chunk.first + chunk.runs])
            seen += 1000
            assert part.shape == (3, 40 if chunk.index < 2 else 20) and part.nbytes == 24 * part.shape[1]
            is_on_host = pool.device == "host"
            assert hasattr(part, "__array_interface__") == is_on_host
            interface = part.__array_interface__ if is_on_host else part.__cuda_array_interface__
            assert interface["data"] == (part.address, False) and interface["strides"] == (8, 24)
            assert ("stream" in interface) is not is_on_host
            if not is_on_host:
                assert interface["stream"] == chunk.stream.handle
                with pytest.raises(vrampool.UnsupportedError, match="CuPy"):
                    chunk.numpy(numbers)
            interfaces.append(interface)

        broker.commit(chunk_runs=40)
        broker.run(work)
        assert len(interfaces) == 3
        assert np.array_equal(whole, np.arange(1000, 1300).reshape(3, 100))


def test_numpy_is_needed_for_arrays_of_it_alone() -> None:
    program = f"""
import sys
sys.modules["numpy"] = None
import vrampool
with vrampool.Pool("host", host_capacity={MIB}) as pool, vrampool.Broker(pool) as broker:
    client = broker.client("one")
    array = client.in_out("a", (4,), "u1")
    array.write(b"abcd")
    assert broker.run(lambda chunk: chunk[array].address).runs == 4 and array.read() == b"abcd"
    for call in (array.numpy, lambda: client.input("b", (4,), float)):
        try:
            call()
        except vrampool.UnavailableError as error:
            assert "install numpy" in str(error)
        else:
            raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_batch_keeps_its_arrays(pool: Pool) -> None:
    """Also one whose result the program did not keep."""
    with vrampool.Broker(pool) as broker:
        client = broker.client("a")
        client.input("unused", (100,), "f4")
        client.output("lost", (100,), "f4")
        client.output("lost", (100,), "f4")
        gc.collect()
        assert broker.run(lambda chunk: None).runs == 100
        kept = weakref.ref(broker._arrays[client._handle, "unused"])
        client.close()
        gc.collect()
        assert kept() is None
