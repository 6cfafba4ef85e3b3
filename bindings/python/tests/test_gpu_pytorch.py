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
