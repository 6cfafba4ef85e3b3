"""Trains a transformer whose layers choose two of eight experts for each token, so that sizes change at every step."""

from __future__ import annotations

from typing import Any

from harness import Step, main, pin

EXPERTS = 8


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch; its number is the loss."""
    # Its time is the host's.
    pin()
    layers, width, batch, length = (4, 256, 8, 128) if quick else (8, 512, 16, 256)
    nn = torch.nn

    class Experts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(width, EXPERTS)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(EXPERTS)
            )

        def forward(self, x: Any) -> Any:
            flat = x.reshape(-1, width)
            weights, chosen = self.gate(flat).softmax(-1).topk(2)
            out = torch.zeros_like(flat)
            for number, expert in enumerate(self.experts):
                token, place = (chosen == number).nonzero(as_tuple=True)
                out = out.index_add(0, token, expert(flat[token]) * weights[token, place, None])
            return out.view_as(x)

    attention = nn.ModuleList(nn.MultiheadAttention(width, 8, batch_first=True) for _ in range(layers)).cuda()
    experts = nn.ModuleList(Experts() for _ in range(layers)).cuda()
    optimizer = torch.optim.AdamW([*attention.parameters(), *experts.parameters()], lr=1e-4)
    made = torch.Generator().manual_seed(6)
    inputs = [torch.randn(batch, length, width, generator=made).cuda() for _ in range(4)]

    def step(number: int) -> Any:
        x = inputs[number % len(inputs)]
        optimizer.zero_grad(set_to_none=True)
        for attend, choose in zip(attention, experts, strict=True):
            x = x + attend(x, x, x, need_weights=False)[0]
            x = x + choose(x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
