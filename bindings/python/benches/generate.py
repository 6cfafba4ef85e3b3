"""Generates text with transformers' GPT-2 and a cache that grows by a token at a time."""

from __future__ import annotations

from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch of texts; its number is the sum of the last logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    # Its time is the host's.
    pin()
    batch, tokens = (16, 16) if quick else (32, 128)
    config = GPT2Config(attn_implementation="eager")
    model = GPT2LMHeadModel(config).cuda().eval()
    made = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, config.vocab_size, (batch, length), generator=made).cuda() for length in (24, 56, 40)]

    def step(number: int) -> Any:
        with torch.no_grad():
            return work(number)

    def work(number: int) -> Any:
        said = model(prompts[number % len(prompts)], use_cache=True)
        for _ in range(tokens):
            token = said.logits[:, -1:].argmax(-1)
            said = model(token, past_key_values=said.past_key_values, use_cache=True)
        return said.logits.double().sum()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
