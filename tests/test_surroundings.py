"""What may go on around a call: default devices, transforms, tracers, tensors without memory. Never a crash, never a
silent zero, and nothing that spoils a later call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import goru

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of which torch.func makes use
KINDS = [goru.GORU, goru.EURNN]
BACKENDS = ["reference", "manual", "native"]
U_AS_A_MATRIX = {"mesh": "tunable", "capacity": 8}


def some_input() -> Tensor:
    return torch.randn(5, 2, 3, generator=torch.Generator("cpu").manual_seed(0), device="cpu")


# ------------------------------------------------------------------------------------------------- default devices


@pytest.mark.parametrize("options", [{}, U_AS_A_MATRIX, {"hidden_size": 40}])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_default_device_is_not_the_layers(kind: Any, backend: str, options: dict[str, Any]) -> None:
    layer = kind(**{"input_size": 3, "hidden_size": 8, "backend": backend} | options)
    x, lengths = some_input(), torch.tensor([5, 2])
    expected = layer(x)[0], layer(x, lengths=lengths)[0]
    (gradient,) = torch.autograd.grad(expected[1].sum(), layer.angles_l0)
    with torch.device("meta"):
        found = layer(x)[0], layer(x, lengths=lengths)[0]
        found_gradient = torch.autograd.grad(found[1].sum(), layer.angles_l0)[0]
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert torch.equal(gradient, found_gradient)


@pytest.mark.parametrize("options", [{}, {"mesh": "tunable", "capacity": 100}])
def test_default_device_with_a_complex_layer(options: dict[str, Any]) -> None:
    with torch.device("meta"):
        layer = goru.EURNN(3, 100, complex=True, device="cpu", **options)
        output = layer(some_input())[0]
        output.sum().backward()
    assert output.device.type == "cpu"
    assert torch.equal(output, layer(some_input())[0])


def test_default_device_in_a_step() -> None:
    cell, x, h = goru.GORUCell(3, 8), some_input()[0], torch.zeros(2, 8)
    with torch.no_grad():
        expected = cell(x, h)
        with torch.device("meta"):
            assert torch.equal(cell(x, h), expected)


def test_meta_layers_tell_shapes() -> None:
    x = some_input().to("meta")
    for layer in (goru.GORU(3, 8, device="meta"), goru.GORU(3, 8, device="meta", backend="reference")):
        assert layer(x)[0].shape == (5, 2, 8)
    for cell in (goru.GORUCell(3, 8, device="meta"), goru.EURNNCell(3, 8, device="meta")):
        assert cell(x[0]).shape == (2, 8)
    with pytest.raises(ValueError, match="does not match weight dtype"):
        goru.GORU(3, 8, device="meta")(x.double())


# ------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "layer",
    [
        goru.GORU(3, 8),
        goru.EURNN(3, 8),
        goru.EURNN(3, 8, complex=True),
        goru.EURNN(3, 64, complex=True, mesh="tunable", capacity=64),
    ],
    ids=["goru", "eurnn", "complex", "dense"],
)
def test_zeros_without_memory(layer: Any) -> None:
    zeros = torch._efficientzerotensor((5, 2, 3))  # pyright: ignore[reportPrivateImportUsage]
    assert torch.equal(layer(zeros)[0], layer(torch.zeros(5, 2, 3))[0])


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias", "angles"])
def test_emptied_parameters_are_an_error(name: str) -> None:
    layer, cell, x = goru.GORU(3, 8, backend="native"), goru.GORUCell(3, 8, backend="native"), some_input()
    with torch.no_grad():
        cell(x[0], torch.zeros(2, 8))  # the next step would take the short way
        for module, full_name in ((layer, f"{name}_l0"), (cell, name)):
            getattr(module, full_name).untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match=f"needs {name} in memory, got a tensor whose storage was emptied"):
            layer(x)
        with pytest.raises(RuntimeError, match=r"in memory|storage"):
            cell(x[0], torch.zeros(2, 8))


@pytest.mark.parametrize("steps", [1 << 58, 1 << 42])
@pytest.mark.parametrize("kind", KINDS)
def test_more_than_there_is(kind: Any, steps: int) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="not enough memory"):
        kind(3, 8, backend="native")(torch.zeros(1, 1, 3).expand(steps, 1, 3))


# ------------------------------------------------------------------------------------------------- nothing is spoiled


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_traced_layer_follows_its_parameters(kind: Any) -> None:
    layer, other, x = kind(3, 8, **U_AS_A_MATRIX), kind(3, 8, **U_AS_A_MATRIX), some_input()
    with torch.no_grad():
        layer(x)  # U is remembered from here on
        traced: Any = torch.jit.trace(layer, (x,))
        traced.load_state_dict(other.state_dict())
        assert torch.equal(traced(x)[0], other(x)[0])


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("backend", BACKENDS)
def test_after_an_export(backend: str, size: int) -> None:
    layer, x = goru.GORU(3, size, backend=backend), some_input()
    expected = layer(x)[0]
    torch.export.export(layer, (x,))
    for again in (layer(x)[0], goru.GORU(3, size, backend=backend)(x)[0]):
        assert type(again) is Tensor
    assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_training_after_inference_mode(kind: Any, backend: str) -> None:
    size = 11 + BACKENDS.index(backend)  # of its own: nothing is remembered for it yet
    layer, x = kind(3, size, backend=backend), some_input()
    with torch.inference_mode():
        layer(x)
    layer(x)[0].sum().backward()
    assert layer.angles_l0.grad.shape == layer.angles_l0.shape


def test_after_a_mode_with_stand_ins() -> None:
    layer, x = goru.GORU(3, 8, **U_AS_A_MATRIX), some_input()  # type: ignore[arg-type]
    with torch.no_grad():
        expected = layer(x)[0]
        with FakeTensorMode(allow_non_fake_inputs=True):
            layer(x)
        assert torch.equal(layer(x)[0], expected)


# ------------------------------------------------------------------------------------------------- as nn.GRU


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [*KINDS, nn.GRU])
def test_the_state_can_be_detached_in_place(kind: Any, layers: int) -> None:
    layer, x, h = kind(3, 8, layers), some_input(), None
    for _ in range(3):
        output, h = layer(x, h)
        output.sum().backward()
        h.detach_()


def test_float16_is_not_swallowed_by_modrelu() -> None:
    torch.manual_seed(0)
    layer, x = goru.GORU(3, 64).half(), (0.1 * torch.randn(50, 4, 3)).half()
    output = layer(x)[0].float()
    expected = layer.float()(x.float())[0]
    # Where an argument of modReLU is within rounding of 0 its sign may differ, and the state by 2 b_h.
    assert (output - expected).norm() < 0.2 * expected.norm()


def test_recorded_gates_are_those_of_the_pass_under_autocast() -> None:
    layer, x = goru.GORU(3, 8), 10 * some_input()
    with torch.autocast("cpu", dtype=torch.bfloat16), goru.gates.record(layer) as records:
        output = layer(x)[0]
    assert records[0].state is not None
    assert (records[0].state - output).abs().max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_beyond_a_rows_end_stays_there(kind: Any, backend: str) -> None:
    layer, lengths = kind(3, 8, backend=backend), torch.tensor([5, 2])
    x = some_input()
    x[1, 1] = torch.inf  # a valid step of the short row: its state is lost, its padding is 0 all the same
    output = layer(x, lengths=lengths)[0]
    assert torch.equal(output[2:, 1], torch.zeros(3, 8))
    x = some_input().requires_grad_()
    output = layer(x, lengths=lengths)[0]
    arriving = torch.ones_like(output)
    arriving[4, 1] = torch.nan
    for gradient in torch.autograd.grad(output, [x, *layer.parameters()], arriving):
        assert gradient.isfinite().all()
