"""Cases of the interface of PyTorch's allocator: memory, statistics, snapshots, pools, graphs, processes."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from typing import Any

import torch

MIB = 1 << 20


def empty_and_free() -> None:
    for _ in range(100):
        x = torch.empty(MIB, device="cuda")
        del x
    assert torch.cuda.memory_allocated() == 0


def numbers_survive_reuse() -> None:
    kept = [torch.full((n * 1000 + 1,), float(n), device="cuda") for n in range(50)]
    for n, x in enumerate(kept):
        assert (x == n).all()
        kept[n] = x[:1].clone()
    assert sum(x.item() for x in kept) == sum(range(50))


def record_stream() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(8 * MIB, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        y = x * 2
    x.record_stream(side)
    del x
    z = torch.zeros(8 * MIB, device="cuda")
    torch.cuda.synchronize()
    assert (y == 2).all() and (z == 0).all()


def streams_side_by_side() -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    out = []
    for n, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            out.append(sum(torch.full((MIB,), float(n), device="cuda") for _ in range(8)))
    torch.cuda.synchronize()
    assert all((x == 8 * n).all() for n, x in enumerate(out))


def threads() -> None:
    def work() -> None:
        for n in range(200):
            x = torch.full((n + 1,), 1.0, device="cuda")
            assert x.sum().item() == n + 1

    all_threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert torch.cuda.memory_allocated() == 0


def memory_stats_keys() -> None:
    small, large = torch.empty(100, device="cuda"), torch.empty(8 * MIB, device="cuda")
    stats = torch.cuda.memory_stats()
    for name in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for figure in ("current", "peak", "allocated", "freed"):
                assert f"{name}.{pool}.{figure}" in stats
    assert stats["allocation.small_pool.current"] == 1 and stats["allocation.large_pool.current"] == 1
    assert stats["segment.all.current"] >= 1 and stats["requested_bytes.all.current"] == 400 + 32 * MIB
    assert stats["num_ooms"] == 0 and "num_alloc_retries" in stats
    del small, large


def memory_summary() -> None:
    x = torch.empty(MIB, device="cuda")
    assert "Allocated memory" in torch.cuda.memory_summary() and "OOMs" in torch.cuda.memory_summary(abbreviated=True)
    del x


def peaks_and_resets() -> None:
    x = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    del x
    assert torch.cuda.max_memory_allocated() >= 32 * MIB > torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < 32 * MIB
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def empty_cache() -> None:
    x = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    before = torch.cuda.memory_reserved()
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before - 200 * MIB


def memory_fraction() -> None:
    torch.cuda.set_per_process_memory_fraction(0.1)
    assert abs(torch.cuda.get_per_process_memory_fraction() - 0.1) < 0.01
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.empty(total // 5, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "Tried to allocate" in str(error)
    else:
        raise AssertionError("no limit")
    torch.empty(total // 20, dtype=torch.uint8, device="cuda")


def out_of_memory_text() -> None:
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    for part in ("CUDA out of memory. Tried to allocate", "GPU 0 has a total capacity of", "is free.", "is allocated by PyTorch"):
        assert part in text, text
    assert (torch.ones(5, device="cuda").sum() == 5).item()


def out_of_memory_observer() -> None:
    seen: list[Any] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *given: seen.append(given))
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] == 1 << 40, seen


def retry_after_out_of_memory() -> None:
    torch.cuda.set_per_process_memory_fraction(0.02)
    share = int(torch.cuda.get_device_properties(0).total_memory * 0.02)
    parts = [torch.empty(share // 8, dtype=torch.uint8, device="cuda") for _ in range(6)]
    del parts
    torch.empty(share * 6 // 8, dtype=torch.uint8, device="cuda")


def memory_snapshot() -> None:
    x = torch.empty(3 * MIB, device="cuda")
    segments = torch.cuda.memory_snapshot()
    blocks = [block for segment in segments for block in segment["blocks"]]
    assert any(block["address"] == x.data_ptr() and block["state"] == "active_allocated" for block in blocks)
    for segment in segments:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])


def history_with_stacks() -> None:
    torch.cuda.memory._record_memory_history()
    x = torch.empty(7 * MIB, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    frames = [b["frames"] for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert any("history_with_stacks" in frame["name"] for frame in frames[0])
    traces = snapshot["device_traces"][0]
    assert any(t["action"] == "alloc" and t["addr"] == x.data_ptr() for t in traces)
    address = x.data_ptr()
    del x
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    assert [t["action"] for t in traces if t.get("addr") == address][-2:] == ["free_requested", "free_completed"]
    torch.cuda.memory._record_memory_history(enabled=None)


def history_of_segments() -> None:
    torch.cuda.memory._record_memory_history(max_entries=1000)
    x = torch.empty(200 * MIB, device="cuda")
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    assert any(t["action"] in ("segment_alloc", "segment_map") for t in traces)
    del x
    torch.cuda.empty_cache()
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    assert any(t["action"] in ("segment_free", "segment_unmap") for t in traces)


def snapshot_opened_by_visualiser() -> None:
    torch.cuda.memory._record_memory_history()
    kept = [torch.empty(n * MIB, device="cuda") for n in range(1, 5)]
    del kept[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s.pickle")
        torch.cuda.memory._dump_snapshot(path)
        for kind in ("trace_plot", "segment_plot"):
            subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", kind, path, "-o", path + ".out"], check=True, capture_output=True)
        with open(path, "rb") as file:
            assert pickle.load(file)["segments"]


def annotations() -> None:
    torch.cuda.memory._record_memory_history()
    with torch.autograd.profiler.record_function("a part"):
        x = torch.empty(MIB, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    assert "external_annotations" in snapshot
    del x


def user_metadata() -> None:
    if not hasattr(torch.cuda.memory, "_set_memory_metadata"):
        return
    torch.cuda.memory._record_memory_history()
    torch.cuda.memory._set_memory_metadata("phase one")
    assert torch.cuda.memory._get_memory_metadata() == "phase one"
    x = torch.empty(MIB, device="cuda")
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    assert any(t.get("user_metadata") == "phase one" for t in traces if t.get("addr") == x.data_ptr())


def mem_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(4 * MIB, device="cuda")
    y = torch.ones(4 * MIB, device="cuda")
    found = {b["address"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"}
    assert x.data_ptr() in found and y.data_ptr() not in found
    assert pool.use_count() == 1
    del x
    del pool


def mem_pool_reuse() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(4 * MIB, device="cuda")
        address = x.data_ptr()
        del x
    y = torch.empty(4 * MIB, device="cuda")
    assert y.data_ptr() != address
    with torch.cuda.use_mem_pool(pool):
        assert torch.empty(4 * MIB, device="cuda").data_ptr() == address


def mem_pool_use_on_oom() -> None:
    pool = torch.cuda.MemPool(use_on_oom=True)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.02)
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(int(total * 0.015), dtype=torch.uint8, device="cuda")
        del x
    torch.empty(int(total * 0.012), dtype=torch.uint8, device="cuda")


def mem_pool_no_split() -> None:
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(MIB, device="cuda")
    assert x.sum().item() == MIB


def _below(folder: str, allocate: str, free: str) -> tuple[Any, Any]:
    """An allocator of C's statements with `p` and `n`, and the library, which counts calls in `allocs` and `frees`."""
    source, library = os.path.join(folder, "a.c"), os.path.join(folder, "a.so")
    with open(source, "w") as file:
        file.write(
            "#include <dlfcn.h>\n#include <stddef.h>\nint cudaMalloc(void **, size_t); int cudaFree(void *); int allocs, frees;\n"
            "typedef int (*make)(void **, size_t); typedef int (*end)(void *);\n"
            "void *nccl(const char *name) { return dlsym(dlopen(\"libnccl.so.2\", RTLD_NOW | RTLD_NOLOAD), name); }\n"
            f"void *a(size_t n, int d, void *s) {{ void *p = 0; ++allocs; return {allocate} ? 0 : p; }}\n"
            f"void f(void *p, size_t n, int d, void *s) {{ ++frees; {free}; }}\n"
        )
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return torch.cuda.memory.CUDAPluggableAllocator(library, "a", "f"), ctypes.CDLL(library)


