"""Gradients as users meet them: clipped, frozen, expanded, added up, with dropout and parametrizations."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import goru
from tests.specimens import BY_NAME, KINDS, PLAIN, Kind, assert_close, draw, lively, rounding

F32, F64 = torch.float32, torch.float64
I, H = 3, 4

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
backends = pytest.mark.parametrize("backend", ["auto", "reference", "manual"])


def gradients(layer: nn.Module, x: Tensor) -> dict[str, Any]:
    layer.zero_grad(set_to_none=True)
    layer(x)[0].square().sum().backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in layer.named_parameters()}


@backends
@each_kind
def test_clip_grad_norm(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    before = gradients(layer, draw(5, 2, I) * 10)
    total = math.sqrt(sum(float(g.square().sum()) for g in before.values() if g is not None))
    told = nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
    assert float(told) == pytest.approx(total, rel=1e-12)
    for name, p in layer.named_parameters():
        assert_close(p.grad, before[name] * (0.5 / (total + 1e-6)), 1e-12, name)


@backends
@pytest.mark.parametrize("name", ["goru", "goru-no-reset", "eurnn", "eurnn-real"])
def test_freezing_single_parameters(name: str, backend: str):
    layer = lively(BY_NAME[name].layer(I, H, num_layers=2, backend=backend, dtype=F64))
    x = draw(5, 2, I)
    full = gradients(layer, x)
    for frozen, parameter in layer.named_parameters():
        parameter.requires_grad_(False)
        partial = gradients(layer, x)
        assert partial[frozen] is None
        for other, gradient in partial.items():
            if other != frozen:
                assert_close(gradient, full[other], 1e-12, f"{other} with {frozen} frozen")
        parameter.requires_grad_(True)


@backends
@plain_kinds
def test_all_frozen_but_the_input_still_gets_its_gradient(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x = draw(5, 2, I).requires_grad_()
    layer(x)[0].square().sum().backward()
    expected = x.grad
    layer.requires_grad_(False)
    x = x.detach().requires_grad_()
    layer(x)[0].square().sum().backward()
    assert_close(x.grad, expected, 1e-12)
    assert not layer(x.detach())[0].requires_grad


@backends
@each_kind
def test_expanded_gradients(kind: Kind, backend: str):
    """sum().backward() hands over a gradient of stride 0."""
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x, hx = draw(5, 2, I).requires_grad_(), draw(1, 2, H, dtype=kind.state_dtype(F64)).requires_grad_()
    inputs = [x, hx, *layer.parameters()]
    output, h_n = layer(x, hx)
    one = torch.ones((), dtype=F64)
    expanded = torch.autograd.grad(
        [output, h_n], inputs, [one.expand_as(output), one.to(h_n.dtype).expand_as(h_n)], retain_graph=True
    )
    plain = torch.autograd.grad([output, h_n], inputs, [torch.ones_like(output), torch.ones_like(h_n)])
    for a, b in zip(expanded, plain, strict=True):
        assert_close(a, b, 1e-13)


@backends
@each_kind
def test_gradients_through_one_of_the_two_results(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x = draw(5, 2, I)
    params = list(layer.parameters())
    g_out, g_h = draw(5, 2, H, seed=4), draw(1, 2, H, seed=5, dtype=kind.state_dtype(F64))
    output, h_n = layer(x)
    both = torch.autograd.grad([output, h_n], params, [g_out, g_h], retain_graph=True)
    only_output = torch.autograd.grad(output, params, g_out, retain_graph=True)
    only_h_n = torch.autograd.grad(h_n, params, g_h)
    for a, b, c in zip(both, only_output, only_h_n, strict=True):
        assert_close(a, b + c, 1e-12)


@backends
@plain_kinds
def test_gradients_add_up_over_backward_passes(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x = draw(5, 2, I)
    once = gradients(layer, x)
    layer(x)[0].square().sum().backward()
    for name, p in layer.named_parameters():
        assert_close(p.grad, 2 * once[name], 1e-13, name)


@backends
@plain_kinds
def test_two_passes_before_one_backward(kind: Kind, backend: str):
    """Buffers of the first pass must not be taken by the second."""
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x, y = draw(5, 2, I), draw(5, 2, I, seed=8)
    a, b = gradients(layer, x), gradients(layer, y)
    layer.zero_grad()
    first, second = layer(x)[0], layer(y)[0]
    first.square().sum().backward()
    second.square().sum().backward()
    for name, p in layer.named_parameters():
        assert_close(p.grad, a[name] + b[name], 1e-13, name)


@backends
@plain_kinds
def test_backward_twice_through_a_kept_graph(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    loss = layer(draw(5, 2, I))[0].square().sum()
    params = list(layer.parameters())
    first = torch.autograd.grad(loss, params, retain_graph=True)
    second = torch.autograd.grad(loss, params)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(loss, params)


@backends
@plain_kinds
def test_changing_a_parameter_between_forward_and_backward_is_noticed(kind: Kind, backend: str):
    """As everywhere in torch: a tensor needed for the gradient was modified in place."""
    layer = lively(kind.layer(I, H, backend=backend))
    loss = layer(draw(5, 2, I, dtype=F32))[0].square().sum()
    with torch.no_grad():
        layer.angles_l0.add_(1.0)
        layer.weight_ih_l0.add_(1.0)
        if hasattr(layer, "weight_hh_l0"):
            layer.weight_hh_l0.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@backends
@plain_kinds
def test_changing_the_output_in_place_never_gives_a_wrong_gradient(kind: Kind, backend: str):
    """relu_, += and their like: the gradient is right, or torch says that a saved tensor was modified."""
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x = draw(5, 2, I)
    (layer(x)[0] * 2.0).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    try:
        layer(x)[0].mul_(2.0).square().sum().backward()
    except RuntimeError as error:
        assert backend != "reference"
        if "modified by an inplace operation" not in str(error):
            raise
    else:
        for name, p in layer.named_parameters():
            assert_close(p.grad, expected[name], 1e-12, name)


@backends
@each_kind
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_empty_batch_forward_and_backward(kind: Kind, backend: str, options):
    layer = kind.layer(I, H, backend=backend, **options)
    x = torch.empty(5, 0, I, requires_grad=True)
    output, h_n = layer(x)
    (output.sum() + h_n.abs().sum()).backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    for name, p in layer.named_parameters():
        assert p.grad is not None, name
        assert torch.equal(p.grad, torch.zeros_like(p)), name


@backends
@pytest.mark.parametrize("name", ["goru", "goru-no-gates", "eurnn", "eurnn-real"])
def test_one_unit(name: str, backend: str):
    """H = 1: no angles, and training works all the same."""
    layer = BY_NAME[name].layer(I, 1, backend=backend)
    output, h_n = layer(draw(4, 2, I, dtype=F32))
    assert output.shape == (4, 2, 1)
    (output.sum() + h_n.abs().sum()).backward()
    assert layer.weight_ih_l0.grad.abs().sum() > 0
    torch.optim.Adam(layer.parameters()).step()
    assert layer.orthogonality_error() == 0.0


@plain_kinds
def test_optimizer_lowers_the_loss(kind: Kind):
    torch.manual_seed(0)
    layer, head = kind.layer(I, 8), nn.Linear(8, 1)
    x = draw(6, 16, I, dtype=F32)
    target = x.sum(0)[:, :1].tanh()
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(head(layer(x)[0][-1]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@plain_kinds
def test_dropout_of_one_leaves_the_upper_layer_without_input(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, dropout=1.0, dtype=F64))
    x = draw(5, 2, I)
    upper = kind.layer(H, H, dtype=F64)
    upper.load_state_dict({n.replace("_l1", "_l0"): v for n, v in layer.state_dict().items() if "_l1" in n})
    output, h_n = layer(x)
    assert_close(output, upper(torch.zeros(5, 2, H, dtype=F64))[0], 1e-13)
    lower = kind.layer(I, H, dtype=F64)
    lower.load_state_dict({n: v for n, v in layer.state_dict().items() if "_l0" in n})
    assert_close(h_n[:1], lower(x)[1], 1e-13)  # the state itself is not dropped


@plain_kinds
def test_dropout_only_in_training_and_by_the_seed(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, dropout=0.5, dtype=F64))
    plain = kind.layer(I, H, num_layers=2, dtype=F64)
    plain.load_state_dict(layer.state_dict())
    x = draw(5, 2, I)
    layer.eval()
    assert torch.equal(layer(x)[0], plain(x)[0])
    layer.train()
    torch.manual_seed(3)
    first = layer(x)[0]
    torch.manual_seed(3)
    assert torch.equal(layer(x)[0], first)
    assert not torch.equal(layer(x)[0], first)
    assert not torch.equal(first, plain(x)[0])


def test_dropout_zeroes_or_scales_each_element_on_its_own():
    """An upper layer that passes its one step on: what it sees is 0 or twice what the lower layer gave."""
    layer: Any = goru.EURNN(I, 6, 2, bias=False, dropout=0.5, complex=False, dtype=F64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(draw(6, I))
        layer.weight_ih_l1.copy_(torch.eye(6))
    x = draw(1, 200, I)
    torch.manual_seed(0)
    output, h_n = layer(x)
    ratio = (output / h_n[:1]).flatten()
    dropped, kept = ratio.abs() < 1e-12, (ratio - 2).abs() < 1e-9
    assert (dropped | kept).all()
    # 1200 fair coins: six deviations of sqrt(1200) / 2
    assert abs(int(dropped.sum()) - 600) < 6 * math.sqrt(1200) / 2


def test_dropout_is_drawn_for_every_step():
    layer: Any = goru.EURNN(I, 6, 2, bias=False, dropout=0.5, complex=False, dtype=F64)
    with torch.no_grad():
        layer.weight_ih_l1.copy_(torch.eye(6))
        layer.angles_l1.zero_()
    torch.manual_seed(0)
    output, _ = layer(draw(40, 1, I))
    masks = output.diff(dim=0).abs() > 1e-12  # the upper layer adds up what it sees
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) > 20


@plain_kinds
def test_train_and_eval_give_the_same_without_dropout(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, dtype=F64))
    x = draw(5, 2, I)
    expected = layer(x)[0]
    layer.eval()
    allowed = rounding(F64, 10, 2 * H + I)
    assert_close(layer(x)[0], expected, allowed)
    with torch.no_grad():
        assert_close(layer(x)[0], expected, allowed)
    with torch.inference_mode():
        assert_close(layer(x)[0], expected, allowed)


@backends
@plain_kinds
def test_functional_call(kind: Kind, backend: str):
    layer, other = (lively(kind.layer(I, H, backend=backend, dtype=F64), seed) for seed in (1, 2))
    x = draw(5, 2, I)
    given = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    with torch.no_grad():
        layer(x)  # nothing kept from here may leak into the functional call
    output, _ = torch.func.functional_call(layer, given, (x,))
    assert_close(output, other(x)[0], 1e-13)
    grads = torch.autograd.grad(output.square().sum(), list(given.values()))
    expected = gradients(other, x)
    for (name, _), gradient in zip(given.items(), grads, strict=True):
        assert_close(gradient, expected[name], 1e-12, name)
    assert all(p.grad is None for p in layer.parameters())


@plain_kinds
def test_func_grad(kind: Kind):
    layer = lively(kind.layer(I, H, backend="reference", dtype=F64))
    x = draw(5, 2, I)
    params = {name: p.detach() for name, p in layer.named_parameters()}
    grads = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,))[0].square().sum())(params)
    for name, expected in gradients(layer, x).items():
        assert_close(grads[name], expected, 1e-12, name)


class Scaled(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value * 3.0


@backends
@pytest.mark.parametrize("parameter", ["weight_ih_l0", "weight_hh_l0", "bias_l0", "angles_l0"])
def test_a_parametrized_weight_is_used_and_trains(parameter: str, backend: str):
    layer = lively(goru.GORU(I, H, backend=backend, dtype=F64))
    x = draw(5, 2, I)
    plain = copy.deepcopy(layer)
    with torch.no_grad():
        getattr(plain, parameter).mul_(3.0)
    parametrize.register_parametrization(layer, parameter, Scaled())
    assert_close(layer(x)[0], plain(x)[0], 1e-13)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    original = layer.parametrizations[parameter].original
    start, before = original.detach().clone(), layer(x)[0].detach()
    layer(x)[0].square().sum().backward()
    expected = gradients(plain, x)[parameter] * 3.0
    assert_close(original.grad, expected, 1e-12)
    optimizer.step()
    assert not torch.equal(original, start)
    assert not torch.equal(layer(x)[0], before)
    with torch.no_grad():
        assert_close(layer(x)[0], layer.eval()(x)[0], 1e-13)


def test_weight_norm():
    layer = lively(goru.GORU(I, H, dtype=F64))
    x = draw(5, 2, I)
    expected = layer(x)[0].detach()
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    assert_close(layer(x)[0], expected, 1e-13)
    layer(x)[0].sum().backward()
    assert layer.parametrizations.weight_hh_l0.original0.grad.abs().sum() > 0
