"""NaN and infinity in one row of the input: the other rows do not notice, and the backends agree about the rest."""

from __future__ import annotations

import random

import pytest
import torch

import goru
from goru.kernels import native

LAYERS = {
    "goru": lambda *a, **k: goru.GORU(*a, **k),
    "goru-tunable": lambda *a, **k: goru.GORU(*a, mesh="tunable", capacity=3, **k),
    "goru-no-reset": lambda *a, **k: goru.GORU(*a, reset_gate=False, **k),
    "goru-no-update": lambda *a, **k: goru.GORU(*a, update_gate=False, **k),
    "eurnn": lambda *a, **k: goru.EURNN(*a, **k),
    "eurnn-real": lambda *a, **k: goru.EURNN(*a, complex=False, **k),
    "gru": lambda *a, **k: goru.GRU(*a, **k),
    "lstm": lambda *a, **k: goru.LSTM(*a, **k),
}


@pytest.mark.parametrize("backend", ["manual", "native"])
@pytest.mark.parametrize("name", LAYERS)
def test_one_row_that_is_not_finite(name: str, backend: str) -> None:
    if backend == "native" and native.unavailable_reason():
        pytest.skip("no native kernels")
    chance = random.Random(f"{name} {backend}")
    torch.manual_seed(chance.randrange(1 << 30))
    for _ in range(16):
        T, B, I, H = (chance.choice(sizes) for sizes in ((1, 2, 5, 9), (1, 2, 5, 9, 17), (1, 3, 9), (4, 17, 33)))
        dtype = chance.choice([torch.float32, torch.float64])
        layer = LAYERS[name](I, H, bidirectional=chance.random() < 0.3, dtype=dtype)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(0, 0.5)
        x = torch.randn(T, B, I, dtype=dtype)
        step, row = chance.randrange(T), chance.randrange(B)
        x[step, row, chance.randrange(I)] = chance.choice([torch.nan, torch.inf, -torch.inf])
        lengths = torch.randint(1, T + 1, (B,)) if chance.random() < 0.5 else None
        weight = torch.randn(T, B, H * layer.num_directions, dtype=dtype)
        found = []
        for one in (backend, "reference"):
            with goru.use_backend(one):
                leaf = x.clone().requires_grad_()
                output, _ = layer(leaf, lengths=lengths)
                (dx,) = torch.autograd.grad((output * weight).sum(), [leaf])
                found.append((output.detach(), dx))
        (output, dx), (expected_output, expected_dx) = found
        case = (T, B, I, H, dtype, step, row, lengths, layer.bidirectional)
        assert torch.equal(output.isfinite(), expected_output.isfinite()), case
        assert torch.equal(dx.isfinite(), expected_dx.isfinite()), case
        others = [b for b in range(B) if b != row]
        assert dx[:, others].isfinite().all(), case
        near = 1e-3 if dtype is torch.float32 else 1e-9
        torch.testing.assert_close(dx[:, others], expected_dx[:, others], rtol=near, atol=near)
