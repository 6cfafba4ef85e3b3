"""Pools of one's own, on the host device."""

from __future__ import annotations

import ctypes
import doctest
import logging
import urllib.request

import pytest

import vrampool
import vrampool.trace
from conftest import MIB
from vrampool import Pool
from vrampool._abi import LIBRARY, LogCallback


def test_a_block_is_memory_and_comes_back(pool: Pool) -> None:
    with pool.allocate(1000) as block:
        assert block.requested == 1000
        assert block.bytes >= 1000
        ctypes.memset(block.address, 7, 1000)
        assert ctypes.string_at(block.address, 1000) == b"\7" * 1000
        assert pool.stats().requested_bytes == 1000
        address = block.address
    assert not block.is_live
    assert pool.stats().live_bytes == 0
    with pool.allocate(1000) as again:
        assert again.address == address
    pool.allocate(1000).free()
    assert (pool.stats().served_by_bucket, pool.stats().source_allocations) == (2, 1)
    assert pool.stats().hit_rate == pool.stats().bucket_hit_rate == 2 / 3


def test_a_block_is_freed_once(pool: Pool) -> None:
    block = pool.allocate(1)
    block.free()
    with pytest.raises(vrampool.InvalidPointerError, match="was freed"):
        block.free()
    with pytest.raises(vrampool.InvalidPointerError, match="was freed"):
        _ = block.bytes
    with pytest.raises(vrampool.InvalidPointerError):
        vrampool.block_at(block.address)


def test_what_is_known_of_an_address(pool: Pool) -> None:
    with pool.allocate(3000) as block:
        known = vrampool.block_at(block.address)
        assert (known.address, known.requested, known.pool) == (block.address, 3000, pool.handle)
        assert known.bytes == block.bytes
        with pytest.raises(vrampool.InvalidPointerError):
            vrampool.block_at(block.address + 1)


def test_the_limit_is_hard_and_says_so(pool: Pool) -> None:
    with pool.allocate(20 * MIB):
        with pytest.raises(vrampool.OutOfMemoryError, match="raise `limit`") as caught:
            pool.allocate(20 * MIB)
        assert isinstance(caught.value, MemoryError)
        assert pool.stats().failed_by_limit == 1
        pool.limit = 48 * MIB
        pool.allocate(20 * MIB).free()
        pool.limit = 0
        with pytest.raises(vrampool.OutOfMemoryError):
            pool.allocate(20 * MIB)
    pool.limit = vrampool.UNLIMITED
    assert pool.limit == vrampool.UNLIMITED


def test_tags_sleep_and_wake_with_their_contents(pool: Pool) -> None:
    with pool.tag("weights"):
        weights = pool.allocate(3 * MIB)
        with pool.tag("kv_cache"):
            cache = pool.allocate(2 * MIB)
    scratch = pool.allocate(MIB)
    ctypes.memset(weights.address, 5, 3 * MIB)
    before = pool.memory_info()[0]
    report = pool.sleep("weights")
    assert report.copied_bytes == 3 * MIB
    assert report.discarded_bytes == 3 * MIB
    assert report.physical_bytes >= 6 * MIB
    assert pool.memory_info()[0] == before + report.physical_bytes
    assert [pool.is_asleep(tag) for tag in ("weights", "kv_cache", "default")] == [True] * 3
    assert pool.stats().backup_bytes == 3 * MIB
    assert pool.sleep("weights").no_op
    for call in (pool.sleep, pool.discard, pool.wake, pool.is_asleep, pool.sleep_tags):
        with pytest.raises(vrampool.InvalidArgumentError, match="`wieghts`.*cudagraph, default, kv_cache, runtime, weights"):
            call("wieghts")
    with pytest.raises(vrampool.AsleepError):
        pool.allocate(1)
    # What is internal to a program wakes with whatever does.
    pool.wake([])
    assert [pool.is_asleep(tag) for tag in ("weights", "kv_cache", "default")] == [True, True, False]
    pool.wake(["weights"])
    assert [pool.is_asleep(tag) for tag in ("weights", "kv_cache", "default")] == [False, True, False]
    assert ctypes.string_at(weights.address, 3 * MIB) == b"\5" * (3 * MIB)
    pool.wake()
    assert pool.discard("kv_cache").discarded_bytes == 2 * MIB
    assert pool.wake().copied_bytes == 0
    for block in (weights, cache, scratch):
        block.free()
    assert set(pool.stats_by_tag()) == {"default", "weights", "kv_cache"}


