"""The laboratory's GRU and LSTM are goru's; a run with them has the curve that it would have with torch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import goru
from goru.lab.cells import LayerConfig, make_layer
from goru.lab.networks import StepTagger

SYMBOLS, LENGTH, BATCH, STEPS = 6, 20, 8, 30
# In float64 the two differ by the order of their sums: some 1e-15 of a gradient's largest element. The optimizer
# divides each element by its size, so one that is 1e-6 of the largest moves its parameter by 1e-2 * 1e-9 = 1e-11
# beside the way; 30 steps make 3e-10. A wrong gate, bias or gradient changes the loss in its third digit.
TOLERANCE = 1e-9


def curve(network: StepTagger) -> list[float]:
    optimizer = torch.optim.RMSprop(network.parameters(), lr=1e-2)
    random = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        symbols = torch.randint(SYMBOLS, (LENGTH, BATCH), generator=random)
        wanted = symbols.roll(1, 0)  # the symbol before: it has to be remembered
        loss = nn.functional.cross_entropy(network(symbols).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_same_curve_as_with_torch(cell: str) -> None:
    torch.manual_seed(0)
    ours = StepTagger(lambda size: make_layer(LayerConfig(cell=cell, hidden_size=19), size), SYMBOLS, SYMBOLS).double()
    assert isinstance(ours.recurrent, goru.GRU | goru.LSTM)
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    twin = copy.deepcopy(ours)
    twin.recurrent = kind(ours.recurrent.input_size, 19, dtype=torch.float64)
    twin.recurrent.load_state_dict(ours.recurrent.state_dict())
    expected = curve(twin)
    assert expected[-1] < 0.9 * expected[0]  # it learns, so the curve says something
    assert curve(ours) == pytest.approx(expected, rel=TOLERANCE)
