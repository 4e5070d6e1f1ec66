"""Parameters by name, shape and initial value; the layer as a module: saved, copied, shown, hooked."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import goru
from tests.oracle import number_of_angles
from tests.specimens import KINDS, PLAIN, Kind, assert_close, draw, lively

F32, F64 = torch.float32, torch.float64
I, H = 3, 4

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
layers = pytest.mark.parametrize("cls", [goru.GORU, goru.EURNN])
backends = pytest.mark.parametrize("backend", ["auto", "reference", "manual"])


def expected_shapes(kind: Kind, num_layers: int, bidirectional: bool) -> dict[str, tuple[int, ...]]:
    """The names and shapes that the parameters should have."""
    net = kind.network(H, num_layers, bidirectional)
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(num_layers):
        features = I if k == 0 else H * (2 if bidirectional else 1)
        for suffix in ("", "_reverse")[: 2 if bidirectional else 1]:
            gates = net.reset_gate + net.update_gate if kind.cell == "goru" else 0
            blocks = 2 if kind.complex else 1 + gates
            shapes[f"weight_ih_l{k}{suffix}"] = (blocks * H, features)
            if gates:
                shapes[f"weight_hh_l{k}{suffix}"] = (gates * H, H)
            if kind.options.get("bias", True):
                shapes[f"bias_l{k}{suffix}"] = ((1 + gates) * H,)
            shapes[f"angles_l{k}{suffix}"] = (number_of_angles(net.mesh, H, net.capacity, net.complex),)
    return shapes


@each_kind
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, True)])
def test_parameter_names_and_shapes(kind: Kind, num_layers: int, bidirectional: bool):
    layer = kind.layer(I, H, num_layers=num_layers, bidirectional=bidirectional)
    expected = expected_shapes(kind, num_layers, bidirectional)
    named = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert named == expected
    assert set(layer.state_dict()) == set(expected)  # nothing but parameters is saved
    assert all(isinstance(p, nn.Parameter) and not p.is_complex() for p in layer.parameters())


@pytest.mark.parametrize(
    ("make", "angles"),
    [
        (lambda: goru.GORU(I, 8), 12),  # FFT: 3 layers of 4
        (lambda: goru.GORU(I, 8, mesh="tunable"), 7),  # capacity 2: 4 + 3
        (lambda: goru.EURNN(I, 8), 7 + 7 + 8),
        (lambda: goru.EURNN(I, 8, complex=False), 7),
        (lambda: goru.EURNN(I, 8, complex=False, mesh="fft"), 12),
        (lambda: goru.GORU(I, 1), 0),
        (lambda: goru.EURNN(I, 1), 0),
    ],
)
def test_default_meshes(make: Callable[[], Any], angles: int):
    assert make().angles_l0.shape == (angles,)


@each_kind
def test_all_weights_lists_the_parameters_of_each_layer_and_direction(kind: Kind):
    layer = kind.layer(I, H, num_layers=2, bidirectional=True)
    weights = layer.all_weights
    assert len(weights) == 4
    flat = [id(p) for group in weights for p in group]
    assert flat == [id(p) for p in layer.parameters()]
    assert weights[1][0] is layer.weight_ih_l0_reverse


@each_kind
def test_flatten_parameters_does_nothing(kind: Kind):
    layer = lively(kind.layer(I, H, dtype=F64))
    x = draw(5, 2, I)
    before = layer(x)[0]
    assert layer.flatten_parameters() is None
    assert torch.equal(layer(x)[0], before)


def test_published_initialization_of_goru():
    layer: Any = goru.GORU(20, 64, num_layers=2, bidirectional=True)
    for name, p in layer.named_parameters():
        p = p.detach()
        if name.startswith("weight"):
            assert 0.009 < p.abs().max() <= 0.01
            assert abs(p.mean()) < 0.001
        elif name.startswith("angles"):
            assert 0.9 * math.pi < p.abs().max() <= math.pi
            assert p.min() < 0 < p.max()
        else:
            b_r, b_z, b_h = p.chunk(3)
            assert torch.equal(b_r, torch.full((64,), 2.0))
            assert torch.equal(b_z, torch.zeros(64))
            assert torch.equal(b_h, torch.full((64,), 0.01))


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"reset_gate": False}, [0.0, 0.01]),
        ({"update_gate": False}, [2.0, 0.01]),
        ({"reset_gate": False, "update_gate": False}, [0.01]),
    ],
)
def test_initial_biases_without_a_gate(options, blocks):
    layer: Any = goru.GORU(I, H, **options)
    bias = layer.bias_l0.detach()
    assert torch.equal(bias, torch.tensor(blocks).repeat_interleave(H))


def test_the_first_public_initialization_by_name():
    """June 2017: b_h = 2; all else as published later."""
    layer: Any = goru.GORU(I, 64, init="june2017")
    assert layer.bias_l0.tolist() == [2.0] * 64 + [0.0] * 64 + [2.0] * 64
    assert layer.weight_hh_l0.abs().max() <= 0.01
    cell: Any = goru.GORUCell(I, 64, init="june2017")
    assert cell.bias[-1] == 2.0
    with pytest.raises(ValueError, match=r"(?s)(?=.*published)(?=.*june2017)(?=.*orthogonal)"):
        goru.GORU(I, H, init="orthogonal")


@pytest.mark.parametrize("complex", [False, True])
def test_published_initialization_of_eurnn(complex):
    layer: Any = goru.EURNN(20, 64, complex=complex)
    assert 0.009 < layer.weight_ih_l0.abs().max() <= 0.01
    assert 0.9 * math.pi < layer.angles_l0.abs().max() <= math.pi
    assert torch.equal(layer.bias_l0.detach(), torch.zeros(64))


@each_kind
def test_reset_parameters_draws_anew_and_follows_the_seed(kind: Kind):
    torch.manual_seed(5)
    layer = kind.layer(I, H)
    first = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.reset_parameters()
    assert not torch.equal(layer.angles_l0, first["angles_l0"])
    assert not torch.equal(layer.weight_ih_l0, first["weight_ih_l0"])
    torch.manual_seed(5)
    layer.reset_parameters()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, first[name]), name


@each_kind
def test_state_dict_round_trip_through_a_file(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64)
    result = other.load_state_dict(torch.load(file, weights_only=True))
    assert not result.missing_keys
    assert not result.unexpected_keys
    x = draw(5, 2, I)
    assert torch.equal(other(x)[0], layer(x)[0])


@plain_kinds
def test_state_dict_of_another_mesh_is_refused(kind: Kind):
    layer = kind.layer(I, 8)
    other = type(layer)(I, 8, mesh="tunable", capacity=5)
    with pytest.raises(RuntimeError, match="angles_l0"):
        other.load_state_dict(layer.state_dict())


@each_kind
@pytest.mark.parametrize("ran_before", [False, True])
def test_deepcopy_and_pickle(kind: Kind, ran_before: bool):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    x = draw(5, 2, I)
    expected = layer(x)[0].detach()
    if ran_before:  # whatever is kept from a pass in inference must survive, or stay out of the way
        layer.eval()
        with torch.no_grad():
            layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(other) == repr(layer)
        assert torch.equal(other(x)[0], expected)
        with torch.no_grad():
            for p in other.parameters():
                p.zero_()
            assert torch.equal(layer(x)[0], expected)
            assert not torch.equal(other(x)[0], expected)


@plain_kinds
def test_what_is_kept_from_inference_is_not_saved(kind: Kind):
    layer = kind.layer(I, 32)
    before = len(pickle.dumps(layer))
    with torch.no_grad():
        layer(torch.zeros(2, 1, I))
    assert len(pickle.dumps(layer)) == before


def test_repr_tells_mesh_and_capacity():
    text = repr(goru.GORU(3, 5, 2, False, True, 0.5, True, mesh="tunable", capacity=4))
    for word in (
        "GORU(3, 5",
        "num_layers=2",
        "bias=False",
        "batch_first=True",
        "dropout=0.5",
        "bidirectional=True",
        "tunable",
        "capacity=4",
    ):
        assert word in text, text
    assert "fft" in repr(goru.GORU(3, 5))
    assert "num_layers" not in repr(goru.GORU(3, 5))
    assert "capacity=2" in repr(goru.EURNN(3, 5))
    assert "complex" in repr(goru.EURNN(3, 5)) or "complex" in repr(goru.EURNN(3, 5, complex=False))
    assert repr(goru.EURNN(3, 5)) != repr(goru.EURNN(3, 5, complex=False))
    assert "reset_gate=False" in repr(goru.GORU(3, 5, reset_gate=False))
    assert "update_gate=False" in repr(goru.GORU(3, 5, update_gate=False))
    assert nn.GRU(3, 5, 2).extra_repr() in goru.GORU(3, 5, 2).extra_repr()


@plain_kinds
def test_hooks_see_the_call(kind: Kind):
    layer = kind.layer(I, H)
    seen: list[str] = []
    layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    layer.register_forward_hook(lambda module, args, output: seen.append("after"))
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append("backward"))
    output, _ = layer(torch.zeros(2, 1, I, requires_grad=True))
    output.sum().backward()
    assert seen == ["before", "after", "backward"]


@plain_kinds
def test_a_forward_hook_may_replace_the_output(kind: Kind):
    layer = kind.layer(I, H)
    layer.register_forward_hook(lambda module, args, output: (output[0] + 1, output[1]))
    plain = kind.layer(I, H)
    plain.load_state_dict(layer.state_dict())
    x = draw(2, 1, I, dtype=F32)
    assert torch.equal(layer(x)[0], plain(x)[0] + 1)


@backends
@plain_kinds
def test_parameter_hooks_see_the_gradient(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend))
    layer.angles_l0.register_hook(lambda gradient: gradient * 0)
    layer(draw(3, 2, I, dtype=F32))[0].sum().backward()
    assert torch.equal(layer.angles_l0.grad, torch.zeros_like(layer.angles_l0))
    assert layer.weight_ih_l0.grad.abs().sum() > 0


@each_kind
def test_orthogonality_error_is_the_largest_of_all_layers_and_directions(kind: Kind):
    layer = lively(kind.layer(I, 7, num_layers=2, bidirectional=True))
    errors = []
    for k in range(2):
        for reverse in (False, True):
            U = layer.orthogonal_matrix(k, reverse).detach().to(torch.complex128)
            errors.append((U.mH @ U - torch.eye(7)).abs().max().item())
    told = layer.orthogonality_error()
    assert isinstance(told, float)
    assert told == pytest.approx(max(errors), rel=1e-6, abs=1e-12)
    assert told <= 8 * 7 * torch.finfo(F32).eps


def test_orthogonality_error_sees_damage():
    """The number is computed from U, not promised: NaN angles are not orthogonal."""
    layer: Any = goru.GORU(I, H, num_layers=2)
    with torch.no_grad():
        layer.angles_l1[0] = math.nan
    assert not layer.orthogonality_error() < 1e-3


@each_kind
def test_orthogonal_matrix_acts_from_the_left_on_the_state(kind: Kind):
    """With everything else off, one step is U @ h."""
    cls = goru.GORU if kind.cell == "goru" else goru.EURNN
    options = {name: value for name, value in kind.options.items() if name in ("mesh", "capacity", "complex")}
    if kind.cell == "goru":
        options.update(reset_gate=False, update_gate=False)
    layer = cls(I, 5, bias=False, dtype=F64, **options)
    h = draw(1, 2, 5, dtype=kind.state_dtype(F64))
    _, h_n = layer(torch.zeros(1, 2, I, dtype=F64), h)
    assert_close(h_n[0], h[0] @ layer.orthogonal_matrix().T, 1e-14)


@layers
def test_orthogonal_matrix_of_what_does_not_exist(cls):
    layer = cls(I, H)
    for arguments in ((1,), (0, True), (-2,)):
        with pytest.raises((IndexError, ValueError)):
            layer.orthogonal_matrix(*arguments)
