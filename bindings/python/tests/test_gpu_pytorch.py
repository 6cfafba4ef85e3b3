"""What PyTorch's programs do with threads and processes over vrampool, and what PyTorch refuses over a foreign allocator; on a GPU."""

from __future__ import annotations

import pytest

from conftest import run, skip_without


@pytest.fixture(autouse=True)
def torch() -> None:
    skip_without("torch", "gpu")


def test_no_record_stream_of_several_threads_is_lost() -> None:
    run("""
        import vrampool.torch
        vrampool.torch.install()
        import threading, torch
        sides = [torch.cuda.Stream() for _ in range(3)]
        for number in range(100):
            data = torch.full((4 * MIB,), float(number), device="cuda")
            gate, sums = threading.Barrier(3), [None] * 3
            ready = torch.cuda.Event(); ready.record()
            def use(index):
                with torch.cuda.stream(sides[index]):
                    ready.wait(sides[index])
                    gate.wait()
                    for _ in range(5): sums[index] = data.sum(dtype=torch.float64)
                    data.record_stream(sides[index])
            threads = [threading.Thread(target=use, args=(index,)) for index in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            del data
            # The same bytes, written as soon as they may be.
            torch.full((4 * MIB,), -1.0, device="cuda")
            torch.cuda.synchronize()
            assert [float(one) for one in sums] == [number * 4.0 * MIB] * 3, (number, sums)
    """)


def test_workers_load_data_beside_a_training() -> None:
    run("""
        import vrampool.torch
        vrampool.torch.install()
        import torch
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 64
            def __getitem__(self, index): return torch.full((1000,), float(index))
        torch.ones(MIB, device="cuda")
        for pinned in (False, True):
            loader = torch.utils.data.DataLoader(
                Numbers(), batch_size=8, num_workers=2, pin_memory=pinned, multiprocessing_context="fork")
            seen = sum(float(batch.cuda(non_blocking=True).sum()) for batch in loader)
            assert seen == sum(range(64)) * 1000.0, seen
        del loader
    """)


def test_the_accelerators_functions_are_vrampools() -> None:
    run("""
        import vrampool.torch
        vrampool.torch.install()
        import torch
        if not hasattr(torch, "accelerator") or not hasattr(torch.accelerator, "memory_stats"): raise SystemExit
        data = torch.ones(4 * MIB, device="cuda")
        assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= 16 * MIB
        assert torch.accelerator.memory_allocated() >= 16 * MIB
        del data
        torch.accelerator.empty_cache()
        assert torch.accelerator.memory_reserved() == 0
    """)


def test_sharing_with_other_processes_is_refused_without_a_module() -> None:
    run("""
        import vrampool.torch
        vrampool.torch._module.path_for = lambda _: None
        vrampool.torch.install()
        import torch
        from torch.multiprocessing.reductions import reduce_tensor
        data = torch.ones(1000, device="cuda")
        try: reduce_tensor(data)
        except RuntimeError as error: print(error)
        else: raise AssertionError("a handle was made")
        assert float(data.sum()) == 1000
    """)
