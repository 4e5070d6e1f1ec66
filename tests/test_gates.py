"""goru.gates.record: the recorded signals are the ones of the equations, and recording changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import goru
from tests import oracle
from tests.specimens import BY_NAME, Kind, arrays, assert_close, draw, lively, rounding

F64 = torch.float64
T, B, I, H = 5, 3, 4, 6
SIGNALS = ("reset", "update", "candidate", "state")
ALLOWED = rounding(F64, 2 * T, 2 * H + I)


def record(module: nn.Module) -> Any:
    """goru.gates.record, untyped: a signal is None only before the first pass."""
    return goru.gates.record(module)


GATED = [BY_NAME[name] for name in ("goru", "goru-tunable", "goru-no-bias")]
gated = pytest.mark.parametrize("kind", GATED, ids=lambda kind: kind.name)


def oracle_signals(steps: list[list[oracle.Step]], signal: str) -> Tensor:
    """(T, B, H) from the oracle's steps of one layer and direction, zero beyond a row's end."""
    rows = [torch.from_numpy(np.stack([getattr(step, signal) for step in row])) for row in steps]
    return pad_sequence(rows)


@gated
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (1, True), (3, False), (2, True)])
def test_goru_signals_equal_the_oracle(kind: Kind, num_layers: int, bidirectional: bool):
    layer = lively(kind.layer(I, H, num_layers=num_layers, bidirectional=bidirectional, dtype=F64))
    D = 2 if bidirectional else 1
    x, hx = draw(T, B, I), draw(num_layers * D, B, H, seed=2)
    _, _, steps = oracle.run(
        kind.network(H, num_layers, bidirectional),
        arrays(layer),
        list(x.numpy().transpose(1, 0, 2)),
        hx.numpy(),
    )
    with record(layer) as records:
        output, _ = layer(x, hx)
    assert len(records) == num_layers * D
    for number, item in enumerate(records):
        for signal in SIGNALS:
            value = getattr(item, signal)
            assert value.shape == (T, B, H)
            assert_close(value, oracle_signals(steps[number], signal), ALLOWED, f"{signal} {number}")
    assert_close(torch.cat([item.state for item in records[-D:]], -1), output, ALLOWED, "states of the top layer")


@pytest.mark.parametrize("form", ["lengths", "packed", "unsorted"])
def test_goru_with_sequences_of_different_lengths(form: str):
    kind = BY_NAME["goru"]
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    lengths = [5, 3, 1] if form == "packed" else [1, 5, 3]
    sequences = [draw(n, I, seed=n) for n in lengths]
    _, _, steps = oracle.run(kind.network(H, 2, True), arrays(layer), [s.numpy() for s in sequences])
    with record(layer) as records:
        if form == "lengths":
            layer(pad_sequence(sequences, padding_value=float("nan")), lengths=torch.tensor(lengths))
        else:
            layer(pack_sequence(sequences, enforce_sorted=form == "packed"))
    for number, item in enumerate(records):
        for signal in SIGNALS:
            assert_close(getattr(item, signal), oracle_signals(steps[number], signal), ALLOWED, f"{signal} {number}")


@pytest.mark.parametrize(("gate", "value"), [("reset", 1.0), ("update", 0.0)])
def test_a_gate_that_is_off_reads_its_constant(gate: str, value: float):
    layer = lively(goru.GORU(I, H, dtype=F64, reset_gate=gate != "reset", update_gate=gate != "update"))
    with record(layer) as records:
        layer(draw(T, B, I))
    assert torch.equal(getattr(records[0], gate), torch.full((T, B, H), value, dtype=F64))
    if gate == "update":
        assert torch.equal(records[0].candidate, records[0].state)


def gru_by_hand(gru: nn.GRU, k: int, suffix: str, x: Tensor, h: Tensor) -> dict[str, Tensor]:
    """torch's equations for one layer and direction, from its documentation: z keeps the old state."""
    weights = [getattr(gru, f"{name}_l{k}{suffix}") for name in ("weight_ih", "weight_hh")]
    zero = torch.zeros(3 * gru.hidden_size, dtype=x.dtype)
    biases = [getattr(gru, f"{name}_l{k}{suffix}", zero) for name in ("bias_ih", "bias_hh")]
    signals: dict[str, dict[int, Tensor]] = {name: {} for name in SIGNALS}
    for t in reversed(range(len(x))) if suffix else range(len(x)):
        from_x = (x[t] @ weights[0].T + biases[0]).chunk(3, -1)
        from_h = (h @ weights[1].T + biases[1]).chunk(3, -1)
        r, z = torch.sigmoid(from_x[0] + from_h[0]), torch.sigmoid(from_x[1] + from_h[1])
        n = torch.tanh(from_x[2] + r * from_h[2])
        h = (1 - z) * n + z * h
        for name, value in zip(SIGNALS, (r, z, n, h), strict=True):
            signals[name][t] = value
    return {name: torch.stack([values[t] for t in range(len(x))]) for name, values in signals.items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, True)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_gru_signals_equal_the_equations(bias: bool, num_layers: int, bidirectional: bool, batch_first: bool):
    torch.manual_seed(0)
    gru = nn.GRU(I, H, num_layers, bias, batch_first, bidirectional=bidirectional, dtype=F64)
    D = 2 if bidirectional else 1
    x, hx = draw(T, B, I), draw(num_layers * D, B, H, seed=2)
    with record(gru) as records:
        output, _ = gru(x.transpose(0, 1) if batch_first else x, hx)
    assert len(records) == num_layers * D
    below = x
    for k in range(num_layers):
        states = []
        for d, suffix in enumerate(["", "_reverse"][:D]):
            expected = gru_by_hand(gru, k, suffix, below, hx[k * D + d])
            for signal in SIGNALS:
                assert_close(getattr(records[k * D + d], signal), expected[signal], ALLOWED, f"{signal} {k}{suffix}")
            states.append(expected["state"])
        below = torch.cat(states, -1)
    assert_close(output.transpose(0, 1) if batch_first else output, below, ALLOWED, "torch's own output")


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_gru_with_packed_sequences(enforce_sorted: bool):
    torch.manual_seed(0)
    gru = nn.GRU(I, H, bidirectional=True, dtype=F64)
    lengths = [5, 3, 1] if enforce_sorted else [1, 5, 3]
    sequences = [draw(n, I, seed=n) for n in lengths]
    with record(gru) as records:
        gru(pack_sequence(sequences, enforce_sorted=enforce_sorted))
    for d, suffix in enumerate(["", "_reverse"]):
        for i, sequence in enumerate(sequences):
            expected = gru_by_hand(gru, 0, suffix, sequence, torch.zeros(H, dtype=F64))
            for signal in SIGNALS:
                value = getattr(records[d], signal)
                assert_close(value[: lengths[i], i], expected[signal], ALLOWED, f"{signal}{suffix}, row {i}")
                assert torch.equal(value[lengths[i] :, i], torch.zeros(5 - lengths[i], H, dtype=F64))


