"""Cases of the interface of PyTorch's allocator: compilers, profilers, libraries, other processes."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from torch import nn

MIB = 1 << 20


def _close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def _gpt2(layers: int = 2) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=layers, n_head=4, n_embd=128, vocab_size=512, n_positions=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return GPT2LMHeadModel(config).cuda()


def reduce_overhead() -> None:
    f = torch.compile(lambda x: (x @ x).relu() + 1, mode="reduce-overhead")
    x = torch.randn(256, 256, device="cuda")
    for _ in range(4):
        _close(f(x), (x @ x).relu() + 1)


def reduce_overhead_with_backward() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    x = torch.randn(32, 64, device="cuda")
    for _ in range(8):
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def graph_trees_of_gpt2() -> None:
    model = _gpt2()
    compiled = torch.compile(model, mode="reduce-overhead")
    ids = torch.randint(0, 512, (4, 64), device="cuda")
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        value = loss.item()
        model.zero_grad()
    assert abs(value - model(input_ids=ids, labels=ids).loss.item()) < 0.1


def graph_trees_of_resnet50() -> None:
    import torchvision

    model = torchvision.models.resnet50().cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(8, 3, 64, 64, device="cuda")
    for _ in range(4):
        compiled(x).square().mean().backward()
        model.zero_grad()


def graph_trees_with_checkpoints() -> None:
    import torch._inductor.config as config

    config.triton.slow_path_cudagraph_asserts = True
    config.triton.fast_path_cudagraph_asserts = True

    @torch.compile(mode="reduce-overhead")
    def first(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    @torch.compile(mode="reduce-overhead")
    def second(x: torch.Tensor) -> torch.Tensor:
        return x + 5

    for n in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        y = first(torch.full((1000,), 2.0, device="cuda"))
        # Two paths of one tree, which the pool returns to.
        z = second(y) if n % 2 else first(y)
        kept = first(z) if n % 4 == 3 else None
        assert (z == (13 if n % 2 else 512)).all() and (kept is None or (kept == 2197).all())
        del y, z, kept


def dynamic_shapes_under_graphs() -> None:
    f = torch.compile(lambda x: x.sin() * 2, mode="reduce-overhead", dynamic=True)
    for _ in range(3):
        for n in (16, 32, 48, 64, 33):
            x = torch.randn(n, 128, device="cuda")
            _close(f(x), x.sin() * 2)


def static_cache() -> None:
    model = _gpt2().eval()
    ids = torch.randint(0, 512, (2, 8), device="cuda")
    with torch.no_grad():
        expected = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
        found = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0, cache_implementation="static")
    assert found.shape == expected.shape


def generate() -> None:
    model = _gpt2().eval()
    with torch.no_grad():
        ids = torch.randint(0, 512, (2, 8), device="cuda")
        assert model.generate(ids, max_new_tokens=32, num_beams=4, pad_token_id=0).shape[0] == 2


def max_autotune() -> None:
    f = torch.compile(lambda a, b: (a @ b).relu(), mode="max-autotune")
    a, b = torch.randn(128, 128, device="cuda"), torch.randn(128, 128, device="cuda")
    for _ in range(3):
        _close(f(a, b), (a @ b).relu())


def cudnn_benchmark() -> None:
    torch.backends.cudnn.benchmark = True
    conv = nn.Conv2d(16, 32, 3, padding=1).cuda()
    for n in (16, 32):
        conv(torch.randn(8, 16, n, n, device="cuda")).sum().backward()


def export_and_aot_inductor() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).cuda().eval()
    x = torch.randn(4, 16, device="cuda")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=os.path.join(folder, "m.pt2"))
        _close(torch._inductor.aoti_load_package(package)(x), model(x))


def profiler_memory() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as found:
        x = torch.ones(4 * MIB, device="cuda")
        y = x + 1
        del x, y
    assert any(event.self_device_memory_usage != 0 for event in found.key_averages())
    assert any(event.name() == "[memory]" and event.nbytes() for event in found.profiler.kineto_results.events())


def profiler_timeline() -> None:
    from torch.profiler import ProfilerActivity, profile

    model = nn.Linear(256, 256).cuda()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, record_shapes=True, with_stack=True
    ) as found:
        for _ in range(2):
            model(torch.randn(64, 256, device="cuda")).sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.json")
        found.export_memory_timeline(path, device="cuda:0")
        assert os.path.getsize(path) > 100


def autocast() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(32, 64, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def optimizer_checkpoint() -> None:
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 256, device="cuda")).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        loaded = torch.load(path, map_location="cuda")
    for a, b in zip(model.state_dict().values(), loaded["model"].values()):
        assert (a == b).all()
    optimizer.load_state_dict(loaded["optimizer"])


def activation_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None


def _receive(queue: Any, done: Any) -> None:
    if os.environ.get("INTERFACE_CASE_ALLOCATOR") == "vrampool":
        import vrampool.torch

        vrampool.torch.install()
    x = queue.get()
    done.put(float(x.sum().item()))
    x.add_(1)
    torch.cuda.synchronize()
    done.put("changed")
    del x


def tensors_through_a_queue() -> None:
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    process = context.Process(target=_receive, args=(queue, done))
    process.start()
    # Inside a larger piece of memory.
    before = torch.empty(3 * MIB, device="cuda")
    x = torch.full((100, 1000), 2.0, device="cuda")
    queue.put(x)
    assert done.get(timeout=100) == 200_000
    assert done.get(timeout=100) == "changed"
    process.join(60)
    assert (x == 3).all() and before is not None


def _send(queue: Any, stop: Any) -> None:
    if os.environ.get("INTERFACE_CASE_ALLOCATOR") == "vrampool":
        import vrampool.torch

        vrampool.torch.install()
    for n in range(5):
        queue.put(torch.full((n + 1, 300_000), float(n), device="cuda"))
    stop.get()


def tensors_from_workers() -> None:
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue, stop = context.Queue(), context.Queue()
    process = context.Process(target=_send, args=(queue, stop))
    process.start()
    for n in range(5):
        x = queue.get(timeout=100)
        assert x.shape == (n + 1, 300_000) and (x == n).all()
        del x
    stop.put(None)
    process.join(60)


class _OnDevice(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), float(index), device="cuda")


def tensors_of_data_loader_workers() -> None:
    loader = torch.utils.data.DataLoader(_OnDevice(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert sum(batch[:, 0].sum().item() for batch in loader) == sum(range(8))


def data_loader_with_pinned_memory() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    assert sum(batch.cuda(non_blocking=True).sum().item() for (batch,) in loader) == sum(range(64))


def lightning() -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 16)), batch_size=8)
    options: Any = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(accelerator="gpu", devices=1, max_epochs=2, **options).fit(Module(), loader)


def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    model = nn.Linear(16, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(3):
        accelerator.backward(model(torch.randn(8, 16, device="cuda")).square().mean())
        optimizer.step()
        optimizer.zero_grad()


def _group() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getpid() % 20_000)}
    torch.distributed.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda:0"))


def data_parallel() -> None:
    _group()
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
    for _ in range(3):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
    torch.distributed.destroy_process_group()


def fully_sharded() -> None:
    from torch.distributed.fsdp import fully_shard

    _group()
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
    fully_shard(model)
    for _ in range(3):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
    torch.distributed.destroy_process_group()


def nccl_memory_pool() -> None:
    from memory import _below, _count

    _group()
    backend = torch.distributed.group.WORLD._get_backend(torch.device("cuda:0"))
    with tempfile.TemporaryDirectory() as folder:
        below, library = _below(folder, '((make)nccl("ncclMemAlloc"))(&p, n)', '((end)nccl("ncclMemFree"))(p)')
        pool = torch.cuda.MemPool(below.allocator())
        with torch.cuda.use_mem_pool(pool):
            x = torch.full((4 * MIB,), 3.0, device="cuda")
        assert _count(library, "allocs") == 1 and [s["address"] for s in pool.snapshot()] == [x.data_ptr()]
        backend.register_mem_pool(pool)
        torch.distributed.all_reduce(x)
        assert (x == 3).all()
        backend.deregister_mem_pool(pool)
        del x
        del pool
        torch.cuda.empty_cache()
        assert _count(library, "frees") == 1
    torch.distributed.destroy_process_group()


def compile_default() -> None:
    f = torch.compile(lambda x: torch.softmax(x * 3, -1))
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    f(x).sum().backward()
    _close(f(x), torch.softmax(x * 3, -1))


def sparse_and_linear_algebra() -> None:
    a = torch.randn(64, 64, device="cuda")
    a = a @ a.T + 64 * torch.eye(64, device="cuda")
    _close(torch.linalg.solve(a, a), torch.eye(64, device="cuda"))
    assert torch.linalg.eigvalsh(a).min() > 0 and a.to_sparse_csr().matmul(a).shape == (64, 64)


def fourier_and_sort() -> None:
    x = torch.randn(1 << 18, device="cuda")
    _close(torch.fft.ifft(torch.fft.fft(x)).real, x)
    assert (x.sort().values.diff() >= 0).all()
