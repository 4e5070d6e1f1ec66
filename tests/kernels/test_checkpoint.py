"""Training with checkpoints: the gradients of training without them, from little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import goru
from goru.kernels import native
from tests.specimens import assert_close, draw, lively

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)

T, B, I, H = 23, 6, 5, 12
LAYERS: dict[str, Any] = {
    "goru": lambda **more: lively(goru.GORU(I, H, **more)),
    "goru-matrix": lambda **more: lively(goru.GORU(I, H, mesh="tunable", capacity=H, **more)),
    "goru-no-reset": lambda **more: lively(goru.GORU(I, H, reset_gate=False, **more)),
    "goru-no-update": lambda **more: lively(goru.GORU(I, H, update_gate=False, **more)),
    "goru-no-gates": lambda **more: lively(goru.GORU(I, H, reset_gate=False, update_gate=False, **more)),
    "gru": lambda **more: goru.GRU(I, H, **more),
    "gru-no-bias": lambda **more: goru.GRU(I, H, bias=False, **more),
    "lstm": lambda **more: goru.LSTM(I, H, **more),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def gradients(layer: Any, x: Tensor, hx: Any, lengths: Tensor | None) -> dict[str, Tensor]:
    """All gradients of a loss on output and last state, and both of these."""
    leaves = {"x": x.clone().requires_grad_()}
    leaves |= {f"state {i}": part.clone().requires_grad_() for i, part in enumerate(hx)}
    states: list[Any] = [leaves[f"state {i}"] for i in range(len(hx))]
    output, last = layer(leaves["x"], tuple(states) if len(states) > 1 else states[0], lengths=lengths)
    last = last if isinstance(last, tuple) else (last,)
    loss = (output * draw(*output.shape, seed=8).to(output)).sum() + sum((part * part).sum() for part in last)
    layer.zero_grad()
    loss.backward()
    found: dict[str, Tensor] = {"output": output.detach()}
    for key, tensor in [*leaves.items(), *layer.named_parameters()]:
        assert tensor.grad is not None, key
        found[key] = tensor.grad.clone()
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Bit by bit, but for the sums over all steps: those are summed in another order."""
    for key, value in expected.items():
        if key == "output" or key == "x" or key.startswith("state"):
            assert torch.equal(found[key], value), key
        else:
            # Each of T * B terms may be rounded differently; they are of the size of the sum, or cancel to it.
            assert_close(found[key], value, T * B * torch.finfo(value.dtype).eps, key)


@each_layer
@pytest.mark.parametrize("interval", [1, 4, 22, 23, 1000])
@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
def test_same_gradients_as_without(name: str, interval: int, ragged: bool):
    torch.manual_seed(3)
    plain = LAYERS[name](num_layers=2, bidirectional=True)
    layer = LAYERS[name](num_layers=2, bidirectional=True, checkpoint=interval)
    layer.load_state_dict(plain.state_dict())
    x = draw(T, B, I).float()
    hx = [draw(4, B, H, seed=k).float() for k in range(2 if name == "lstm" else 1)]
    lengths = torch.tensor([T, 1, 9, 4, T - 1, 8]) if ragged else None
    expected, found = gradients(plain, x, hx, lengths), gradients(layer, x, hx, lengths)
    assert_same(found, expected)


@each_layer
def test_a_few_rows_that_are_not_packed(name: str):
    """Short sequences read the weights as they are, also when they are recomputed."""
    torch.manual_seed(3)
    plain, layer = LAYERS[name](), LAYERS[name](checkpoint=2)
    layer.load_state_dict(plain.state_dict())
    x, hx = draw(5, 1, I).float(), [draw(1, 1, H, seed=k).float() for k in range(2 if name == "lstm" else 1)]
    expected, found = gradients(plain, x, hx, None), gradients(layer, x, hx, None)
    assert_same(found, expected)


@pytest.mark.parametrize("name", ["goru", "gru", "lstm"])
def test_every_backend_takes_it_and_twice_backward(name: str):
    layer = LAYERS[name](checkpoint=4, dtype=torch.float64)
    x = draw(T, B, I)
    found = {}
    for backend in ("native", "manual", "reference"):
        with goru.use_backend(backend):
            output, _ = layer(x)
            layer.zero_grad()
            output.square().sum().backward(retain_graph=True)
            output.square().sum().backward()
            found[backend] = layer.weight_hh_l0.grad.clone()
    for backend in ("manual", "reference"):
        torch.testing.assert_close(found["native"], found[backend], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["goru", "gru", "lstm"])
def test_compiled_and_in_half_precision(name: str):
    layer = LAYERS[name](checkpoint=4)
    x = draw(T, B, I).float()
    eager = layer(x)[0]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)(x)[0]
    assert torch.equal(eager, compiled)
    gradients = []
    for output in (eager, compiled):
        layer.zero_grad()
        output.square().sum().backward()
        gradients.append(layer.weight_hh_l0.grad.clone())
    assert torch.equal(*gradients)
    low = LAYERS[name](checkpoint=4, dtype=torch.bfloat16)
    low(x.bfloat16())[0].sum().backward()
    assert torch.isfinite(low.weight_hh_l0.grad).all()


def test_what_is_saved_is_small():
    """The bytes that autograd holds beyond the output, by saved_tensors_hooks."""
    x = torch.randn(400, 2, I)
    for name, allowed in (("goru", 0), ("gru", 0), ("lstm", 400 / 50 * 2 * H)):
        layer = LAYERS[name](checkpoint=50)
        held: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, held=held: held.__setitem__(t.data_ptr(), t.numel()) or t, lambda t: t
        ):
            output, _ = layer(x)
        known = {t.data_ptr() for t in (x, output, *layer.parameters())}
        # Beside them: zeros of the initial state.
        beyond = sum(count for place, count in held.items() if place not in known)
        assert beyond <= allowed + 2 * 2 * H, name


def test_the_number_of_steps_is_checked():
    with pytest.raises(ValueError, match="checkpoint must be at least 1 step, got 0"):
        goru.GORU(I, H, checkpoint=0)
    for wrong in (True, 2.0, "4"):
        with pytest.raises(TypeError, match="checkpoint should be a number of steps or None"):
            goru.LSTM(I, H, checkpoint=wrong)  # type: ignore[arg-type]
    assert "checkpoint=50" in repr(goru.GRU(I, H, checkpoint=50))
    assert "checkpoint=50" in repr(goru.GORU(I, H, checkpoint=50))


_PEAK = """
import json, sys, torch, goru
from pathlib import Path
torch.set_num_threads(1)
T, checkpoint = int(sys.argv[1]), int(sys.argv[2])
x = torch.randn(T, 4, 8)
layer = goru.GORU(8, 32, checkpoint=checkpoint or None)
layer(x[:64])[0].sum().backward()
Path("/proc/self/clear_refs").write_text("5")
status = lambda field: int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) / 1024
level = status("VmRSS")
output, _ = layer(x)
output.sum().backward()
print(json.dumps(status("VmHWM") - level - output.numel() * 4 / 2**20))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
def test_peak_memory():
    """MB above the input and the output: what is saved for T steps without checkpoints, next to nothing with them."""
    steps = 40_000

    def peak(checkpoint: int) -> float:
        command = [sys.executable, "-c", _PEAK, str(steps), str(checkpoint)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    saved = 2 * steps * 4 * 32 * 4 / 2**20  # r and z
    without, within = peak(0), peak(200)
    assert without > 0.9 * saved
    assert within < 0.5 * saved
