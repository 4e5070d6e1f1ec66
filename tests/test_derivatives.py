"""Derivatives beyond one backward pass: every backend gives them, by the equations where it has to.

Compared with the reference backend, which torch differentiates alone, or with finite differences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import goru

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of which torch.func makes use
BACKENDS = ["manual", "native"]
KINDS: dict[str, Callable[..., Any]] = {
    "GORU": lambda **options: goru.GORU(2, 3, **options),
    "GORU by rotations": lambda **options: goru.GORU(2, 64, mesh="tunable", capacity=2, **options),
    "EURNN": lambda **options: goru.EURNN(2, 3, complex=False, bidirectional=True, **options),
    "EURNN complex": lambda **options: goru.EURNN(2, 3, **options),
}


def pair(kind: str, backend: str) -> tuple[Any, Any, Tensor]:
    """A layer on a backend, its twin on the reference, and an input."""
    torch.manual_seed(0)
    layer, twin = (KINDS[kind](backend=name).double() for name in (backend, "reference"))
    for parameter in layer.parameters():
        parameter.data.uniform_(-0.7, 0.7)
    twin.load_state_dict(layer.state_dict())
    return layer, twin, torch.randn(4, 2, 2, dtype=torch.float64)


def dual(layer: Any, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x.cos()))[0]).tangent
        assert tangent is not None
        return tangent


def dual_angles(layer: Any, x: Tensor) -> Tensor:
    angles = layer.angles_l0.detach()
    with forward_ad.dual_level(), torch.no_grad():
        layer(x)  # U is cached from here on
        changed = {"angles_l0": forward_ad.make_dual(angles, torch.ones_like(angles))}
        tangent = forward_ad.unpack_dual(torch.func.functional_call(layer, changed, (x,))[0]).tangent
        assert tangent is not None
        return tangent


def second(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    wanted = [x, *layer.parameters()]
    first = torch.autograd.grad(layer(x)[0].pow(3).sum(), wanted, create_graph=True)
    return torch.autograd.grad(torch.stack([g.pow(2).sum() for g in first]).sum(), wanted)


def third(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    (value,) = torch.autograd.grad(layer(x)[0].pow(3).sum(), x, create_graph=True)
    (value,) = torch.autograd.grad(value.pow(3).sum(), x, create_graph=True)
    return torch.autograd.grad(value.pow(2).sum(), x)


def batched(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    output = layer(x)[0]
    grads = torch.randn(3, *output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(1))
    wanted = [x, *layer.parameters()]
    each = torch.vmap(lambda grad: torch.autograd.grad(output, x, grad, retain_graph=True)[0])(grads)
    return each, *torch.autograd.grad(output, wanted, grads, is_grads_batched=True)


def by_parameters(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, parameters, (x,))[0].pow(2).sum()

    return tuple(torch.func.grad(loss)(dict(layer.named_parameters())).values())


def with_lengths(layer: Any, x: Tensor) -> Tensor:
    lengths = torch.tensor([4, 2])
    return torch.func.grad(lambda x: layer(x, lengths=lengths)[0].pow(2).sum())(x)


DERIVATIVES: dict[str, Callable[[Any, Tensor], Any]] = {
    "second": second,
    "third": third,
    "batched": batched,
    "grad": lambda layer, x: torch.func.grad(lambda x: layer(x)[0].pow(2).sum())(x),
    "grad of parameters": by_parameters,
    "grad with lengths": with_lengths,
    "jvp": lambda layer, x: torch.func.jvp(lambda x: layer(x)[0], (x,), (x.cos(),))[1],
    "jacrev": lambda layer, x: torch.func.jacrev(lambda x: layer(x)[0])(x),
    "jacfwd": lambda layer, x: torch.func.jacfwd(lambda x: layer(x)[0])(x),
    "hessian": lambda layer, x: torch.func.hessian(lambda x: layer(x)[0].pow(2).sum())(x),
    "vmap": lambda layer, x: torch.vmap(layer, 0, 0)(torch.stack([x, x.sin(), x.cos()])),
    "dual input": dual,
    "dual angles": dual_angles,
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_the_reference(kind: str, backend: str, derivative: str, caplog: pytest.LogCaptureFixture) -> None:
    if derivative in ("hessian", "jacrev", "jacfwd") and kind == "GORU by rotations":
        pytest.skip("large, and no other way through the code than grad and jvp")
    layer, twin, x = pair(kind, backend)
    with caplog.at_level(logging.INFO, logger="goru"):
        found = DERIVATIVES[derivative](layer, x)
    assert "the reference backend runs instead" in caplog.text
    expected = DERIVATIVES[derivative](twin, x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_against_finite_differences(backend: str) -> None:
    layer, _, x = pair("GORU", backend)
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))[0]

    arguments = [t.detach().clone().requires_grad_() for t in (x[:2], *layer.parameters())]
    assert torch.autograd.gradgradcheck(run, arguments)
    assert torch.autograd.gradcheck(run, arguments, check_batched_grad=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_derivatives_stay_with_their_backend(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    layer, _, x = pair("GORU", backend)
    x = x.requires_grad_()
    with caplog.at_level(logging.INFO, logger="goru"):
        plain = torch.autograd.grad(layer(x)[0].sum(), x)
        again = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    assert not caplog.text
    assert torch.equal(plain[0], again[0])


def test_an_operator_under_vmap() -> None:
    layer, _, x = pair("GORU", "native")
    program = torch.export.export(layer, (x,)).module()
    xs = torch.stack([x, x.sin(), x.cos()])
    for grad in (torch.enable_grad, torch.no_grad):
        with grad():
            torch.testing.assert_close(torch.vmap(program)(xs)[0], torch.stack([layer(x)[0] for x in xs]))


@pytest.mark.filterwarnings("ignore")
def test_torch_func_inside_torch_compile() -> None:
    layer, twin, x = pair("GORU", "native")

    def gradient(layer: Any) -> Callable[[Tensor], Tensor]:
        return torch.func.grad(lambda x: layer(x)[0].pow(2).sum())

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(gradient(layer), backend="aot_eager")(x), gradient(twin)(x))
