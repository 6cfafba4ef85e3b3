"""Generates text with transformers' GPT-2 and a growing cache, and trains on it, as reinforcement learning does."""

from __future__ import annotations

from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch of texts and a step of the optimizer; its number is the loss."""
    from transformers import GPT2Config, GPT2LMHeadModel

    # Its time is the host's.
    pin()
    layers, batch, tokens = (6, 8, 32) if quick else (12, 16, 128)
    config = GPT2Config(n_layer=layers, attn_implementation="eager", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config).cuda().eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    made = torch.Generator().manual_seed(5)
    prompts = [torch.randint(0, config.vocab_size, (batch, length), generator=made).cuda() for length in (16, 48, 32)]

    def step(number: int) -> Any:
        texts = [prompts[number % len(prompts)]]
        with torch.no_grad():
            said = model(texts[0], use_cache=True)
            for _ in range(tokens):
                texts.append(said.logits[:, -1:].argmax(-1))
                said = model(texts[-1], past_key_values=said.past_key_values, use_cache=True)
        del said
        text = torch.cat(texts, 1)
        optimizer.zero_grad(set_to_none=True)
        loss = model(text, labels=text, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