def models() -> list[Any]:
    return [
        lively(goru.GORU(I, H, 2, bidirectional=True, dtype=F64)),
        lively(goru.GORU(I, H, batch_first=True, backend="reference", dtype=F64)),
        nn.GRU(I, H, 2, bidirectional=True, dtype=F64),
    ]


@pytest.mark.parametrize("number", range(3))
def test_results_and_gradients_are_unchanged(number: int):
    layer = models()[number]
    x = draw(T, B, I)
    outcomes = []
    for recording in (False, True):
        twin = copy.deepcopy(layer)
        given = x.clone().requires_grad_()
        if recording:
            with record(twin):
                output, h_n = twin(given)
        else:
            output, h_n = twin(given)
        (output.square().sum() + h_n.sum()).backward()
        outcomes.append([output, h_n, given.grad, *(p.grad for p in twin.parameters())])
    for a, b in zip(*outcomes, strict=True):
        assert a is not None
        assert b is not None
        assert torch.equal(a, b)


@pytest.mark.parametrize("number", range(3))
def test_nothing_stays_behind(number: int):
    """After the block the module is as before: no hooks, and passes are no longer recorded."""
    layer = models()[number]
    x = draw(T, B, I)
    with record(layer) as records:
        layer(x)
    kept = records[0].update.clone()
    layer(x + 1.0)
    assert torch.equal(records[0].update, kept)
    assert not layer._forward_hooks
    copy.deepcopy(layer)(x)


