"""GORU(memory=...): the promise itself, measured by autograd, and everything that a start has to go along with."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import goru

BOUNDS = (0.2, 1.0)
"""What docs/mathematics.md promises of the mean gain at T = memory."""


def gain(layer: goru.GORU, steps: int, rows: int = 24) -> float:
    """The root mean square of |v dh_T/dh_0| over random unit vectors v, with no input and a small state."""
    H = layer.hidden_size
    h0 = (1e-3 * torch.randn(1, 1, H, dtype=torch.float64)).expand(1, rows, H).clone().requires_grad_()
    v = nn.functional.normalize(torch.randn(rows, H, dtype=torch.float64), dim=-1)
    x = torch.zeros(steps, rows, layer.input_size, dtype=torch.float64)
    _, h_n = layer(x, h0)
    (grad,) = torch.autograd.grad((h_n[0] * v).sum(), h0)
    return math.sqrt(grad.pow(2).sum().item() / rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mesh": "fft"},
        {"mesh": "tunable"},
        {"mesh": "tunable", "capacity": 9},
        {"reset_gate": False},
        {"update_gate": False},
        {"reset_gate": False, "update_gate": False},
    ],
    ids=["default", "fft", "tunable", "capacity9", "no reset", "no update", "no gates"],
)
@pytest.mark.parametrize("memory", [2, 20, 200, 2000, 10_000])
@pytest.mark.parametrize("hidden_size", [9, 64])
def test_the_state_lasts_for_memory_steps(memory: int, hidden_size: int, options: dict[str, Any]) -> None:
    torch.manual_seed(memory + hidden_size)
    layer = goru.GORU(3, hidden_size, memory=memory, dtype=torch.float64, **options)
    low, high = BOUNDS
    assert low <= gain(layer, memory) <= high + 1e-9


@pytest.mark.parametrize("mesh", [None, "tunable", "fft"])
@pytest.mark.parametrize("memory", [20, 200, 2000, 10_000])
def test_a_steady_input_does_not_flood_the_state(memory: int, mesh: str | None) -> None:
    """A step adds at most the largest weight times sqrt(H) to the norm of the state, and U adds nothing. Over `memory`
    steps that is at most what 200 steps of weight 1 give."""
    torch.manual_seed(memory)
    x = torch.zeros(memory, 1, 3, dtype=torch.float64)
    x[..., 0] = 1.0
    for _ in range(8):
        layer = goru.GORU(3, 64, memory=memory, mesh=mesh, dtype=torch.float64)
        with torch.no_grad():
            largest = layer(x)[0].square().mean(-1).sqrt().max().item()
        assert largest < min(memory, 200)


@pytest.mark.parametrize("memory", [20, 200, 2000, 10_000])
def test_a_steady_input_still_counts(memory: int) -> None:
    """Its weights are not shrunk away: the largest unit adds up a tenth of the bound."""
    torch.manual_seed(memory)
    layer = goru.GORU(3, 64, memory=memory, mesh="fft", dtype=torch.float64)
    x = torch.zeros(memory, 1, 3, dtype=torch.float64)
    x[..., 0] = 1.0
    with torch.no_grad():
        output, _ = layer(x)
    assert 0.1 * min(memory, 200) < output.abs().max() < min(memory, 200)


@pytest.mark.parametrize("make", [goru.GORU, goru.GORUCell])
def test_the_mesh_follows_the_memory_unless_it_is_given(make: Any) -> None:
    def mesh(hidden_size: int = 32, **options: Any) -> tuple[str, int | None]:
        found = make(3, hidden_size, **options).unit.mesh
        return found.kind, found.capacity

    assert mesh() == ("fft", None)
    assert mesh(memory=20) == ("tunable", 8)
    assert mesh(memory=500) == ("tunable", 8)
    assert mesh(memory=501) == ("fft", None)
    assert mesh(5, memory=20) == ("tunable", 5)
    assert mesh(1, memory=20) == ("tunable", 1)
    assert mesh(memory=20, capacity=3) == ("tunable", 3)
    assert mesh(memory=20, mesh="fft") == ("fft", None)
    assert mesh(memory=20, mesh="tunable") == ("tunable", 2)
    with pytest.raises(ValueError, match="capacity"):
        mesh(capacity=3)


def test_it_is_gone_long_after() -> None:
    torch.manual_seed(0)
    layer = goru.GORU(3, 64, memory=20, dtype=torch.float64)
    assert gain(layer, 400) < 0.1 * gain(layer, 20)


def test_the_published_start_forgets() -> None:
    torch.manual_seed(0)
    layer = goru.GORU(3, 64, dtype=torch.float64)
    assert gain(layer, 200) < 1e-4


def test_each_layer_and_direction() -> None:
    torch.manual_seed(0)
    layer = goru.GORU(3, 16, num_layers=2, bidirectional=True, memory=[10, 1000])
    assert layer.memory == (10.0, 1000.0)
    assert "memory=(10.0, 1000.0)" in repr(layer)
    for name, steps in (("l0", 10), ("l0_reverse", 10), ("l1", 1000), ("l1_reverse", 1000)):
        bias = layer.get_parameter(f"bias_{name}").detach()
        torch.testing.assert_close(bias[:16], torch.full((16,), math.log(2 * steps)))
        torch.testing.assert_close(bias[16:28], torch.full((12,), -math.log(2 * steps)))
        assert not bias[28:].any()
    output, h_n = layer(torch.randn(7, 2, 3))
    assert output.shape == (7, 2, 32)
    assert h_n.shape == (4, 2, 16)


@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
def test_modrelu_counts_its_bias_over_memory_steps(backend: str) -> None:
    """The layer equals one without memory whose b_h is divided, outputs and gradients."""
    torch.manual_seed(1)
    ours = goru.GORU(3, 6, memory=50, mesh="fft", dtype=torch.float64, backend=backend)
    plain = goru.GORU(3, 6, dtype=torch.float64, backend=backend)
    with torch.no_grad():
        ours.get_parameter("bias_l0")[-6:] = -torch.rand(6, dtype=torch.float64)
    weights = {name: value for name, value in ours.state_dict().items() if name != "memory_l0"}
    plain.load_state_dict(weights)
    with torch.no_grad():
        plain.get_parameter("bias_l0")[-6:] /= 50
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    outputs = [layer(x)[0] for layer in (ours, plain)]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.sin().sum().backward()
    for name, parameter in plain.named_parameters():
        expected = parameter.grad
        assert expected is not None
        if name == "bias_l0":
            expected = torch.cat([expected[:-6], expected[-6:] / 50])
        torch.testing.assert_close(ours.get_parameter(name).grad, expected)


def test_the_memory_travels_with_the_weights() -> None:
    torch.manual_seed(2)
    trained = goru.GORU(3, 6, memory=50)
    nn.init.constant_(trained.get_parameter("bias_l0"), -0.3)
    other = goru.GORU(3, 6, memory=7)
    other.load_state_dict(trained.state_dict())
    x = torch.randn(9, 2, 3)
    torch.testing.assert_close(other(x)[0], trained(x)[0])
    assert other.memory == (50.0,)
    with pytest.raises(RuntimeError, match="memory_l0"):
        goru.GORU(3, 6).load_state_dict(trained.state_dict())


def test_gates_are_those_of_the_pass() -> None:
    torch.manual_seed(3)
    layer = goru.GORU(3, 6, memory=5)
    nn.init.constant_(layer.get_parameter("bias_l0"), -0.3)
    with goru.gates.record(layer) as records:
        output, _ = layer(torch.randn(9, 2, 3))
    assert records[0].state is not None
    torch.testing.assert_close(records[0].state, output)


def test_the_cell_steps_as_the_layer() -> None:
    torch.manual_seed(4)
    cell = goru.GORUCell(3, 8, memory=30)
    nn.init.constant_(cell.get_parameter("bias"), -0.4)
    layer = goru.GORU(3, 8, memory=30)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    x = torch.randn(6, 2, 3)
    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            h = torch.zeros(2, 8)
            for step in x:
                h = cell(step, h)
            torch.testing.assert_close(h, layer(x)[1][0])
    assert "memory=30.0" in repr(cell)


def test_reset_parameters_draws_the_same_start() -> None:
    layer = goru.GORU(3, 8, memory=30)
    torch.manual_seed(5)
    layer.reset_parameters()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    torch.manual_seed(5)
    again = goru.GORU(3, 8, memory=30)
    for name, value in again.state_dict().items():
        assert torch.equal(before[name], value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"memory": 0.5}, ValueError, "at least 1 step"),
        ({"memory": math.inf}, ValueError, "finite"),
        ({"memory": math.nan}, ValueError, "finite"),
        ({"memory": [5, 6]}, ValueError, "one number for each of the 1 layers, got 2"),
        ({"memory": "long"}, TypeError, "number of steps"),
        ({"memory": True}, TypeError, "number of steps"),
        ({"memory": 5, "bias": False}, ValueError, "bias=True"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        goru.GORU(3, 8, **options)


def test_one_unit() -> None:
    layer = goru.GORU(3, 1, memory=10)
    assert layer(torch.zeros(4, 2, 3))[0].shape == (4, 2, 1)


def test_the_cell_of_a_layer_has_its_memory() -> None:
    torch.manual_seed(6)
    layer = goru.GORU(3, 8, num_layers=2, memory=[5, 30])
    for name in ("bias_l0", "bias_l1"):
        nn.init.constant_(layer.get_parameter(name), -0.4)
    h = torch.randn(2, 8)
    cell = layer.cell(1)
    expected = goru.GORU(8, 8, memory=30)
    expected.load_state_dict({name.replace("_l1", "_l0"): v for name, v in layer.state_dict().items() if "_l1" in name})
    x = torch.randn(2, 8)
    torch.testing.assert_close(cell(x, h), expected(x[None], h[None])[1][0])
    assert cell.memory is layer.memory_l1


def test_a_loaded_memory_is_shown_and_started_with() -> None:
    layer = goru.GORU(3, 64, memory=400)
    layer.load_state_dict(goru.GORU(3, 64, memory=200).state_dict())
    assert layer.memory == (200.0,)
    assert "memory=200.0" in repr(layer)
    torch.manual_seed(0)
    layer.reset_parameters()
    torch.manual_seed(0)
    assert torch.equal(layer.all_weights[0][2], goru.GORU(3, 64, memory=200).all_weights[0][2])
    cell = goru.GORUCell(3, 64, memory=400)
    cell.load_state_dict(goru.GORUCell(3, 64, memory=200).state_dict())
    assert "memory=200.0" in repr(cell)