def _count(library: Any, name: str) -> int:
    return ctypes.c_int.in_dll(library, name).value


def mem_pool_over_another_allocator() -> None:
    with tempfile.TemporaryDirectory() as folder:
        below, library = _below(folder, "cudaMalloc(&p, n)", "cudaFree(p)")
        pool = torch.cuda.MemPool(below.allocator())
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(4 * MIB, device="cuda")
        y = torch.ones(4 * MIB, device="cuda")
        assert _count(library, "allocs") == 1
        assert (x + y == 2).all() and any(s["blocks"] for s in pool.snapshot())
        del x
        del pool
        torch.cuda.empty_cache()
        assert _count(library, "frees") == 1


def raw_allocations() -> None:
    address = torch.cuda.caching_allocator_alloc(4 * MIB)
    assert address != 0 and torch.cuda.memory_allocated() >= 4 * MIB
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == 0


def cache_turned_off() -> None:
    torch.cuda.memory.caching_allocator_enable(False)
    x = torch.ones(4 * MIB, device="cuda")
    assert x.sum().item() == 4 * MIB
    del x
    torch.cuda.memory.caching_allocator_enable(True)
    assert (torch.ones(5, device="cuda") == 1).all()


def backend_is_native() -> None:
    assert torch.cuda.get_allocator_backend() == "native"


