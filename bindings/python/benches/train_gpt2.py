"""Trains transformers' GPT-2 with random weights on random texts of changing lengths."""

from __future__ import annotations

import random
from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch; its number is the loss."""
    from transformers import GPT2Config, GPT2LMHeadModel

    # Before the first thread of its own: that one is kept there as well.
    pin()
    batch, longest = (4, 512) if quick else (8, 1024)
    # Attention as PyTorch's plain operations: fused kernels do not add up in the same order each time.
    config = GPT2Config(attn_implementation="eager", n_layer=8 if quick else 12)
    model = GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    made, rng = torch.Generator().manual_seed(2), random.Random(2)
    lengths = [rng.randrange(longest // 4, longest + 1, 8) for _ in range(8)]
    texts = [torch.randint(0, config.vocab_size, (batch, length), generator=made).pin_memory() for length in lengths]

    def step(number: int) -> Any:
        text = texts[number % len(texts)].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = model(text, labels=text, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
