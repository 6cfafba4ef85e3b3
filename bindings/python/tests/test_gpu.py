"""On a GPU, with the true PyTorch and CuPy: each test is a program of its own, because an allocator is for a process."""

from __future__ import annotations

import pytest

from conftest import run, skip_without


@pytest.fixture
def torch() -> None:
    skip_without("torch", "gpu")


@pytest.fixture
def cupy() -> None:
    skip_without("cupy", "gpu")


def test_a_pool_of_ones_own(torch: None) -> None:
    run("""
        import torch, vrampool
        with vrampool.Pool("cuda:0", limit="64MiB") as pool, torch.cuda.stream(torch.cuda.Stream()) as _:
            with pool.allocate(4 * MIB, torch.cuda.current_stream()) as block:
                tensor = torch.as_tensor(block, device="cuda")
                assert tensor.data_ptr() == block.address and tensor.numel() == 4 * MIB
                assert int(tensor.fill_(3).sum(dtype=torch.int64)) == 12 * MIB
                del tensor
            assert pool.stats().live_buffers == 0
    """)


def test_all_of_pytorch(torch: None) -> None:
    run("""
        import vrampool.torch
        vrampool.torch._module.path_for = lambda _: None  # the way of versions without a module
        vrampool.torch.install(limit="1GiB")
        import torch
        assert torch.cuda.get_allocator_backend() == "pluggable"
        one = torch.ones(MIB, device="cuda")
        assert float(one.sum()) == MIB
        assert torch.cuda.memory_allocated() >= 4 * MIB
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
        assert torch.cuda.memory_stats()["vrampool.limit_bytes"] == 1024 * MIB
        assert vrampool.torch.memory_stats()["requested_bytes.all.current"] >= 4 * MIB
        assert "Allocated memory" in torch.cuda.memory_summary()
        empty = torch.empty(0, device="cuda")
        accelerator = getattr(torch, "accelerator", None)
        if (stats := getattr(accelerator, "memory_stats", None)) is not None:  # from PyTorch 2.9 on
            figures = stats()
            assert figures["vrampool.limit_bytes"] == 1024 * MIB, figures
            assert figures["allocated_bytes.all.current"] == torch.cuda.memory_allocated() >= 4 * MIB
            assert accelerator.memory_allocated() == torch.cuda.memory_allocated()
            del one, empty
            accelerator.empty_cache()
            assert accelerator.memory_reserved() == torch.cuda.memory_reserved() == 0, torch.cuda.memory_summary()
            one, empty = torch.ones(MIB, device="cuda"), None
        del one, empty
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_summary()
        assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_summary()
        torch.cuda.set_per_process_memory_fraction(0.01)
        assert vrampool.torch.pool().limit < 2 * 1024 * MIB
    """)


@pytest.mark.whole_device
def test_memory_sleeps_and_wakes_below_tensors(torch: None) -> None:
    run("""
        import vrampool.torch
        vrampool.torch.install()
        import torch
        with vrampool.torch.tag("weights"):
            weights = torch.arange(64 * MIB, dtype=torch.int32, device="cuda")
        cache = torch.ones(64 * MIB, device="cuda")
        address, free = weights.data_ptr(), torch.cuda.mem_get_info()[0]
        report = vrampool.torch.sleep(offload="weights")
        assert report.physical_bytes >= 512 * MIB and report.copied_bytes >= 256 * MIB, report
        assert torch.cuda.mem_get_info()[0] >= free + 500 * MIB
        vrampool.torch.wake_up()
        assert weights.data_ptr() == address
        assert torch.equal(weights, torch.arange(64 * MIB, dtype=torch.int32, device="cuda"))
    """)


def test_pytorchs_pool_is_recorded(torch: None) -> None:
    run("""
        import vrampool.torch, vrampool.trace
        vrampool.torch.install()
        import torch
        kept = torch.ones(1000, device="cuda")
        with vrampool.trace.record() as recording:
            for _ in range(10): torch.ones(MIB, device="cuda").sum().item()
        of = recording.trace.summary()
        assert of.largest == 4 * MIB and of.allocations >= 20 and of.frees == of.allocations, of
        assert recording.dropped == 0
        recording.trace.save("/dev/null")
    """)


@pytest.mark.parametrize("all_threads", [False, True])
def test_segments_below_pytorchs_own(torch: None, all_threads: bool) -> None:
    run(f"""
        import torch, vrampool.torch
        with vrampool.torch.mem_pool("weights", all_threads={all_threads}) as pool:
            weights = torch.arange(16 * MIB, dtype=torch.int32, device="cuda")
        outside = torch.ones(MIB, device="cuda")
        assert vrampool.torch.pool().stats().reserved_bytes >= 64 * MIB
        assert vrampool.torch.pool().stats().reserved_bytes < 80 * MIB
        assert torch.cuda.memory_allocated() >= 68 * MIB
        address = weights.data_ptr()
        assert vrampool.torch.sleep(offload="weights").copied_bytes >= 64 * MIB
        assert vrampool.torch.pool().stats().reserved_bytes == 0
        vrampool.torch.wake_up()
        assert weights.data_ptr() == address
        assert torch.equal(weights, torch.arange(16 * MIB, dtype=torch.int32, device="cuda"))
        try:
            with vrampool.torch.mem_pool("weights"):
                vrampool.torch.set_limit(80 * MIB)
                torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError: pass
        else: raise AssertionError
    """)


def test_cupy_over_vrampool(cupy: None) -> None:
    run("""
        import cupy, vrampool.cupy
        allocator = vrampool.cupy.install(limit="256MiB")
        # As CuPy's own tests of its pools: sizes, reuse, freeing twice, limits, threads' streams.
        assert cupy.empty(0).data.ptr == 0
        first = cupy.cuda.alloc(1000); address = first.ptr; del first
        second = cupy.cuda.alloc(1000); assert second.ptr == address; del second
        assert allocator.used_bytes() == 0
        one = cupy.arange(1000, dtype=cupy.float64)
        assert float((one * 2).sum()) == 999000.0
        assert allocator.used_bytes() + allocator.free_bytes() == allocator.total_bytes()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            other = cupy.ones(MIB); said = other.sum()
            allocator.record_stream(other, cupy.cuda.Stream.null)
        stream.synchronize()
        assert float(said) == MIB
        try: cupy.empty(300 * MIB, dtype=cupy.uint8)
        except cupy.cuda.memory.OutOfMemoryError as error: assert "limit set to" in str(error), error
        else: raise AssertionError
        with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
            cupy.ones(10)
        del one, other, said
        allocator.free_all_blocks()
        assert allocator.total_bytes() == 0
        allocator.set_limit(fraction=0.5)
        cupy.empty(300 * MIB, dtype=cupy.uint8)
        vrampool.cupy.uninstall()
        assert float(cupy.ones(3).sum()) == 3
    """)
