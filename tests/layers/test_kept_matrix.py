"""U is kept while the angles stay; it must never be a stale one, nor get in the way of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.specimens import BY_NAME, PLAIN, Kind, assert_close, draw, lively

F64 = torch.float64
I, H = 3, 4

plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)


def gradients(layer: nn.Module, x: Tensor) -> dict[str, Any]:
    layer.zero_grad(set_to_none=True)
    layer(x)[0].square().sum().backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in layer.named_parameters()}


def changes() -> dict[str, Callable[[Any, Tensor], object]]:
    """Ways in which people change a parameter; each gives the layer the new angles."""

    def in_place(layer: Any, new: Tensor) -> None:
        with torch.no_grad():
            layer.angles_l0.copy_(new)

    def through_data(layer: Any, new: Tensor) -> None:
        layer.angles_l0.data.copy_(new)

    def new_data(layer: Any, new: Tensor) -> None:
        layer.angles_l0.data = new.clone()

    def new_parameter(layer: Any, new: Tensor) -> None:
        layer.angles_l0 = nn.Parameter(new.clone())

    def state_dict(layer: Any, new: Tensor) -> None:
        layer.load_state_dict({**layer.state_dict(), "angles_l0": new})

    def assigned(layer: Any, new: Tensor) -> None:
        layer.load_state_dict({**layer.state_dict(), "angles_l0": new.clone()}, assign=True)

    def through_numpy(layer: Any, new: Tensor) -> None:
        layer.angles_l0.detach().numpy()[:] = new.numpy()

    def optimizer(layer: Any, new: Tensor) -> None:
        layer.angles_l0.grad = (layer.angles_l0 - new).detach()
        torch.optim.SGD([layer.angles_l0], lr=1.0).step()

    def vector(layer: Any, new: Tensor) -> None:
        nn.utils.vector_to_parameters(new, [layer.angles_l0])

    ways = (in_place, through_data, new_data, new_parameter, state_dict, assigned, through_numpy, optimizer)
    return {way.__name__: way for way in (*ways, vector)}


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "training"])
@pytest.mark.parametrize("way", changes())
@pytest.mark.parametrize("name", ["goru", "eurnn"])
def test_new_angles_take_effect_at_once(name: str, way: str, mode: str):
    kind = BY_NAME[name]
    layer = lively(kind.layer(I, H, dtype=F64)).eval()
    x = draw(5, 2, I)

    def forward() -> Tensor:
        if mode == "training":
            return layer(x)[0].detach()
        with torch.no_grad() if mode == "no_grad" else torch.inference_mode():
            return layer(x)[0].clone()

    before = forward()
    layer.orthogonal_matrix()
    new = layer.angles_l0.detach() + 0.5
    changes()[way](layer, new)
    fresh = kind.layer(I, H, dtype=F64).eval()
    fresh.load_state_dict(layer.state_dict())
    assert_close(fresh.angles_l0, new, 1e-15)
    after = forward()
    assert not torch.equal(before, after)
    assert_close(after, fresh(x)[0], 1e-12)
    assert_close(layer.orthogonal_matrix(), fresh.orthogonal_matrix(), 1e-14)


@plain_kinds
def test_inference_then_training(kind: Kind):
    """What inference keeps must not be met by autograd: inference tensors cannot be saved for backward."""
    layer = lively(kind.layer(I, H, dtype=F64))
    x = draw(5, 2, I)
    expected = gradients(layer, x)
    with torch.inference_mode():
        layer(x)
    with torch.no_grad():
        layer(x)
    for name, gradient in gradients(layer, x).items():
        assert_close(gradient, expected[name], 1e-13, name)


@plain_kinds
@pytest.mark.parametrize("backend", ["auto", "manual", "reference"])
def test_inference_then_training_with_frozen_angles(kind: Kind, backend: str):
    """U needs no gradient then, but the weights do: what inference_mode kept must not be saved for backward."""
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    layer.angles_l0.requires_grad_(False)
    x = draw(5, 2, I)
    expected = gradients(layer, x)
    assert expected.pop("angles_l0") is None
    fresh = kind.layer(I, H, backend=backend, dtype=F64)
    fresh.load_state_dict(layer.state_dict())
    fresh.angles_l0.requires_grad_(False)
    with torch.inference_mode():
        fresh(x)
    actual = gradients(fresh, x)
    for name, gradient in expected.items():
        assert_close(actual[name], gradient, 1e-13, name)
