"""Trains a small diffusion UNet with random weights on images of changing sizes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from harness import Step, main, pin

#: Sines and cosines of the share of noise.
WAVES = 64


def unet(torch: Any, widths: tuple[int, ...]) -> Any:
    """Channels at each resolution; the next one is half as high and wide."""
    nn = torch.nn

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, into: int, out: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.GroupNorm(8, into), nn.SiLU(), nn.Conv2d(into, out, 3, padding=1))
            self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
            self.level, self.shortcut = nn.Linear(WAVES, out), nn.Conv2d(into, out, 1)

        def forward(self, x: Any, level: Any) -> Any:
            return self.shortcut(x) + self.second(self.first(x) + self.level(level)[:, :, None, None])

    class UNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            down = list(pairwise(widths))
            self.enter, self.leave = nn.Conv2d(3, widths[0], 3, padding=1), nn.Conv2d(widths[0], 3, 3, padding=1)
            self.down = nn.ModuleList(Block(narrow, narrow) for narrow, _ in down)
            self.halve = nn.ModuleList(nn.Conv2d(narrow, wide, 3, stride=2, padding=1) for narrow, wide in down)
            self.middle = Block(widths[-1], widths[-1])
            # Four times the channels become twice the height and width; interpolation is not deterministic backwards.
            self.wider = nn.ModuleList(
                nn.Sequential(nn.Conv2d(wide, 4 * narrow, 1), nn.PixelShuffle(2)) for narrow, wide in reversed(down)
            )
            self.up = nn.ModuleList(Block(2 * narrow, narrow) for narrow, _ in reversed(down))

        def forward(self, x: Any, level: Any) -> Any:
            x = self.enter(x)
            skipped = []
            for block, halve in zip(self.down, self.halve, strict=True):
                x = block(x, level)
                skipped.append(x)
                x = halve(x)
            x = self.middle(x, level)
            for wider, block in zip(self.wider, self.up, strict=True):
                x = block(torch.cat((wider(x), skipped.pop()), 1), level)
            return self.leave(x)

    return UNet()


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch; its number is the loss."""
    # Before the first thread of its own: that one is kept there as well.
    pin()
    batch, widths = 32, (64, 128, 256) if quick else (96, 192, 384, 768)
    model = unet(torch, widths).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    made, rng = torch.Generator().manual_seed(8), random.Random(8)
    # Few sizes, as in buckets of aspect ratios: cuDNN prepares itself for each.
    sizes = [(rng.randrange(64, 193, 32), rng.randrange(64, 193, 32)) for _ in range(6)]
    batches = [torch.randn(batch, 3, *size, generator=made).pin_memory() for size in sizes]
    frequencies = torch.linspace(0, 5, WAVES // 2).exp().cuda()

    def step(number: int) -> Any:
        images = batches[number % len(batches)].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        noise, share = torch.randn_like(images), torch.rand(batch, 1, device=images.device)
        angles, turned = share * frequencies, share[:, :, None, None] * 1.5
        said = model(images * turned.cos() + noise * turned.sin(), torch.cat((angles.sin(), angles.cos()), 1))
        loss = torch.nn.functional.mse_loss(said, noise)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
