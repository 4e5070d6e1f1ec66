"""Layers and cells against the NumPy oracle: every kind, size, direction, depth and way to give lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence, pad_sequence

from tests import oracle
from tests.specimens import BY_NAME, KINDS, Kind, arrays, assert_close, draw, lively, rounding

BACKENDS = ["reference", "manual"]
SIZES = [1, 2, 3, 5, 8]
T, B, I = 6, 3, 4
F64 = torch.float64

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def stacked(sequences: list[oracle.Array]) -> oracle.Array:
    """Sequences of one length, (T, I) each, side by side: (T, B, I)."""
    return np.stack(sequences, axis=1)


def tolerance(hidden_size: int, num_layers: int = 1) -> float:
    return rounding(F64, steps=T * num_layers, terms=2 * hidden_size + I)


def state(kind: Kind, *shape: int, seed: int = 9) -> Tensor:
    return draw(*shape, seed=seed, dtype=kind.state_dtype(F64))


@each_backend
@each_kind
@pytest.mark.parametrize("H", SIZES)
@pytest.mark.parametrize("with_hx", [False, True], ids=["zero", "hx"])
def test_one_layer(kind: Kind, backend: str, H: int, with_hx: bool):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    x = draw(T, B, I)
    hx = state(kind, 1, B, H) if with_hx else None
    outputs, h_n, _ = oracle.run(
        kind.network(H), arrays(layer), list(x.numpy().transpose(1, 0, 2)), None if hx is None else hx.numpy()
    )
    output, last = layer(x, hx)
    assert output.dtype == F64
    assert last.dtype == kind.state_dtype(F64)
    assert_close(output, stacked(outputs), tolerance(H), "output")
    assert_close(last, h_n, tolerance(H), "h_n")


@each_backend
@each_kind
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
def test_two_layers(kind: Kind, backend: str, bidirectional: bool):
    H, K = 5, 2
    D = 2 if bidirectional else 1
    layer = lively(kind.layer(I, H, num_layers=K, bidirectional=bidirectional, backend=backend, dtype=F64))
    x, hx = draw(T, B, I), state(kind, K * D, B, H)
    outputs, h_n, _ = oracle.run(
        kind.network(H, K, bidirectional), arrays(layer), list(x.numpy().transpose(1, 0, 2)), hx.numpy()
    )
    output, last = layer(x, hx)
    assert_close(output, stacked(outputs), tolerance(H, K), "output")
    assert_close(last, h_n, tolerance(H, K), "h_n")


@each_backend
@each_kind
@pytest.mark.parametrize("form", ["lengths", "packed", "unsorted"])
def test_sequences_of_different_lengths(kind: Kind, backend: str, form: str):
    H, K, D = 3, 2, 2
    lengths = [5, 3, 3, 1] if form == "packed" else [3, 5, 1, 3]
    layer = lively(kind.layer(I, H, num_layers=K, bidirectional=True, backend=backend, dtype=F64))
    sequences = [draw(n, I, seed=n + 10 * i) for i, n in enumerate(lengths)]
    hx = state(kind, K * D, len(lengths), H)
    outputs, h_n, _ = oracle.run(kind.network(H, K, True), arrays(layer), [s.numpy() for s in sequences], hx.numpy())
    expected = pad_sequence([torch.from_numpy(o) for o in outputs])
    if form == "lengths":
        output, last = layer(pad_sequence(sequences, padding_value=7.0), hx, lengths=torch.tensor(lengths))
    else:
        packed, last = layer(pack_sequence(sequences, enforce_sorted=form == "packed"), hx)
        assert isinstance(packed, PackedSequence)
        output, told = pad_packed_sequence(packed)
        assert told.tolist() == lengths
    assert_close(output, expected, tolerance(H, K), "output")
    assert_close(last, h_n, tolerance(H, K), "h_n")


@each_kind
@pytest.mark.parametrize("H", SIZES)
def test_a_cell(kind: Kind, H: int):
    cell = lively(kind.cell_module(I, H, dtype=F64))
    x, h = draw(B, I), state(kind, B, H)
    net, weights = kind.network(H), arrays(cell)
    U = oracle.mesh_matrix(net.mesh, H, net.capacity, weights["angles"], net.complex)
    expected = np.stack([oracle.step(net, weights, U, x[i].numpy(), h[i].numpy()).state for i in range(B)])
    assert_close(cell(x, h), expected, tolerance(H), "next state")


@each_kind
@pytest.mark.parametrize("H", SIZES)
def test_orthogonal_matrix_is_the_one_that_the_recurrence_uses(kind: Kind, H: int):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    net, weights = kind.network(H), arrays(layer)
    for k in range(2):
        for reverse in (False, True):
            suffix = f"_l{k}" + ("_reverse" if reverse else "")
            expected = oracle.mesh_matrix(net.mesh, H, net.capacity, weights["angles" + suffix], net.complex)
            U = layer.orthogonal_matrix(layer=k, reverse=reverse)
            assert_close(U, expected, rounding(F64, steps=H, terms=2), f"U{suffix}")


@pytest.mark.parametrize("name", ["goru", "goru-tunable", "eurnn", "eurnn-real-fft"])
def test_a_long_sequence(name: str):
    """200 steps at H = 16: rounding adds up slowly because U keeps norms."""
    kind, steps, H = BY_NAME[name], 200, 16
    layer = kind.layer(I, H, dtype=F64)
    with torch.no_grad():
        for parameter_name, parameter in layer.named_parameters():
            if parameter_name.startswith("weight"):
                parameter.copy_(draw(*parameter.shape, seed=3) * 0.1)
            elif parameter_name.startswith("bias"):
                parameter[-H:] = -0.01
    x = draw(steps, 2, I)
    outputs, h_n, _ = oracle.run(kind.network(H), arrays(layer), list(x.numpy().transpose(1, 0, 2)))
    output, last = layer(x)
    allowed = rounding(F64, steps=steps, terms=2 * H + I)
    assert_close(output, stacked(outputs), allowed, "output")
    assert_close(last, h_n, allowed, "h_n")


@each_backend
@each_kind
def test_float32_agrees_with_the_oracle_where_modrelu_does_not_jump(kind: Kind, backend: str):
    H = 5
    layer = lively(kind.layer(I, H, backend=backend, dtype=torch.float32), b_h="negative")
    x = draw(T, B, I, dtype=torch.float32)
    outputs, h_n, _ = oracle.run(kind.network(H), arrays(layer), list(x.double().numpy().transpose(1, 0, 2)))
    output, last = layer(x)
    allowed = rounding(torch.float32, steps=T, terms=2 * H + I)
    assert output.dtype == torch.float32
    assert_close(output, stacked(outputs), allowed, "output")
    assert_close(last, h_n, allowed, "h_n")


def test_the_oracle_itself_on_one_step_by_hand():
    """H = 2, one input: numbers to follow with a pencil, so that the oracle is not its own judge."""
    net = oracle.Network("goru", 2, mesh="tunable", capacity=1)
    weights = {
        "weight_ih": np.array([[0.0], [0.0], [0.0], [0.0], [1.0], [-1.0]]),
        "weight_hh": np.zeros((4, 2)),
        "bias": np.array([0.0, 0.0, np.log(3.0), np.log(3.0), -1.0, 0.5]),  # r = 1/2, z = 3/4
        "angles": np.array([np.pi / 2]),  # U (p, q) = (-q, p)
    }
    result = oracle.step(
        net,
        weights,
        oracle.mesh_matrix("tunable", 2, 1, weights["angles"]),
        np.array([4.0]),
        np.array([2.0, 6.0]),
    )
    # c: a = 4 + 0.5 * -6 = 1 -> |1| - 1 = 0;  a = -4 + 0.5 * 2 = -3 -> -(3 + 0.5).
    assert result.candidate == pytest.approx([0.0, -3.5], abs=1e-15)
    assert result.state == pytest.approx([0.75 * 2.0, 0.75 * 6.0 + 0.25 * -3.5], abs=1e-14)


def test_gru_as_a_check_of_the_comparison_itself():
    """The same machinery tells a GRU from a GORU: the comparison can fail."""
    kind = BY_NAME["goru"]
    layer = lively(kind.layer(I, 4, dtype=F64))
    x = draw(T, B, I)
    outputs, _, _ = oracle.run(kind.network(4), arrays(layer), list(x.numpy().transpose(1, 0, 2)))
    with pytest.raises(AssertionError, match="off by"):
        assert_close(nn.GRU(I, 4, dtype=F64)(x)[0], stacked(outputs), tolerance(4))
