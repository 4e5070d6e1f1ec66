"""Short trainings: enough to fall below a simple baseline."""

from __future__ import annotations

import torch
from torch import nn

from goru.lab.cells import LayerConfig, make_layer
from goru.lab.tasks.task import Problem


def fit(problem: Problem, steps: int, *, hidden_size: int = 64, lr: float = 0.005) -> dict[str, float]:
    """Test scores of a GORU after some steps of Adam."""
    torch.manual_seed(0)
    network = problem.network(lambda size: make_layer(LayerConfig(hidden_size=hidden_size), size))
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    carry: list[torch.Tensor] = []
    for step in range(steps):
        loss, after = problem.loss(network, problem.batch(step), carry)
        carry = [state.detach() for state in after]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return scores(problem, network)


def scores(problem: Problem, network: nn.Module, split: str = "test") -> dict[str, float]:
    with torch.no_grad():
        return problem.evaluate(network.eval(), split)


def network_of(problem: Problem, cell: str = "goru", hidden_size: int = 8) -> nn.Module:
    torch.manual_seed(0)
    mesh, capacity = ("tunable", 2) if "eurnn" in cell else ("fft", None)
    kind = "eurnn" if "eurnn" in cell else cell
    layer = LayerConfig(kind, hidden_size, mesh, capacity, complex=cell == "eurnn-complex")  # pyright: ignore
    return problem.network(lambda size: make_layer(layer, size))
