"""A model whose training does not depend on who takes part: every worker sees the same batch."""

import torch


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=generator)
    return x, torch.tanh(x.sum(1, keepdim=True))


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def one_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    x, y = batch(step)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def summary(model: torch.nn.Module) -> float:
    return sum(float(p.detach().abs().sum()) for p in model.parameters())


def after(steps: int) -> str:
    """What one process alone comes to."""
    model, optimizer = build()
    for step in range(steps):
        one_step(model, optimizer, step)
    return f"{summary(model):.4f}"
