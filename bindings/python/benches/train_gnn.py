"""Trains a graph network on random graphs of different sizes: messages along edges, summed up where they end."""

from __future__ import annotations

import random
from typing import Any

from harness import Step, main, pin

WIDTH = 128
#: Of nodes, and what distinguishes them.
KINDS = 64


def network(torch: Any, layers: int) -> Any:
    """It says of each node one of `KINDS`."""

    def perceptron() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.message, self.update, self.norm = perceptron(), perceptron(), torch.nn.LayerNorm(WIDTH)

        def forward(self, nodes: Any, begins: Any, ends: Any) -> Any:
            messages = self.message(torch.cat((nodes.index_select(0, begins), nodes.index_select(0, ends)), 1))
            # In the order of the edges: deterministic algorithms sort them first.
            sums = torch.zeros_like(nodes).index_add(0, ends, messages)
            return self.norm(nodes + self.update(torch.cat((nodes, sums), 1)))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kinds, self.head = torch.nn.Embedding(KINDS, WIDTH), torch.nn.Linear(WIDTH, KINDS)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, kinds: Any, begins: Any, ends: Any) -> Any:
            nodes = self.kinds(kinds)
            for layer in self.layers:
                nodes = layer(nodes, begins, ends)
            return self.head(nodes)

    return Model()


def build(torch: Any, quick: bool) -> Step:
    """One step is one graph; its number is the loss."""
    # Before the first thread of its own: that one is kept there as well.
    pin()
    layers, most = (6, 16_000) if quick else (8, 24_000)
    model = network(torch, layers).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made, rng = torch.Generator().manual_seed(6), random.Random(6)

    def graph() -> list[Any]:
        nodes = rng.randrange(most // 8, most + 1)
        edges = nodes * rng.randrange(4, 17)
        kinds, targets = torch.randint(0, KINDS, (2, nodes), generator=made)
        begins, ends = torch.randint(0, nodes, (2, edges), generator=made)
        return [tensor.pin_memory() for tensor in (kinds, begins, ends, targets)]

    # More than there are steps: no graph comes twice.
    graphs = [graph() for _ in range(64)]

    def step(number: int) -> Any:
        kinds, begins, ends, targets = (tensor.cuda(non_blocking=True) for tensor in graphs[number % len(graphs)])
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(kinds, begins, ends), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
