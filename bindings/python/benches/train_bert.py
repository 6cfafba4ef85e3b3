"""Trains a BERT with random weights on padded texts of random lengths: it says the words that are masked."""

from __future__ import annotations

import math
import random
from typing import Any

from harness import Step, main, pin

WIDTH = 768
HEADS = 12
LAYERS = 12
VOCABULARY = 30522
#: The word in the place of a masked one.
MASK = 103


def bert(torch: Any, longest: int) -> Any:
    """Attention in plain operations: fused kernels do not add up in the same order each time."""
    functional = torch.nn.functional

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
            self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.drop = torch.nn.Dropout(0.1)

        def forward(self, x: Any, padding: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
            mixed = self.drop(scores.masked_fill(padding, float("-inf")).softmax(-1)) @ v
            x = self.first(x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))))
            return self.second(x + self.drop(self.down(functional.gelu(self.up(x)))))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(longest, WIDTH)
            self.norm, self.drop = torch.nn.LayerNorm(WIDTH), torch.nn.Dropout(0.1)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
            torch.nn.init.normal_(self.words.weight, std=0.02)

        def forward(self, text: Any, padding: Any, masked: Any) -> Any:
            x = self.words(text) + self.places.weight[: text.shape[1]]
            x = self.drop(self.norm(x))
            for layer in self.layers:
                x = layer(x, padding[:, None, None, :])
            return functional.linear(x.flatten(0, 1).index_select(0, masked), self.words.weight)

    return Model()


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch; its number is the loss."""
    # Before the first thread of its own: that one is kept there as well.
    pin()
    batch, longest = (16, 384) if quick else (32, 512)
    model = bert(torch, longest).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    made, rng = torch.Generator().manual_seed(5), random.Random(5)

    def texts() -> list[Any]:
        length = rng.randrange(longest // 12, longest + 1)
        lengths = torch.tensor([length] + [rng.randrange(length // 2, length + 1) for _ in range(batch - 1)])
        text = torch.randint(0, VOCABULARY, (batch, length), generator=made)
        padding = torch.arange(length) >= lengths[:, None]
        is_masked = (torch.rand(batch, length, generator=made) < 0.15) & ~padding
        masked = is_masked.flatten().nonzero().flatten()
        targets = text.flatten()[masked]
        return [tensor.pin_memory() for tensor in (text.masked_fill(is_masked, MASK), padding, masked, targets)]

    # More than there are steps: no batch comes twice.
    batches = [texts() for _ in range(64)]

    def step(number: int) -> Any:
        text, padding, masked, targets = (tensor.cuda(non_blocking=True) for tensor in batches[number % len(batches)])
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(text, padding, masked), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
