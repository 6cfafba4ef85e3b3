"""Continuous batching for a decoder with random weights: requests come, their keys and values grow, and they go."""

from __future__ import annotations

import math
import random
from typing import Any

from harness import Step, main, pin

WIDTH = 1024
HEADS = 16
VOCABULARY = 32_000
#: Tokens by which a request's keys and values grow.
GROWTH = 64
#: Passes of a step; each adds a token to every request.
PASSES = 8


class Request:
    """Tokens for the next pass, and the keys and values of each layer."""

    def __init__(self, prompt: Any, passes: int, layers: int) -> None:
        self.tokens = prompt
        self.passes = passes
        self.length = 0
        self.kept: list[Any] = [None] * layers

    def keep(self, layer: int, new: Any) -> Any:
        """Adds keys and values of this pass's tokens, and returns all there are."""
        kept, length = self.kept[layer], self.length + new.shape[2]
        if kept is None or length > kept.shape[2]:
            grown = new.new_empty(2, HEADS, -(-length // GROWTH) * GROWTH, WIDTH // HEADS)
            if kept is not None:
                grown[:, :, : self.length] = kept[:, :, : self.length]
            self.kept[layer] = kept = grown
        kept[:, :, self.length : length] = new
        return kept[:, :, :length]

    def goes_on(self, token: Any) -> None:
        """A pass is queued, which ended with this token."""
        self.length += len(self.tokens)
        self.tokens = token
        self.passes -= 1


def decoder(torch: Any, layers: int) -> Any:
    """It takes the tokens of all requests, one request after the other, and says the logits of each one's next."""

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number
            self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

        def attend(self, request: Request, qkv: Any) -> Any:
            count = qkv.shape[0]
            qkv = qkv.view(count, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
            keys, values = request.keep(self.number, qkv[1:])
            scores = qkv[0] @ keys.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
            if count > 1:
                future = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu(1)
                scores = scores.masked_fill(future, float("-inf"))
            return (scores.softmax(-1) @ values).transpose(0, 1).reshape(count, WIDTH)

        def forward(self, x: Any, requests: list[Request], counts: list[int]) -> Any:
            parts = self.qkv(self.first(x)).split(counts)
            x = x + self.out(torch.cat([self.attend(*pair) for pair in zip(requests, parts, strict=True)]))
            return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.layers = torch.nn.ModuleList(Layer(number) for number in range(layers))

        def forward(self, requests: list[Request]) -> Any:
            counts = [len(request.tokens) for request in requests]
            x = self.words(torch.cat([request.tokens for request in requests]))
            for layer in self.layers:
                x = layer(x, requests, counts)
            return self.head(torch.stack([part[-1] for part in x.split(counts)]))

    return Model()


def build(torch: Any, quick: bool) -> Step:
    """One step is `PASSES` passes; its number is the sum of their logits."""
    # Its time is the host's.
    pin()
    layers, most, longest = (6, 12, 384) if quick else (16, 32, 1024)
    model = decoder(torch, layers).to(torch.bfloat16).cuda().eval()
    made, rng = torch.Generator().manual_seed(9), random.Random(9)
    lengths = [rng.randrange(16, longest + 1) for _ in range(64)]
    prompts = [torch.randint(0, VOCABULARY, (length,), generator=made).pin_memory() for length in lengths]
    requests: list[Request] = []

    def one_pass() -> Any:
        requests[:] = [request for request in requests if request.passes > 0]
        while len(requests) < most:
            prompt = prompts[rng.randrange(len(prompts))].cuda(non_blocking=True)
            requests.append(Request(prompt, rng.randrange(8, 129), layers))
        logits = model(requests)
        for request, token in zip(requests, logits.argmax(-1).split(1), strict=True):
            request.goes_on(token)
        return logits.double().sum()

    def step(number: int) -> Any:
        with torch.no_grad():
            return torch.stack([one_pass() for _ in range(PASSES)]).sum()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