def accelerator_functions() -> None:
    x = torch.empty(8 * MIB, device="cuda")
    assert torch.accelerator.memory_allocated() >= 32 * MIB
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= 32 * MIB
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() < 32 * MIB


def pinned_copies() -> None:
    host = torch.ones(16 * MIB).pin_memory()
    x = host.to("cuda", non_blocking=True)
    back = x.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert (back == 1).all()


def deterministic_fills() -> None:
    torch.use_deterministic_algorithms(True)
    assert torch.empty(100, device="cuda").isnan().all()


def graph() -> None:
    x = torch.zeros(MIB, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = x + 1
        z = y * 2
        del y
    for n in range(5):
        x.fill_(n)
        captured.replay()
        assert (z == 2 * (n + 1)).all()
    captured.reset()


def graphs_that_share_a_pool() -> None:
    pool = torch.cuda.graph_pool_handle()
    x = torch.ones(MIB, device="cuda")
    graphs, out = [], []
    for n in range(4):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            out.append(x * n)
    for n, (captured, y) in enumerate(zip(graphs, out)):
        captured.replay()
        assert (y == n).all()


def _reserved_for_shapes(shapes: list[int]) -> int:
    """Bytes that a private pool reserves for a graph of each shape, in MiB of each of its temporaries."""
    pool = torch.cuda.graph_pool_handle()
    x, out = (torch.ones(max(shapes) * MIB // 4, device="cuda") for _ in range(2))
    # What an earlier pool held.
    torch.cuda.empty_cache()
    before, graphs = torch.cuda.memory_reserved(), []
    for shape in shapes:
        n = shape * MIB // 4
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            y = x[:n] + shape
            z = y * 2
            out[:n].copy_(y + z)
            del y, z
    reserved = torch.cuda.memory_reserved() - before
    for shape, captured in zip(shapes, graphs):
        captured.replay()
        assert (out[: shape * MIB // 4] == 3 * (shape + 1)).all()
    return reserved


def sixteen_shapes_in_a_pool() -> None:
    shapes = [8 * n for n in range(16, 0, -1)]
    figures = [_reserved_for_shapes(of) / MIB for of in (shapes[:1], shapes, shapes[::-1])]
    print("MiB reserved: the largest shape {:.1f}, sixteen {:.1f}, from the smallest {:.1f}".format(*figures))
    assert figures[1] <= 1.1 * figures[0]


def graph_in_a_mem_pool() -> None:
    pool = torch.cuda.MemPool()
    captured = torch.cuda.CUDAGraph()
    x = torch.ones(MIB, device="cuda")
    with torch.cuda.graph(captured, pool=pool.id):
        y = x + 4
    captured.replay()
    assert (y == 5).all()


def graphed_callables() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    x = torch.randn(32, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        graphed(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
