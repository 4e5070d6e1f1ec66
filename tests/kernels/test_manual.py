"""The manual kernels walk over chunks of steps; where the chunks end must not change anything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import goru
from goru.kernels import chunks

LAYERS = {
    "GORU": lambda: goru.GORU(3, 5, bidirectional=True, dtype=torch.float64, backend="manual"),
    "GORU, no update gate": lambda: goru.GORU(
        3, 5, bidirectional=True, update_gate=False, dtype=torch.float64, backend="manual"
    ),
    "EURNN real": lambda: goru.EURNN(3, 5, bidirectional=True, complex=False, dtype=torch.float64, backend="manual"),
    "EURNN complex": lambda: goru.EURNN(3, 5, bidirectional=True, dtype=torch.float64, backend="manual"),
}


def results(layer: torch.nn.Module, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    layer.zero_grad()
    x = x.clone().requires_grad_()
    output, h_n = layer(x, lengths=lengths)
    (output.sin().sum() + h_n.abs().square().sum()).backward()
    with torch.no_grad():
        inference, _ = layer(x, lengths=lengths)
    gradients = [parameter.grad for parameter in layer.parameters()]
    assert x.grad is not None
    return [output.detach(), h_n.detach(), inference, x.grad, *(g for g in gradients if g is not None)]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("elements", [1, 100, 170])
def test_chunks_change_nothing(kind: str, ragged: bool, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind]()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x = torch.randn(11, 4, 3, dtype=torch.float64)
    lengths = torch.tensor([3, 11, 1, 7]) if ragged else None
    whole = results(layer, x, lengths)
    # 11 steps in chunks of 1, and of sizes that leave a shorter chunk at one end.
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", elements)
    for one, other in zip(whole, results(layer, x, lengths), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
