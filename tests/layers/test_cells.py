"""The cells: hand-unrolled equations, the layer as a loop over its cell, and the errors of nn.GRUCell."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goru
from tests.specimens import KINDS, PLAIN, Kind, assert_close, draw, lively, rounding

F64 = torch.float64
T, B, I, H = 5, 3, 4, 6

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)


def rotate(angles: Tensor, h: Tensor) -> Tensor:
    """U h for H = 6 and the FFT mesh, written out: distances 4, 2, 1."""
    units = list(h.unbind(-1))
    pairs = [(0, 4), (1, 5), (0, 2), (1, 3), (0, 1), (2, 3), (4, 5)]
    assert len(angles) == len(pairs)
    for angle, (p, q) in zip(angles, pairs, strict=True):
        c, s = torch.cos(angle), torch.sin(angle)
        units[p], units[q] = c * units[p] - s * units[q], s * units[p] + c * units[q]
    return torch.stack(units, -1)


def test_goru_cell_against_the_equations_unrolled_by_hand():
    cell = lively(goru.GORUCell(I, H, dtype=F64))
    x, h = draw(T, B, I), draw(B, H, seed=3).requires_grad_()
    expected = h
    W_rx, W_zx, W_x = cell.weight_ih.chunk(3)
    W_r, W_z = cell.weight_hh.chunk(2)
    b_r, b_z, b_h = cell.bias.chunk(3)
    for t in range(T):
        r = torch.sigmoid(expected @ W_r.T + x[t] @ W_rx.T + b_r)
        z = torch.sigmoid(expected @ W_z.T + x[t] @ W_zx.T + b_z)
        a = x[t] @ W_x.T + r * rotate(cell.angles, expected)
        expected = z * expected + (1 - z) * torch.sign(a) * torch.relu(a.abs() + b_h)
    actual = h
    for t in range(T):
        actual = cell(x[t], actual)
    allowed = rounding(F64, T, 2 * H + I)
    assert_close(actual, expected, allowed, "state")
    inputs = [h, *cell.parameters()]
    g = draw(B, H, seed=5)
    for name, ours, theirs in zip(
        ["hx", *(n for n, _ in cell.named_parameters())],
        torch.autograd.grad(actual, inputs, g),
        torch.autograd.grad(expected, inputs, g),
        strict=True,
    ):
        assert_close(ours, theirs, allowed * B, f"gradient of {name}")


def test_complex_eurnn_cell_against_the_equations_unrolled_by_hand():
    """H = 3, capacity 2: pairs (0,1), then (1,2); thetas, phis, omegas joined."""
    cell = lively(goru.EURNNCell(I, 3, capacity=2, dtype=F64))
    x, h = draw(B, I), draw(B, 3, seed=3, dtype=torch.complex128)
    theta, phi, omega = cell.angles[:2], cell.angles[2:4], cell.angles[4:]
    assert omega.shape == (3,)
    u = list(h.unbind(-1))
    for n, (p, q) in enumerate([(0, 1), (1, 2)]):
        c, s, e = torch.cos(theta[n]), torch.sin(theta[n]), torch.exp(1j * phi[n])
        u[p], u[q] = c * u[p] - e * s * u[q], s * u[p] + e * c * u[q]
    a = torch.stack(u, -1) * torch.exp(1j * omega)
    a = a + torch.complex(x @ cell.weight_ih[:3].T, x @ cell.weight_ih[3:].T)
    expected = a / a.abs() * torch.relu(a.abs() + cell.bias)
    assert_close(cell(x, h), expected, rounding(F64, 1, 2 * 3 + I), "state")


@each_kind
def test_the_layer_is_a_loop_over_its_cell(kind: Kind):
    layer = lively(kind.layer(I, H, dtype=F64))
    cell = kind.cell_module(I, H, dtype=F64)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    x, h0 = draw(T, B, I).requires_grad_(), draw(B, H, seed=3, dtype=kind.state_dtype(F64)).requires_grad_()
    output, h_n = layer(x, h0[None])
    states, h = [], h0
    for t in range(T):
        h = cell(x[t], h)
        states.append(h)
    allowed = rounding(F64, T, 2 * H + I)
    assert_close(output, torch.stack(states).real, allowed, "output")
    assert_close(h_n[0], h, allowed, "h_n")
    g = draw(T, B, H, seed=7)
    ours = torch.autograd.grad(output, [x, h0, *layer.parameters()], g, retain_graph=True)
    theirs = torch.autograd.grad(torch.stack(states).real, [x, h0, *cell.parameters()], g)
    for name, a, b in zip(["x", "hx", *(n for n, _ in layer.named_parameters())], ours, theirs, strict=True):
        assert_close(a, b, allowed * B, f"gradient of {name}")


@each_kind
def test_one_dimensional_input_and_missing_state(kind: Kind):
    cell = lively(kind.cell_module(I, H, dtype=F64))
    x, h = draw(I), draw(H, seed=3, dtype=kind.state_dtype(F64))
    allowed = rounding(F64, 1, 2 * H + I)
    single = cell(x, h)
    assert single.shape == (H,)
    assert single.dtype == kind.state_dtype(F64)
    assert_close(single, cell(x[None], h[None])[0], allowed)
    assert_close(cell(x), cell(x, torch.zeros_like(h)), allowed)
    assert cell(x).dtype == kind.state_dtype(F64)


@each_kind
def test_names_and_shapes_are_those_of_the_layer_without_the_suffix(kind: Kind):
    layer, cell = kind.layer(I, H), kind.cell_module(I, H)
    shapes = {name.removesuffix("_l0"): tuple(p.shape) for name, p in layer.named_parameters()}
    assert {name: tuple(p.shape) for name, p in cell.named_parameters()} == shapes


@plain_kinds
def test_empty_batch(kind: Kind):
    cell = lively(kind.cell_module(I, H))
    h = cell(torch.empty(0, I))
    assert h.shape == (0, H)
    h.abs().sum().backward()
    for name, parameter in cell.named_parameters():
        assert parameter.grad is not None, name
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


@plain_kinds
def test_cell_can_be_copied_pickled_and_saved(kind: Kind):
    cell = lively(kind.cell_module(I, H, dtype=F64))
    x = draw(B, I)
    expected = cell(x)
    assert torch.equal(copy.deepcopy(cell)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(cell))(x), expected)
    other = kind.cell_module(I, H, dtype=F64)
    other.load_state_dict(cell.state_dict())
    assert torch.equal(other(x), expected)


@plain_kinds
def test_cell_tells_its_matrix(kind: Kind):
    cell = lively(kind.cell_module(I, H, dtype=F64))
    assert cell.orthogonality_error() <= rounding(F64, H, 2)
    assert cell.orthogonal_matrix().shape == (H, H)


def test_repr_tells_sizes_mesh_and_capacity():
    text = repr(goru.GORUCell(3, 5, mesh="tunable", capacity=4))
    for word in ("GORUCell", "3, 5", "tunable", "capacity=4"):
        assert word in text, text
    assert "fft" in repr(goru.GORUCell(3, 5))
    assert "bias=False" in repr(goru.GORUCell(3, 5, bias=False))


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


WIDE = {torch.float32: F64, torch.complex64: torch.complex128}

# Calls for which nn.GRUCell(4, 6) raises. The state's dtype is the one that the cell expects, if not said.
BAD_CALLS = {
    "0-D input": lambda s: (zeros(),),
    "3-D input": lambda s: (zeros(1, 2, I),),
    "wrong feature size": lambda s: (zeros(2, I + 1),),
    "wrong feature size, 1-D": lambda s: (zeros(I + 1),),
    "3-D state": lambda s: (zeros(2, I), zeros(1, 2, H, dtype=s)),
    "0-D state": lambda s: (zeros(2, I), zeros(dtype=s)),
    "too many rows of state": lambda s: (zeros(2, I), zeros(3, H, dtype=s)),
    "one row of state for two": lambda s: (zeros(2, I), zeros(1, H, dtype=s)),
    "wrong hidden size": lambda s: (zeros(2, I), zeros(2, H + 1, dtype=s)),
    "1-D state for 2-D input": lambda s: (zeros(2, I), zeros(H, dtype=s)),
    "2-D state for 1-D input": lambda s: (zeros(I), zeros(1, H, dtype=s)),
    "double input": lambda s: (zeros(2, I, dtype=F64),),
    "integer input": lambda s: (zeros(2, I, dtype=torch.int64),),
    "double state": lambda s: (zeros(2, I), zeros(2, H, dtype=WIDE[s])),
}


@plain_kinds
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_raise_as_gru_cell_does(kind: Kind, name: str):
    make: Any = BAD_CALLS[name]
    with pytest.raises(Exception) as theirs:  # noqa: PT011  (which one is the question)
        nn.GRUCell(I, H)(*make(torch.float32))
    cell = kind.cell_module(I, H)
    with pytest.raises(theirs.type):
        cell(*make(kind.state_dtype(torch.float32)))


def test_a_real_state_for_a_complex_cell_is_refused():
    with pytest.raises(RuntimeError, match="complex"):
        goru.EURNNCell(I, H)(zeros(2, I), zeros(2, H))
    with pytest.raises(RuntimeError, match=r"float|real"):
        goru.EURNNCell(I, H, complex=False)(zeros(2, I), zeros(2, H, dtype=torch.complex64))


@pytest.mark.parametrize("cls", [goru.GORUCell, goru.EURNNCell, goru.GRUCell, goru.LSTMCell])
@pytest.mark.parametrize("sizes", [(-1, 4), (4, -1)])
def test_negative_sizes_are_refused(cls, sizes):
    with pytest.raises(ValueError, match="at least zero"):
        cls(*sizes)


@pytest.mark.parametrize("cls", [goru.GORUCell, goru.EURNNCell, goru.GRUCell, torch.nn.GRUCell])
@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_sizes_of_zero_are_possible_as_in_torch(cls, sizes):
    cell = cls(*sizes)
    x = torch.ones(2, sizes[0])
    h = cell(x)
    assert h.shape == (2, sizes[1])
    h.abs().sum().backward()
    assert all(parameter.grad is not None for parameter in cell.parameters())
    with torch.no_grad():
        assert cell(x, h).shape == h.shape


@pytest.mark.parametrize("cls", [goru.LSTMCell, torch.nn.LSTMCell])
@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_sizes_of_zero_with_two_states(cls, sizes):
    cell = cls(*sizes)
    x = torch.ones(2, sizes[0])
    h, c = cell(x)
    assert h.shape == c.shape == (2, sizes[1])
    (h + c).abs().sum().backward()
    assert all(parameter.grad is not None for parameter in cell.parameters())
    with torch.no_grad():
        assert cell(x, (h, c))[0].shape == h.shape


@pytest.mark.parametrize("cls", [goru.GORUCell, goru.EURNNCell])
def test_bad_capacity_and_mesh_are_refused(cls):
    with pytest.raises(ValueError, match="capacity"):
        cls(3, 4, mesh="fft", capacity=2)
    with pytest.raises(ValueError, match="capacity"):
        cls(3, 4, mesh="tunable", capacity=5)
    with pytest.raises(ValueError, match="mesh"):
        cls(3, 4, mesh="butterfly")


def test_published_initialization():
    cell: Any = goru.GORUCell(7, 40)
    assert cell.weight_ih.abs().max() <= 0.01
    assert cell.weight_hh.abs().max() <= 0.01
    assert cell.angles.abs().max() <= math.pi
    b_r, b_z, b_h = cell.bias.detach().chunk(3)
    assert (b_r == 2).all()
    assert (b_z == 0).all()
    assert torch.equal(b_h, torch.full((40,), 0.01))


@pytest.mark.parametrize(
    "make",
    [
        lambda: goru.GORU(I, H, 2, bidirectional=True),
        lambda: goru.GORU(I, H, 2, bias=False, bidirectional=True, mesh="tunable", capacity=3, reset_gate=False),
        lambda: goru.EURNN(I, H, 2, bidirectional=True),
        lambda: goru.EURNN(I, H, 2, bidirectional=True, complex=False, mesh="fft"),
        lambda: goru.GRU(I, H, 2, bidirectional=True),
        lambda: goru.LSTM(I, H, 2, bias=False, bidirectional=True),
    ],
)
def test_the_cell_of_a_layer_takes_its_steps(make):
    layer = make()
    x = torch.randn(5, 3, I)
    outputs = [x]
    for k in range(2):
        directions = []
        for reverse in (False, True):
            cell, h, states = layer.cell(k, reverse=reverse), None, []
            for x_t in outputs[-1].flip(0) if reverse else outputs[-1]:
                h = cell(x_t, h)
                output = h[0] if isinstance(h, tuple) else h
                states.append(output.real if output.is_complex() else output)
            directions.append(torch.stack(states[::-1] if reverse else states))
        outputs.append(torch.cat(directions, -1))
    torch.testing.assert_close(outputs[-1], layer(x)[0])


@pytest.mark.parametrize("kind", [goru.GORU, goru.GRU])
def test_the_cell_of_a_layer_shares_its_parameters(kind):
    layer = kind(I, H)
    cell = layer.cell(0)
    assert {id(p) for p in cell.parameters()} == {id(p) for p in layer.parameters()}
    for place, reverse in ((1, False), (0, True)):
        with pytest.raises(IndexError):
            layer.cell(place, reverse)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight_hh_l0", torch.nn.Tanh())
    with pytest.raises(TypeError, match="weight_hh of this layer is computed"):
        layer.cell(0)
