"""Gradients: finite differences for each implementation, and the implementations against each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.specimens import BY_NAME, KINDS, Kind, assert_close, draw, lively, rounding

F32, F64 = torch.float32, torch.float64

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def functional(layer: nn.Module) -> tuple[Any, list[Tensor]]:
    """The layer as a function of its input, its state and every parameter."""
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Tensor, hx: Tensor, *values: Tensor, **more: Any) -> tuple[Tensor, Tensor]:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, hx), more)

    return call, [p.detach().clone().requires_grad_() for p in layer.parameters()]


# gradcheck's own defaults: a step of 1e-6 gives finite differences good to about 1e-9, far within 1e-5.
@each_kind
@pytest.mark.parametrize(
    ("backend", "H"),
    [("reference", 1), ("reference", 3), ("manual", 1), ("manual", 3), ("manual", 4), ("auto", 3)],
)
def test_finite_differences(kind: Kind, backend: str, H: int):
    layer = lively(kind.layer(2, H, backend=backend, dtype=F64))
    call, values = functional(layer)
    x = draw(3, 2, 2).requires_grad_()
    hx = draw(1, 2, H, seed=2, dtype=kind.state_dtype(F64)).requires_grad_()
    # fast_mode compares one random projection of the Jacobian; entry by entry at one size is enough.
    assert torch.autograd.gradcheck(call, (x, hx, *values), fast_mode=H != 3 or backend == "auto")


@pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real"])
@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
def test_finite_differences_with_depth_directions_and_lengths(name: str, backend: str):
    kind, H = BY_NAME[name], 3
    layer = lively(kind.layer(2, H, num_layers=2, bidirectional=True, backend=backend, dtype=F64))
    call, values = functional(layer)
    x = draw(3, 2, 2).requires_grad_()
    hx = draw(4, 2, H, seed=2, dtype=kind.state_dtype(F64)).requires_grad_()
    lengths = torch.tensor([2, 3])
    assert torch.autograd.gradcheck(
        lambda x, hx, *v: call(x, hx, *v, lengths=lengths), (x, hx, *values), fast_mode=True
    )


@each_kind
def test_second_derivatives_of_the_reference(kind: Kind):
    H = 3
    layer = lively(kind.layer(2, H, backend="reference", dtype=F64))
    call, values = functional(layer)
    x = draw(2, 1, 2).requires_grad_()
    hx = draw(1, 1, H, seed=2, dtype=kind.state_dtype(F64)).requires_grad_()
    assert torch.autograd.gradgradcheck(call, (x, hx, *values), fast_mode=kind.complex)


def results(layer: nn.Module, kind: Kind, x: Tensor, hx: Tensor, lengths: Tensor | None) -> dict[str, Tensor]:
    """Outputs and all gradients of one weighted sum of them."""
    x, hx = x.detach().requires_grad_(), hx.detach().requires_grad_()
    output, h_n = layer(x, hx, lengths=lengths)
    weight = draw(*output.shape, seed=21, dtype=output.dtype)
    weight_h = draw(*h_n.shape, seed=22, dtype=h_n.dtype)
    loss = (output * weight).sum() + (h_n * weight_h.conj()).sum().real
    named = dict(layer.named_parameters())
    # H = 1 has no angles; an empty parameter may stay outside the graph.
    wanted = {"input": x, "hx": hx} | {name: p for name, p in named.items() if p.numel()}
    gradients = torch.autograd.grad(loss, list(wanted.values()))
    return {"output": output, "h_n": h_n} | {
        f"gradient of {name}": g for name, g in zip(wanted, gradients, strict=True)
    }


def compare(kind: Kind, dtype: torch.dtype, tolerance: float, **shape: Any) -> None:
    """The manual backend against the reference, in one shape: T, B, I, H and options of the layer."""
    T, B, I, H = (shape.pop(letter) for letter in "TBIH")
    more = shape
    lengths = more.pop("lengths", None)
    strided = more.pop("strided", False)
    D = more.get("num_layers", 1) * (2 if more.get("bidirectional") else 1)
    b_h = "any" if dtype == F64 else "negative"
    manual = lively(kind.layer(I, H, backend="manual", dtype=dtype, **more), b_h=b_h)
    reference = kind.layer(I, H, backend="reference", dtype=dtype, **more)
    reference.load_state_dict(manual.state_dict())
    x, hx = draw(T, B, I, dtype=dtype), draw(D, B, H, seed=2, dtype=kind.state_dtype(dtype))
    given = (x, hx)
    if strided:
        given = (
            torch.stack([draw(B, T, 2 * I, dtype=dtype)] * 2)[1].transpose(0, 1)[..., ::2].copy_(x),
            hx.mT.contiguous().mT,
        )
        assert not given[0].is_contiguous()
        assert torch.equal(given[0], x)
    expected = results(reference, kind, x, hx, lengths)
    actual = results(manual, kind, *given, lengths)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name], value, tolerance, name)


SHAPES = [
    pytest.param({"T": 1, "B": 1, "I": 1, "H": 1}, id="one-of-all"),
    pytest.param({"T": 1, "B": 4, "I": 3, "H": 6}, id="one-step"),
    pytest.param({"T": 9, "B": 1, "I": 3, "H": 7}, id="one-row"),
    pytest.param({"T": 5, "B": 3, "I": 1, "H": 5}, id="one-feature"),
    pytest.param({"T": 6, "B": 5, "I": 4, "H": 9}, id="odd"),
    pytest.param({"T": 4, "B": 17, "I": 5, "H": 16}, id="even"),
    pytest.param({"T": 3, "B": 2, "I": 3, "H": 2}, id="two-units"),
    pytest.param({"T": 6, "B": 4, "I": 3, "H": 5, "lengths": torch.tensor([3, 6, 1, 5])}, id="lengths"),
    pytest.param({"T": 6, "B": 4, "I": 3, "H": 5, "strided": True}, id="strided"),
    pytest.param({"T": 5, "B": 3, "I": 4, "H": 5, "num_layers": 2, "bidirectional": True}, id="deep"),
]


@each_kind
@pytest.mark.parametrize("shape", SHAPES)
def test_manual_equals_reference_in_float64(kind: Kind, shape: dict[str, Any]):
    compare(kind, F64, 1e-10, **shape)


@each_kind
@pytest.mark.parametrize("shape", SHAPES)
def test_manual_equals_reference_in_float32(kind: Kind, shape: dict[str, Any]):
    """b_h <= 0: with b_h > 0 modReLU jumps at 0 and two correct evaluations may part there."""
    steps = shape["T"] * shape.get("num_layers", 1)
    compare(kind, F32, rounding(F32, steps, 2 * shape["H"] + shape["I"]), **shape)


@pytest.mark.parametrize("name", ["goru", "goru-tunable", "eurnn", "eurnn-real"])
def test_manual_equals_reference_over_many_steps(name: str):
    """The published initialization, 120 steps: what training meets."""
    kind = BY_NAME[name]
    torch.manual_seed(0)
    manual = kind.layer(4, 12, backend="manual", dtype=F64)
    reference = kind.layer(4, 12, backend="reference", dtype=F64)
    reference.load_state_dict(manual.state_dict())
    x, hx = draw(120, 3, 4), draw(1, 3, 12, dtype=kind.state_dtype(F64))
    expected = results(reference, kind, x, hx, None)
    for label, value in results(manual, kind, x, hx, None).items():
        assert_close(value, expected[label], 1e-10, label)


@each_kind
@pytest.mark.parametrize("elements", [1, 60, 130, 10**9])
def test_chunks_of_the_manual_passes_may_end_anywhere(kind: Kind, elements: int, monkeypatch):
    """The manual passes walk over chunks of steps; one step a chunk up to all steps in one."""
    monkeypatch.setattr("goru.kernels.chunks.CHUNK_ELEMENTS", elements)
    compare(kind, F64, 1e-10, T=7, B=3, I=2, H=5, bidirectional=True, lengths=torch.tensor([4, 7, 1]))


@pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real"])
def test_a_wide_batch(name: str):
    """Large enough for every way of cutting the work: 37 steps of 65 rows of 131 units."""
    shape = {"T": 37, "B": 65, "I": 6, "H": 131, "bidirectional": True}
    compare(BY_NAME[name], F64, 1e-10, **shape, lengths=torch.arange(65) % 37 + 1)


@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
@pytest.mark.parametrize("name", ["goru", "goru-no-gates", "eurnn", "eurnn-real"])
def test_a_state_of_zero_gives_finite_gradients(name: str, backend: str):
    """x = 0 and h = 0: the argument of modReLU is exactly 0 at every step, with b_h > 0 too."""
    kind = BY_NAME[name]
    layer = lively(kind.layer(3, 4, backend=backend, dtype=F64))
    with torch.no_grad():
        layer.bias_l0.fill_(0.5)
    x = torch.zeros(4, 2, 3, dtype=F64, requires_grad=True)
    output, h_n = layer(x)
    assert torch.equal(output, torch.zeros_like(output))
    gradients = torch.autograd.grad(output.sum() + h_n.real.sum(), [x, *layer.parameters()])
    for gradient in gradients:
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
@pytest.mark.parametrize("name", ["goru-no-gates", "eurnn", "eurnn-real"])
@pytest.mark.parametrize(("dtype", "exponent"), [(F32, -63), (F64, -511)])
def test_the_edge_of_what_counts_as_zero(name: str, backend: str, dtype: torch.dtype, exponent: int):
    """|a| below the square root of the smallest normal number, exactly 2^exponent, is 0; at it a counts."""
    layer: Any = BY_NAME[name].layer(1, 1, backend=backend, dtype=dtype)
    with torch.no_grad():
        layer.weight_ih_l0.zero_()
        layer.weight_ih_l0[0] = 1
        layer.bias_l0.fill_(1)
    edge = 2.0**exponent
    a = torch.tensor([0.999 * edge, -0.999 * edge, edge, -edge, 2 * edge], dtype=dtype)
    assert layer(a.view(1, 5, 1))[0].flatten().tolist() == [0.0, 0.0, 1.0, -1.0, 1.0]


@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
@pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real"])
def test_a_very_negative_bias_switches_units_off(name: str, backend: str):
    """relu is flat there: no gradient reaches the input or the angles through the candidate."""
    kind = BY_NAME[name]
    layer = lively(kind.layer(3, 4, backend=backend, dtype=F64))
    with torch.no_grad():
        layer.bias_l0[-4:] = -1e3
    x = draw(4, 2, 3).requires_grad_()
    output, h_n = layer(x)
    assert torch.equal(output, torch.zeros_like(output))
    for gradient in torch.autograd.grad(output.sum() + h_n.real.sum(), [x, *layer.parameters()]):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real"])
@pytest.mark.parametrize("backend", ["manual", "auto"])
def test_unwritten_memory_is_never_read(name: str, backend: str, monkeypatch):
    """torch fills fresh memory with NaN here; a buffer that is read before it is written shows."""
    kind = BY_NAME[name]
    expected = lively(kind.layer(3, 5, num_layers=2, backend="reference", dtype=F64))
    layer = kind.layer(3, 5, num_layers=2, backend=backend, dtype=F64)
    layer.load_state_dict(expected.state_dict())
    x, hx = draw(5, 3, 3), draw(2, 3, 5, dtype=kind.state_dtype(F64))
    lengths = torch.tensor([5, 2, 1])
    truth = results(expected, kind, x, hx, lengths)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        actual = results(layer, kind, x, hx, lengths)
    finally:
        torch.use_deterministic_algorithms(False)
    for label, value in truth.items():
        assert_close(actual[label], value, 1e-10, label)


@pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real", "eurnn-fft"])
def test_the_reference_is_linear_in_the_number_of_steps(name: str):
    """Each further step adds the same nodes to the graph, and none whose gradient is as long as the sequence.

    Indexing x W by step would make the backward pass quadratic: the gradient of each step is then padded to all T.
    """
    layer = lively(BY_NAME[name].layer(3, 5, backend="reference", dtype=F64))

    def numbers_in_gradients(steps: int) -> tuple[int, int]:
        x = draw(steps, 2, 3).requires_grad_()
        loss = layer(x)[0].square().sum()
        total = 0

        def count(gradients, _) -> None:
            nonlocal total
            total += sum(g.numel() for g in gradients if g is not None)

        seen, waiting = set(), [loss.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                node.register_hook(count)
                waiting += [next_node for next_node, _ in node.next_functions]
        loss.backward()
        return len(seen), total

    (a, first), (b, second), (c, third) = (numbers_in_gradients(steps) for steps in (10, 20, 40))
    assert 0 < c - b == 2 * (b - a)
    assert 0 < third - second == 2 * (second - first)
