"""Recordings and traces, on host devices."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import vrampool
import vrampool.torch
import vrampool.trace
from conftest import MIB
from vrampool import Pool
from vrampool._library import LIBRARY

GOLDEN = (
    "op,id,size,stream,t_us,v2\na,0,3000,0,0\na,1,1000,1,4\n"
    "f,0,3000,0,9\na,2,64,0,10\nend,4,3383549808,0,0\n"
)


def test_a_recording_is_what_a_pool_serves_within_it(pool: Pool) -> None:
    before = pool.allocate(100)
    with vrampool.trace.record(pool) as recording:
        before.free()
        first = pool.allocate(1000)
        assert recording.trace.summary().events == 1
        with pool.tag("other"):
            second = pool.allocate(2 * MIB)
        first.free()
    second.free()
    of = recording.trace.summary()
    assert (of.allocations, of.frees, of.never_freed) == (2, 1, 1)
    assert (of.peak_requested, of.largest, recording.dropped) == (2 * MIB + 1000, 2 * MIB, 0)
    assert [(size.start, size.stop, size.allocations) for size in of.sizes] == [
        (512, 1023, 1),
        (2 * MIB, 4 * MIB - 1, 1),
    ]
    assert "4 events" not in repr(recording.trace)
    assert "3 events" in repr(recording.trace)


def test_a_live_pool_is_drawn(pool: Pool, tmp_path: Path) -> None:
    page, chart, other = (tmp_path / name for name in ("page.html", "chart.svg", "other.svg"))
    with vrampool.trace.record(pool) as recording:
        block = pool.allocate(5000)
        before = pool.stats().reserved_bytes
        recording.plot(page)
        assert pool.stats().reserved_bytes == before
    block.free()
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "DATA" not in text
    recording.plot(chart)
    recording.trace.plot(other, pool, "addresses")
    assert chart.read_text().startswith("<svg") and other.read_text().startswith("<svg")
    assert chart.read_text() != other.read_text()
    with pytest.raises(vrampool.InvalidArgumentError, match="not a picture"):
        recording.plot(page, "moon")
    block = pool.allocate(5000)
    pool.plot(other, "addresses")
    assert "at one moment" in other.read_text()
    block.free()
    with pytest.raises(vrampool.InvalidArgumentError, match="not a picture"):
        pool.plot(page, "moon")
    with pytest.raises(vrampool.InvalidArgumentError):
        recording.plot(tmp_path / "no" / "page.html")
    assert page.read_text() == text


def test_what_has_no_room_is_left_out_and_counted(pool: Pool) -> None:
    with vrampool.trace.record(pool, events=4) as recording:
        for _ in range(5):
            pool.allocate(10).free()
    assert (recording.trace.summary().events, recording.dropped) == (4, 3)


def test_a_pool_is_recorded_once_at_a_time(pool: Pool) -> None:
    with vrampool.trace.record(pool):
        with pytest.raises(vrampool.BusyError), vrampool.trace.record(pool):
            raise AssertionError
        pool.allocate(10).free()
    with pytest.raises(KeyError), vrampool.trace.record(pool) as recording:
        raise KeyError
    assert recording.trace.summary().events == 0
    with pytest.raises(vrampool.InvalidArgumentError), vrampool.trace.record(pool, events=0):
        raise AssertionError
    with pytest.raises(vrampool.InvalidArgumentError), vrampool.trace.record(pool, device=0):
        raise AssertionError


def test_a_pool_that_is_closed_meanwhile_is_reported() -> None:
    pool = Pool("host", host_capacity=MIB)
    with vrampool.trace.record(pool) as recording:
        pool.close()
    with pytest.raises(vrampool.ClosedError, match="closed"):
        _ = recording.trace
    assert recording.dropped == 0


@pytest.mark.usefixtures("two_devices")
def test_pytorchs_pool_is_recorded_without_saying_which(fresh: Callable[..., None]) -> None:
    fresh()
    vrampool.torch.pool(1).allocate(MIB).free()
    with vrampool.trace.record(device=1) as recording:
        address = LIBRARY.plain["torch_alloc_or_null"](1000, 1, None)
        LIBRARY.plain["torch_free"](address, 1000, 1, None)
        vrampool.torch.pool(0).allocate(1000).free()
    of = recording.trace.summary()
    assert (of.trace, of.events, of.peak_requested) == ("torch-1", 2, 1000)


def test_conversions_there_and_back_keep_the_trace(tmp_path: Path) -> None:
    source = tmp_path / "golden.csv"
    source.write_text(GOLDEN)
    expected = vrampool.trace.load(source).summary()
    assert (expected.trace, expected.events, expected.streams, expected.peak_requested) == ("golden", 4, 2, 4000)
    assert (expected.requested, expected.distinct_sizes, expected.duration_us) == (4064, 3, 10)
    for name, to_format in [("a.pickle", None), ("b.pkl.gz", None), ("c.log", "rmm"), ("d.csv.gz", None), ("e", "csv")]:
        answered = vrampool.trace.convert(source, tmp_path / name, to_format=to_format)
        assert answered.summary() == expected
        of = vrampool.trace.load(tmp_path / name).summary()
        assert (of.events, of.streams, of.peak_requested, of.sizes) == (4, 2, 4000, expected.sizes), name
    snapshot = pickle.loads((tmp_path / "a.pickle").read_bytes())
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert (actions.count("alloc"), actions.count("free_requested")) == (3, 1)
    assert gzip.decompress((tmp_path / "d.csv.gz").read_bytes()).decode() == GOLDEN
    assert vrampool.trace.load(tmp_path / "a.pickle", device=0).summary().events == 4


def test_a_conversion_reports_what_it_does_not_keep(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    source = tmp_path / "ids.csv"
    source.write_text("op,id,size,stream,t_us\na,7,8,5,100\nf,7,8,5,190\n")
    with pytest.warns(vrampool.trace.LossWarning) as reported:
        trace = vrampool.trace.convert(source, tmp_path / "ids.pickle")
    texts = [str(warning.message) for warning in reported]
    assert trace.summary().events == 2
    assert len(texts) == 3
    assert all(text.startswith(f"{tmp_path / 'ids.pickle'}: not kept: ") for text in texts)
    assert "2 events with their ids" in texts[0]
    recwarn.clear()
    vrampool.trace.convert(tmp_path / "ids.pickle", tmp_path / "ids.log", to_format="rmm")
    assert not recwarn.list


def test_a_conversion_refuses_its_output_before_it_reads(tmp_path: Path) -> None:
    source = tmp_path / "golden.csv"
    source.write_text(GOLDEN)
    with pytest.raises(vrampool.InvalidArgumentError, match="the output is also the input"):
        vrampool.trace.convert(source, tmp_path / "." / "golden.csv")
    assert source.read_text() == GOLDEN
    # The missing folder is reported, and not the missing source.
    with pytest.raises(vrampool.InvalidArgumentError, match="out.csv"):
        vrampool.trace.convert(tmp_path / "absent.csv", tmp_path / "no" / "out.csv")


def test_a_trace_is_shown_to_people(tmp_path: Path) -> None:
    source = tmp_path / "golden.csv"
    source.write_text(GOLDEN)
    shown = vrampool.trace.show(source)
    assert shown == vrampool.trace.show(vrampool.trace.load(source))
    assert "golden" in shown
    assert "4,000" in shown
    assert "33.3 %" in shown


def test_what_is_no_trace_is_reported_with_its_place(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(GOLDEN.replace("f,0,", "f,7,"))
    with pytest.raises(vrampool.InvalidArgumentError, match="line 4"):
        vrampool.trace.load(wrong)
    for path in [tmp_path / "nowhere.csv", tmp_path]:
        with pytest.raises(vrampool.InvalidArgumentError):
            vrampool.trace.load(path)
    wrong.write_text(GOLDEN)
    for given in [{"format": "xml"}, {"format": "rmm"}, {"device": -1}]:
        with pytest.raises(vrampool.InvalidArgumentError):
            vrampool.trace.load(wrong, **given)  # type: ignore[arg-type]
    trace = vrampool.trace.load(wrong)
    for path, to_format in [(tmp_path / "no" / "where.csv", None), (tmp_path / "a.csv", "xml")]:
        with pytest.raises(vrampool.InvalidArgumentError):
            trace.save(path, to_format)


def test_traces_are_forgotten_with_their_last_reference(pool: Pool) -> None:
    with vrampool.trace.record(pool) as recording:
        pass
    handle = recording.trace._handle
    del recording
    with pytest.raises(vrampool.ClosedError):
        LIBRARY.call("trace_free", handle)
