"""Sleep and wake around a model between steps: the device has its memory back meanwhile, and training goes on as if nothing
had been."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import vrampool.torch

MIB = 1 << 20


def train(torch: Any, steps: int, sleeps: bool, quick: bool) -> tuple[list[str], dict[str, Any]]:
    """Losses, and what the sleep did after half of the steps."""
    torch.manual_seed(11)
    width = 4096 if quick else 8192
    with vrampool.torch.tag("weights"):
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, said = [], {}
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        data = torch.randn(64, width, generator=torch.Generator().manual_seed(step)).cuda()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        del loss, data
        if sleeps and step == steps // 2:
            said = sleep(torch, model)
    return losses, said


def sleep(torch: Any, model: Any) -> dict[str, Any]:
    """Puts everything to sleep and wakes it; whether weights are what they were, and what the device had meanwhile."""
    before = [parameter.detach().cpu() for parameter in model.parameters()]
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    torch.cuda.synchronize()
    free_awake = torch.cuda.mem_get_info()[0]
    begin = time.perf_counter()
    slept = vrampool.torch.sleep(offload=True)
    asleep = time.perf_counter()
    free_asleep = torch.cuda.mem_get_info()[0]
    reserved = vrampool.torch.memory_reserved()
    waking = time.perf_counter()
    woken = vrampool.torch.wake_up()
    awake = time.perf_counter()
    after = [parameter.detach().cpu() for parameter in model.parameters()]
    return {
        "returned_mib": (free_asleep - free_awake) // MIB,
        "physical_mib": slept.physical_bytes // MIB,
        "reserved_asleep": reserved,
        "restored_mib": woken.copied_bytes // MIB,
        "sleep_ms": (asleep - begin) * 1e3,
        "wake_ms": (awake - waking) * 1e3,
        "weights_same": all(torch.equal(one, other) for one, other in zip(before, after, strict=True)),
        "addresses_same": addresses == [parameter.data_ptr() for parameter in model.parameters()],
        "free_back": free_asleep - free_awake >= slept.physical_bytes * 9 // 10,
    }


def main() -> int:
    """0 when it is so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a smaller model")
    given = parser.parse_args()
    vrampool.torch.install()
    import torch

    without, _ = train(torch, given.steps, sleeps=False, quick=given.quick)
    with_sleep, said = train(torch, given.steps, sleeps=True, quick=given.quick)
    result = {"bench": "sleep", "losses_same": without == with_sleep, **said}
    result["ok"] = all(
        (
            result["losses_same"],
            said["weights_same"],
            said["addresses_same"],
            said["free_back"],
            said["reserved_asleep"] == 0,
        )
    )
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
