"""bfloat16 and float16 on the native kernels: float32 arithmetic, results rounded once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import goru
from goru.kernels import backends, native
from goru.kernels.gated import GatedOptions
from tests.kernels.test_gated import RECURRENCES, Problem
from tests.specimens import assert_close, draw, lively, rounding

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)

T, B, I, H = 30, 5, 6, 20
LAYERS: dict[str, Any] = {
    "goru": lambda **options: lively(goru.GORU(I, H, **options), b_h="negative"),
    "goru-no-gates": lambda **options: lively(
        goru.GORU(I, H, reset_gate=False, update_gate=False, **options), b_h="negative"
    ),
    "goru-matrix": lambda **options: lively(goru.GORU(I, H, mesh="tunable", capacity=H, **options), b_h="negative"),
    "eurnn": lambda **options: lively(goru.EURNN(I, H, complex=False, **options), b_h="negative"),
    "eurnn-complex": lambda **options: lively(goru.EURNN(I, H, **options), b_h="negative"),
    "gru": lambda **options: goru.GRU(I, H, **options),
    "lstm": lambda **options: goru.LSTM(I, H, **options),
}
MATRIX = ("goru-matrix", "eurnn")  # U acts as a matrix: built in float32 and rounded once, before the recurrence
each_layer = pytest.mark.parametrize("name", LAYERS)
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


def twins(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A layer in half precision on the native kernels, and one in float32 on the reference with the same numbers."""
    torch.manual_seed(5)
    low = LAYERS[name](dtype=dtype)
    high = LAYERS[name](backend="reference")
    high.load_state_dict({key: value.float() for key, value in low.state_dict().items()})
    if name in MATRIX:
        u = low.orthogonal_matrix().detach().float()
        high._matrices.matrix = lambda *arguments: u
    return low, high


@each_dtype
@each_layer
@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
def test_one_rounding_from_float32(name: str, dtype: torch.dtype, ragged: bool):
    low, high = twins(name, dtype)
    assert backends.choose(None, torch.device("cpu"), dtype, low.unit.recurrence, H).backend == "native"
    x = draw(T, B, I, dtype=dtype).requires_grad_()
    x32 = x.detach().float().requires_grad_()
    grad = draw(T, B, H, seed=7, dtype=dtype)
    lengths = torch.tensor([T, 1, 7, T, 12]) if ragged else None
    output, _ = low(x, lengths=lengths)
    expected, _ = high(x32, lengths=lengths)
    assert output.dtype == dtype
    # Half a unit in the last place, and what two evaluations in float32 part by.
    allowed = torch.finfo(dtype).eps / 2 + rounding(torch.float32, T, 2 * H + I)
    assert_close(output.float(), expected, allowed, "output")
    output.backward(grad)
    expected.backward(grad.float())
    pairs = dict(low.named_parameters()) | {"x": x}
    wanted: dict[str, Tensor] = dict(high.named_parameters()) | {"x": x32}
    for key, tensor in pairs.items():
        assert tensor.grad is not None
        assert tensor.grad.dtype == dtype
        if key.startswith("angles") and name in MATRIX:
            continue  # dU is rounded on its way to them
        assert_close(tensor.grad.float(), wanted[key].grad, allowed, key)


def test_states_are_not_rounded_between_steps():
    """A state that moves by less than bfloat16 resolves still moves: arithmetic in bfloat16 would stand still."""
    layer: Any = goru.GRU(1, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[4:8] = 7.0  # z = 0.9991
        layer.bias_ih_l0[8:] = 3.0  # n = 0.995
        output, _ = layer(torch.zeros(2000, 1, 1, dtype=torch.bfloat16))
    assert output[-1].min() > 0.8


@pytest.mark.parametrize("name", ["goru", "goru-matrix", "eurnn", "gru", "lstm"])
def test_compiled_graphs(name: str):
    torch._dynamo.reset()
    low, _ = twins(name, torch.bfloat16)
    x = draw(T, B, I, dtype=torch.bfloat16)
    eager, _ = low(x)
    compiled, _ = torch.compile(low, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(eager, compiled)
    compiled.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.bfloat16 for p in low.parameters())


def test_gradients_of_another_type_are_refused():
    """A complex one would lose its imaginary part on the way to float32."""
    recurrence, make, _ = RECURRENCES["gru"]
    arguments, _ = Problem("gru", 3, 2, 4, 5, dtype=torch.float32).draw()
    inputs = make(*(None if a is None else a.detach().bfloat16() for a in arguments), None)
    output, h_n, saved = recurrence.run(inputs, GatedOptions(False), True, "native")
    flat = recurrence.options.flatten(GatedOptions(False))
    for wrong in (torch.complex64, torch.int64):
        grads = torch.ones_like(output, dtype=wrong), torch.ones_like(h_n)
        with pytest.raises(RuntimeError):
            recurrence.backward_operator(*grads, output, saved, *inputs, *flat, True, "native")


def test_cells():
    for kind in (goru.GORUCell, goru.GRUCell, goru.LSTMCell):
        cell: Any = kind(I, H, dtype=torch.bfloat16)
        h: Any = torch.zeros(2, H, dtype=torch.bfloat16)
        h = (h, h) if kind is goru.LSTMCell else h
        with torch.no_grad():
            new = cell(draw(2, I, dtype=torch.bfloat16), h)
        with goru.use_backend("reference"):
            expected = cell(draw(2, I, dtype=torch.bfloat16), h)
        for got, wanted in zip(*((v,) if isinstance(v, Tensor) else v for v in (new, expected)), strict=True):
            assert got.dtype == torch.bfloat16
            assert_close(got.float(), wanted.float(), 8 * torch.finfo(torch.bfloat16).eps)