def test_examples_in_docstrings_run() -> None:
    for module in (vrampool.block, vrampool.broker, vrampool.memory, vrampool.pool, vrampool.stream, vrampool.trace):
        failed, tried = doctest.testmod(module, extraglobs={"Pool": Pool})
        assert tried > 0
        assert failed == 0


def test_metrics_are_served_at_a_port_of_the_systems_choice(pool: Pool) -> None:
    address = vrampool.start_metrics("127.0.0.1:0")
    try:
        assert not address.endswith(":0")
        for requests in range(1, 4):
            pool.allocate(1000).free()
            with urllib.request.urlopen(f"http://{address}/metrics") as page:
                text = page.read().decode()
            made = [line for line in text.splitlines() if line.startswith("vrampool_served_total{")]
            assert sum(int(line.rsplit(" ", 1)[1]) for line in made) >= requests, "of this moment"
            assert f'pool="{pool.name}"' in text
        with pytest.raises(vrampool.BusyError):
            vrampool.start_metrics("127.0.0.1:0")
    finally:
        vrampool.stop_metrics()
    vrampool.stop_metrics()
    with pytest.raises(vrampool.Error):
        vrampool.start_metrics("nowhere")


def test_what_the_library_logs_comes_to_python(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "vrampool"):
        vrampool.set_log_level(logging.DEBUG)
        with Pool("host", host_capacity=8 * MIB, source="virtual"):
            pass
        # A failure without a caller that receives it.
        LIBRARY.plain["torch_free"](123, 1, 0, None)
        vrampool.set_log_level(logging.WARNING)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any("0x7b" in record.getMessage() and record.name.startswith("vrampool") for record in errors)
    assert any(record.levelno <= logging.INFO for record in caplog.records)
    LIBRARY.plain["clear_error"]()
    with pytest.raises(vrampool.InvalidArgumentError):
        LIBRARY.call("set_log_callback", LogCallback(), 6, None)


def test_a_closed_pool_has_an_error_of_its_own_and_its_blocks_stay() -> None:
    pool = Pool("host", host_capacity=8 * MIB)
    block = pool.allocate(MIB)
    pool.close()
    pool.close()
    with pytest.raises(vrampool.ClosedError):
        pool.allocate(1)
    ctypes.memset(block.address, 1, MIB)
    block.free()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": "much"}, "512MiB"),
        ({"limit": -1}, "not a number of bytes"),
        ({"size_classes": "moon"}, "power-of-two"),
        ({"overlap": "much"}, "512MiB"),
        ({"source": "moon"}, "virtual"),
        ({"name": "a;limit=0"}, "separator"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, int | str], said: str) -> None:
    with pytest.raises(vrampool.ConfigurationError, match=said):
        Pool("host", **options)  # type: ignore[arg-type]


def test_decay_and_peaks(pool: Pool) -> None:
    pool.allocate(8 * MIB).free()
    assert pool.stats().peak_live_bytes == 8 * MIB
    pool.reset_peaks()
    assert pool.stats().peak_live_bytes == 0
    assert pool.decay() >= 0
    assert pool.trim() >= 0
    assert pool.stats().reserved_bytes == 0


def test_statistics_are_printed_a_figure_a_line(pool: Pool) -> None:
    with pool.allocate(1000):
        lines = str(pool.stats()).splitlines()
    assert "requested_bytes: 1000" in lines
    assert not any(line.endswith(": 0") for line in lines)
    assert set(pool.stats_by_tag()) == {"default"}
    assert pool.stats_as_dict()["tags"] == pool.stats_by_tag()
