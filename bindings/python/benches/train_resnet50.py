"""Trains torchvision's ResNet-50 with random weights on random images."""

from __future__ import annotations

from typing import Any

from harness import Step, main, pin


def build(torch: Any, quick: bool) -> Step:
    """One step is one batch; its number is the loss."""
    from torchvision.models import resnet50

    # Before the first thread of its own: that one is kept there as well.
    pin()
    batch = 32 if quick else 128
    model = resnet50(weights=None).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    made = torch.Generator().manual_seed(1)
    images = [torch.randn(batch, 3, 224, 224, generator=made).pin_memory() for _ in range(4)]
    labels = [torch.randint(0, 1000, (batch,), generator=made).pin_memory() for _ in range(4)]

    def step(number: int) -> Any:
        of = number % len(images)
        inputs, targets = images[of].cuda(non_blocking=True), labels[of].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__doc__ or "", build)
