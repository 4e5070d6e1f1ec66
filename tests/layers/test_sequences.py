"""Sequences of different lengths, directions, depth and pieces, each against the plainest way to say it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

from tests.specimens import BY_NAME, KINDS, Kind, assert_close, draw, lively, rounding

F64 = torch.float64
I, H = 3, 5
SOME = [BY_NAME[name] for name in ("goru", "goru-tunable", "goru-no-update", "eurnn", "eurnn-real-fft")]

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
some_kinds = pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
backends = pytest.mark.parametrize("backend", ["auto", "reference", "manual"])


def allowed(steps: int) -> float:
    return rounding(F64, steps, 2 * H + I)


def state(kind: Kind, *shape: int, seed: int = 9) -> Tensor:
    return draw(*shape, seed=seed, dtype=kind.state_dtype(F64))


def part(layer: nn.Module, kind: Kind, k: int, suffix: str, input_size: int, backend: str = "auto") -> Any:
    """Layer k of one direction alone, as a one-way layer of its own."""
    single = kind.layer(input_size, H, backend=backend, dtype=F64)
    name = f"_l{k}{suffix}"
    single.load_state_dict({n.removesuffix(name) + "_l0": v for n, v in layer.state_dict().items() if n.endswith(name)})
    return single


@backends
@some_kinds
@pytest.mark.parametrize("lengths", [[4, 4, 2, 1], [1, 4, 2, 4], [1, 1, 1, 1], [3, 3, 3, 3], [1, 2, 3, 5]], ids=str)
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
def test_packed_and_lengths_against_one_sequence_at_a_time(kind: Kind, backend: str, lengths, bidirectional):
    D = 2 if bidirectional else 1
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=bidirectional, backend=backend, dtype=F64))
    sequences = [draw(n, I, seed=i).requires_grad_() for i, n in enumerate(lengths)]
    hx = state(kind, 2 * D, len(lengths), H).requires_grad_()
    weight = [draw(n, D * H, seed=50 + i) for i, n in enumerate(lengths)]
    weight_h = state(kind, 2 * D, len(lengths), H, seed=60)
    inputs = [*sequences, hx, *layer.parameters()]

    def with_gradients(outputs: list[Tensor], h_n: Tensor) -> list[Tensor]:
        loss = sum((o * w).sum() for o, w in zip(outputs, weight, strict=True)) + (h_n * weight_h.conj()).sum().real
        return [*outputs, h_n, *torch.autograd.grad(loss, inputs)]

    singles = [layer(s, hx[:, i]) for i, s in enumerate(sequences)]
    expected = with_gradients([o for o, _ in singles], torch.stack([h for _, h in singles], 1))

    padded, h_n = layer(pad_sequence(sequences), hx, lengths=torch.tensor(lengths))
    assert padded.shape == (max(lengths), len(lengths), D * H)
    for i, n in enumerate(lengths):
        assert torch.equal(padded[n:, i], torch.zeros_like(padded[n:, i]))
    by_lengths = with_gradients([padded[:n, i] for i, n in enumerate(lengths)], h_n)

    packed, h_n = layer(pack_sequence(sequences, enforce_sorted=False), hx)
    assert isinstance(packed, PackedSequence)
    unpacked, _ = pad_packed_sequence(packed)
    by_packing = with_gradients([unpacked[:n, i] for i, n in enumerate(lengths)], h_n)

    for way, actual in (("lengths", by_lengths), ("packed", by_packing)):
        for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_close(a, b, allowed(10) * len(lengths), f"{way}, item {number}")


@backends
@some_kinds
@pytest.mark.parametrize("filling", [math.nan, math.inf, 1e30], ids=["nan", "inf", "huge"])
def test_what_stands_in_the_padding_changes_nothing(kind: Kind, backend: str, filling: float):
    """Outputs, states and every gradient; the gradient of the padding itself is 0."""
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, backend=backend, dtype=F64))
    lengths = torch.tensor([2, 5, 1])
    results = []
    for value in (0.0, filling):
        x = draw(5, 3, I)
        for i, n in enumerate(lengths):
            x[n:, i] = value
        x.requires_grad_()
        output, h_n = layer(x, lengths=lengths)
        loss = output.square().sum() + h_n.abs().square().sum()
        grads = torch.autograd.grad(loss, [x, *layer.parameters()])
        for i, n in enumerate(lengths):
            assert torch.equal(grads[0][n:, i], torch.zeros(5 - int(n), I, dtype=F64))
        results.append([output, h_n, *grads])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@backends
@some_kinds
def test_gradients_that_arrive_in_the_padding_are_ignored(kind: Kind, backend: str):
    """The output there is the constant 0: whatever the loss asks of it moves no parameter."""
    layer = lively(kind.layer(I, H, bidirectional=True, backend=backend, dtype=F64))
    lengths = torch.tensor([2, 4])
    output, _ = layer(draw(4, 2, I), lengths=lengths)
    g = draw(4, 2, 2 * H, seed=4)
    clean = g.clone()
    clean[2:, 0] = 0
    params = list(layer.parameters())
    for a, b in zip(
        torch.autograd.grad(output, params, g, retain_graph=True),
        torch.autograd.grad(output, params, clean),
        strict=True,
    ):
        assert_close(a, b, 1e-13)


@some_kinds
def test_full_lengths_are_no_lengths(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    x = draw(4, 3, I)
    for a, b in zip(layer(x), layer(x, lengths=torch.tensor([4, 4, 4])), strict=True):
        assert_close(b, a, allowed(8))


@some_kinds
def test_the_longest_may_be_shorter_than_the_batch(kind: Kind):
    """T is kept, also where a packed sequence would have been cut."""
    layer = lively(kind.layer(I, H, bidirectional=True, batch_first=True, dtype=F64))
    x = draw(3, 6, I)
    output, h_n = layer(x, lengths=torch.tensor([2, 3, 1]))
    assert output.shape == (3, 6, 2 * H)
    assert torch.equal(output[:, 3:], torch.zeros(3, 3, 2 * H, dtype=F64))
    short, short_h = layer(x[:, :3], lengths=torch.tensor([2, 3, 1]))
    assert_close(output[:, :3], short, allowed(3))
    assert_close(h_n, short_h, allowed(3))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@some_kinds
def test_integer_types_of_lengths(kind: Kind, dtype: torch.dtype):
    layer = lively(kind.layer(I, H, dtype=F64))
    x = draw(4, 2, I)
    expected = layer(x[:2, :1])[1]
    _, h_n = layer(x, lengths=torch.tensor([2, 4], dtype=dtype))
    assert_close(h_n[:, :1], expected, allowed(2))


@some_kinds
def test_lengths_of_an_empty_batch(kind: Kind):
    layer = kind.layer(I, H, dtype=F64)
    output, h_n = layer(torch.empty(4, 0, I, dtype=F64), lengths=torch.empty(0, dtype=torch.int64))
    assert output.shape == (4, 0, H)
    assert h_n.shape == (1, 0, H)


@backends
@some_kinds
def test_packed_rows_come_back_in_the_order_given(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend, dtype=F64))
    lengths = [1, 3, 2]
    x, hx = draw(3, 3, I), state(kind, 1, 3, H)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    _, h_n = layer(packed, hx)
    for i, n in enumerate(lengths):
        assert_close(h_n[:, i], layer(x[:n, i], hx[:, i])[1], allowed(3), f"row {i}")


@some_kinds
def test_lengths_with_inter_layer_dropout(kind: Kind):
    """Dropout of 1: the upper layer sees zeros, for packed, padded and plain input alike."""
    layer = lively(kind.layer(I, H, num_layers=2, dropout=1.0, dtype=F64))
    x, lengths = draw(4, 2, I), torch.tensor([4, 2])
    upper = part(layer, kind, 1, "", H)
    zeros = torch.zeros(4, 2, H, dtype=F64)
    expected, _ = upper(zeros, lengths=lengths)
    assert_close(layer(x, lengths=lengths)[0], expected, 1e-13)
    packed, _ = layer(pack_padded_sequence(x, lengths))
    assert isinstance(packed, PackedSequence)
    assert_close(pad_packed_sequence(packed)[0], expected, 1e-13)


@backends
@each_kind
def test_bidirectional_is_two_one_way_layers(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, bidirectional=True, backend=backend, dtype=F64))
    there, back = (part(layer, kind, 0, suffix, I, backend) for suffix in ("", "_reverse"))
    x, hx = draw(6, 2, I), state(kind, 2, 2, H)
    output, h_n = layer(x, hx)
    forward, forward_h = there(x, hx[:1])
    backward, backward_h = back(x.flip(0), hx[1:])
    assert_close(output, torch.cat([forward, backward.flip(0)], -1), allowed(6))
    assert_close(h_n, torch.cat([forward_h, backward_h]), allowed(6))


@backends
@each_kind
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
def test_many_layers_are_layers_on_top_of_each_other(kind: Kind, backend: str, bidirectional: bool):
    K, D = 3, 2 if bidirectional else 1
    layer = lively(kind.layer(I, H, num_layers=K, bidirectional=bidirectional, backend=backend, dtype=F64))
    x, hx = draw(4, 2, I), state(kind, K * D, 2, H)
    output, h_n = layer(x, hx)
    states = []
    for k in range(K):
        directions = []
        for d, suffix in enumerate(["", "_reverse"][:D]):
            single = part(layer, kind, k, suffix, x.shape[-1], backend)
            y, h = single(x.flip(0) if d else x, hx[k * D + d][None])
            directions.append(y.flip(0) if d else y)
            states.append(h)
        x = torch.cat(directions, -1)
    assert_close(output, x, allowed(4 * K))
    assert_close(h_n, torch.cat(states), allowed(4 * K))


@backends
@each_kind
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_a_sequence_in_two_pieces(kind: Kind, backend: str, cut: int):
    """State carried over: outputs, the last state and every gradient are those of one piece."""
    layer = lively(kind.layer(I, H, num_layers=2, backend=backend, dtype=F64))
    x, hx = draw(7, 2, I).requires_grad_(), state(kind, 2, 2, H).requires_grad_()
    inputs = [x, hx, *layer.parameters()]
    output, h_n = layer(x, hx)
    first, middle = layer(x[:cut], hx)
    second, last = layer(x[cut:], middle)
    assert_close(torch.cat([first, second]), output, allowed(14))
    assert_close(last, h_n, allowed(14))
    g = draw(7, 2, H, seed=4)
    whole = torch.autograd.grad(output, inputs, g)
    pieces = torch.autograd.grad(torch.cat([first, second]), inputs, g)
    for a, b in zip(pieces, whole, strict=True):
        assert_close(a, b, allowed(28))


@each_kind
def test_rows_of_a_batch_do_not_meet(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    x = draw(4, 9, I)
    x.requires_grad_()
    output, h_n = layer(x)
    (gradient,) = torch.autograd.grad(output[:, 3].sum() + h_n[:, 3].abs().sum(), x)
    others = [i for i in range(9) if i != 3]
    assert torch.equal(gradient[:, others], torch.zeros_like(gradient[:, others]))
    assert gradient[:, 3].abs().min() > 0
