"""Generates text with transformers' GPT-2 by beams: the cache is reordered at each token."""

from __future__ import annotations

from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch of texts; its number is the sum of their tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    # Its time is the host's.
    pin()
    layers, batch, tokens = (6, 4, 24) if quick else (12, 8, 96)
    config = GPT2Config(n_layer=layers, attn_implementation="eager")
    model = GPT2LMHeadModel(config).cuda().eval()
    made = torch.Generator().manual_seed(4)
    prompts = [torch.randint(0, config.vocab_size, (batch, length), generator=made).cuda() for length in (12, 40, 28)]
    options = {"num_beams": 4, "do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0}

    def step(number: int) -> Any:
        with torch.no_grad():
            return model.generate(prompts[number % len(prompts)], **options).double().sum()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