def test_recording_ends_when_the_block_raises():
    layer = lively(goru.GORU(I, H, dtype=F64))
    with pytest.raises(KeyError), record(layer) as records:
        raise KeyError
    layer(draw(T, B, I))
    assert records[0].update is None


def test_one_recording_inside_another():
    layer = lively(goru.GORU(I, H, dtype=F64))
    with record(layer) as outer:
        with record(layer) as inner:
            first, _ = layer(draw(T, B, I))
        assert_close(outer[0].state, first, ALLOWED)
        second, _ = layer(draw(T, B, I, seed=8))
    assert_close(inner[0].state, first, ALLOWED)
    assert_close(outer[0].state, second, ALLOWED)


def test_the_newest_pass_is_the_one_recorded():
    layer = lively(goru.GORU(I, H, dtype=F64))
    x, y = draw(T, B, I), draw(T + 2, B, I, seed=8)
    with record(layer) as records:
        layer(x)
        assert records[0].state.shape == (T, B, H)
        output, _ = layer(y)
    assert_close(records[0].state, output, ALLOWED)


def test_recorded_signals_carry_no_graph():
    layer = lively(goru.GORU(I, H, dtype=F64))
    with record(layer) as records:
        layer(draw(T, B, I).requires_grad_())
    assert not any(getattr(records[0], signal).requires_grad for signal in SIGNALS)


def test_unbatched_input_has_a_batch_of_one():
    layer = lively(goru.GORU(I, H, dtype=F64))
    gru = nn.GRU(I, H, dtype=F64)
    for module in (layer, gru):
        with record(module) as records:
            output, _ = module(draw(T, I))
        assert records[0].state.shape == (T, 1, H)
        assert_close(records[0].state[:, 0], output, ALLOWED)


def test_batch_first_records_by_time():
    layer = lively(goru.GORU(I, H, batch_first=True, dtype=F64))
    with record(layer) as records:
        output, _ = layer(draw(B, T, I))
    assert_close(records[0].state, output.transpose(0, 1), ALLOWED)


def test_inside_no_grad_and_eval():
    layer = lively(goru.GORU(I, H, 2, dropout=0.5, dtype=F64)).eval()
    x = draw(T, B, I)
    with torch.no_grad(), record(layer) as records:
        output, _ = layer(x)
    assert_close(records[1].state, output, ALLOWED)


def test_with_dropout_between_layers_in_training():
    """What is recorded is the pass that happened, dropout included."""
    layer = lively(goru.GORU(I, H, 2, dropout=0.5, dtype=F64))
    with record(layer) as records:
        output, _ = layer(draw(T, B, I))
    assert_close(records[1].state, output, ALLOWED)


def test_layers_inside_a_model():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = goru.GORU(I, H, dtype=F64)
            self.second = nn.GRU(H, H, dtype=F64)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x)[0])[0]

    model = Model()
    with record(model) as records:
        output = model(draw(T, B, I))
    assert len(records) == 2
    assert_close(records[1].state, output, ALLOWED)


def test_a_module_without_gates_is_refused():
    with pytest.raises(TypeError, match="Linear"), record(nn.Linear(2, 2)):
        pass
