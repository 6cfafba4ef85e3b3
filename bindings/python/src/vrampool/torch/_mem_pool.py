"""The second route: PyTorch's allocator stays on top, and its segments come from vrampool."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from .. import _native
from ..errors import BusyError, UnsupportedError
from . import _devices, _install

#: What PyTorch's segments need: they are multiples of this, and it keeps idle ones itself.
SEGMENT_CLASSES = "exact:2MiB"

#: The function that PyTorch calls, one for the process.
_provider: Any = None
#: By device and tag.
_pools: dict[tuple[int, str], Any] = {}


def _make(torch: Any, **settings: bool) -> Any:
    """A `MemPool` with the settings that are true: older versions do not have all settings."""
    given = {name: True for name, value in settings.items() if value}
    try:
        return torch.cuda.MemPool(_provider.allocator(), **given)
    except TypeError as error:
        if not given:
            raise
        names = " and ".join(given)
        raise UnsupportedError(f"MemPool of PyTorch {torch.__version__} has no {names}: {error}; leave it out") from error


@contextlib.contextmanager
def mem_pool(
    tag: str = "default",
    *,
    device: object = None,
    all_threads: bool = False,
    use_on_oom: bool = False,
    no_split: bool = False,
) -> Iterator[Any]:
    """What is allocated within comes from a `torch.cuda.MemPool` whose segments vrampool serves, under a tag.

    PyTorch's statistics, snapshots and splitting go on working; the limit, sleep and metrics are vrampool's. Entering a tag
    again uses its pool again. Gives the `MemPool`.

    Args:
        tag: what its segments sleep and wake by.
        device: as PyTorch takes them; the current one by default.
        all_threads: allocations of all threads go there, also those of autograd's (gradients), whose segments have the tag
            `default`. Else only this thread's.
        use_on_oom: PyTorch may use this memory elsewhere as its last resort (PyTorch 2.8 and later).
        no_split: PyTorch does not cut these segments (2.10 and later).

    Pools are configured by `configure`, or as a provider of segments should be: exact sizes, and nothing kept idle, because
    PyTorch keeps idle segments itself.

    Where vrampool has no memory PyTorch gives its own cache back and asks again; then it raises its own `OutOfMemoryError`.

    Raises: `BusyError` when vrampool is PyTorch's allocator already: say `tag` then. `UnavailableError` without PyTorch;
    `UnsupportedError` for an argument that this PyTorch does not have. With expandable segments PyTorch 2.7 to 2.9 raise,
    and other versions do not use vrampool's segments.
    """
    global _provider
    if _install.is_installed():
        raise BusyError("vrampool is PyTorch's allocator already, and its memory needs no pool: use vrampool.torch.tag()")
    torch = _devices.pytorch()
    if not _install.is_configured():
        _install.configure(size_classes=SEGMENT_CLASSES, max_cached_bytes=0)
    index = torch.cuda.current_device() if device is None else _devices.device_index(device)
    if _provider is None:
        _provider = _install.provider()
        # Before the allocator below goes, or PyTorch calls a destroyed one (pytorch#145168).
        atexit.register(release_mem_pools)
    pool = _pools.get((index, tag))
    if pool is None:
        pool = _pools[index, tag] = _make(torch, use_on_oom=use_on_oom, no_split=no_split)
    with _devices.tag(tag, index):
        if not all_threads:
            with torch.cuda.use_mem_pool(pool, device=index):
                yield pool
            return
        # What use_mem_pool does, without its filter of threads.
        core, place = torch._C, (index, pool.id)
        with (
            _native.Around(partial(core._cuda_beginAllocateToPool, *place), partial(core._cuda_releasePool, *place)),
            _native.Around(lambda: None, partial(core._cuda_endAllocateToPool, *place)),
        ):
            yield pool


def release_mem_pools() -> None:
    """Forgets the pools of all tags: their memory goes back when the last tensor in it is freed."""
    _pools.clear()
