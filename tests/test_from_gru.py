"""GORU.from_gru: gates copied, U as near to the GRU's own matrix as the mesh allows, losses told."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goru
from goru.rotations import Mesh
from tests.specimens import assert_close, draw

F64 = torch.float64
I, H = 3, 6


def gru_of(hidden_size: int = H, seed: int = 0, **options) -> Any:
    torch.manual_seed(seed)
    gru = nn.GRU(I, hidden_size, dtype=F64, **options)
    with torch.no_grad():
        for p in gru.parameters():
            p.copy_(torch.randn_like(p))
    return gru


def convert(gru: nn.GRU, **options: Any) -> Any:
    return goru.GORU.from_gru(gru, **options)


def nearest_rotation(W: Tensor) -> Tensor:
    """argmin |R - W| over R^T R = I, det R = +1 (Kabsch): flip the weakest direction if det would be -1."""
    P, _, Qt = torch.linalg.svd(W)
    signs = torch.ones(len(W), dtype=W.dtype)
    signs[-1] = torch.linalg.det(P @ Qt).sign()
    return P @ torch.diag(signs) @ Qt


def gates_of(gru: nn.GRU, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
    bias = None
    if gru.bias:
        bias = (getattr(gru, f"bias_ih{suffix}") + getattr(gru, f"bias_hh{suffix}"))[: 2 * gru.hidden_size]
    return getattr(gru, f"weight_ih{suffix}"), getattr(gru, f"weight_hh{suffix}")[: 2 * gru.hidden_size], bias


@pytest.mark.parametrize("mesh", [{"mesh": "fft"}, {"mesh": "tunable", "capacity": H}])
@pytest.mark.parametrize("bias", [True, False])
def test_gates_are_copied(mesh, bias):
    gru = gru_of(num_layers=2, bidirectional=True, bias=bias)
    layer = convert(gru, **mesh)
    for k in range(2):
        for suffix in (f"_l{k}", f"_l{k}_reverse"):
            weight_ih, weight_hh, gate_bias = gates_of(gru, suffix)
            # r, z and the candidate's input weights stand in the same rows in both.
            assert_close(getattr(layer, f"weight_ih{suffix}"), weight_ih, 1e-15)
            assert_close(getattr(layer, f"weight_hh{suffix}"), weight_hh, 1e-15)
            if gate_bias is not None:
                assert_close(getattr(layer, f"bias{suffix}")[: 2 * H], gate_bias, 1e-15)
            else:
                assert not hasattr(layer, f"bias{suffix}") or getattr(layer, f"bias{suffix}") is None


def test_gate_values_are_those_of_the_gru():
    """The gates of the first step depend on what was copied only."""
    gru = gru_of()
    layer = convert(gru)
    x, hx = draw(1, 2, I), draw(1, 2, H, seed=2)
    with goru.gates.record(gru) as theirs:
        gru(x, hx)
    with goru.gates.record(layer) as ours:
        layer(x, hx)
    assert_close(ours[0].reset, theirs[0].reset, 1e-14)
    assert_close(ours[0].update, theirs[0].update, 1e-14)


@pytest.mark.parametrize("hidden_size", [1, 2, 3, 6, 7, 12])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_full_capacity_gives_the_exact_polar_factor(hidden_size: int, seed: int):
    gru = gru_of(hidden_size, seed)
    W = gru.weight_hh_l0.detach()[2 * hidden_size :]
    layer = convert(gru, mesh="tunable", capacity=hidden_size)
    U = layer.orthogonal_matrix().detach()
    assert torch.linalg.det(U).item() == pytest.approx(1.0, abs=1e-12)
    assert_close(U, nearest_rotation(W), 1e-10, "U")
    assert layer.conversion[0].residual <= 1e-10


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_both_signs_of_the_determinant_are_met(sign: float):
    gru = gru_of(5)
    with torch.no_grad():
        W = gru.weight_hh_l0[10:]
        if torch.linalg.det(W).sign() != sign:
            W[0].neg_()
        W = W.clone()
    U = convert(gru, mesh="tunable", capacity=5).orthogonal_matrix().detach()
    polar = torch.linalg.svd(W)
    plain = polar[0] @ polar[2]
    assert torch.linalg.det(plain).item() == pytest.approx(sign, abs=1e-12)
    assert_close(U, nearest_rotation(W), 1e-10)
    if sign > 0:
        assert_close(U, plain, 1e-10)
    # No rotation is nearer than the nearest one: tried on its neighbors.
    best = (U - W).norm()
    for seed in range(20):
        A = draw(5, 5, seed=seed)
        neighbor = U @ torch.linalg.matrix_exp(1e-3 * (A - A.T))
        assert (neighbor - W).norm() >= best - 1e-12


@pytest.mark.parametrize("special", ["identity", "permutation", "block", "minus-identity", "near-identity"])
def test_special_matrices_at_full_capacity(special: str):
    """Places where a decomposition into rotations divides by zero if it is careless."""
    Q = {
        "identity": torch.eye(6),
        "permutation": torch.eye(6)[[1, 2, 0, 4, 5, 3]],  # two cycles of three: det +1
        "block": torch.block_diag(*[torch.tensor([[0.0, -1.0], [1.0, 0.0]])] * 3),
        "minus-identity": -torch.eye(6),
        "near-identity": torch.linalg.matrix_exp(1e-9 * (draw(6, 6) - draw(6, 6).T)),
    }[special].to(F64)
    gru = gru_of()
    with torch.no_grad():
        gru.weight_hh_l0[2 * H :] = 0.7 * Q
    layer = convert(gru, mesh="tunable", capacity=H)
    assert_close(layer.orthogonal_matrix(), Q, 1e-9)
    assert torch.isfinite(layer.angles_l0).all()


@pytest.mark.parametrize(
    "mesh", [{"mesh": "fft"}, {"mesh": "tunable", "capacity": 2}, {"mesh": "tunable", "capacity": 4}]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_other_meshes_are_fitted(mesh, seed):
    """Nearer to the rotation than every one of fifty random meshes, and at rest: the gradient is gone."""
    gru = gru_of(seed=seed)
    target = nearest_rotation(gru.weight_hh_l0.detach()[2 * H :])
    layer = convert(gru, **mesh)
    reached = (layer.orthogonal_matrix().detach() - target).norm().item()
    plan = Mesh(mesh["mesh"], H, mesh.get("capacity"))
    for start in range(50):
        angles = (draw(plan.num_angles, seed=start) * 10).remainder(2 * math.pi)
        assert reached <= (plan.matrix(angles) - target).norm().item()
    assert layer.orthogonality_error() <= 1e-13


def test_a_mesh_that_can_reach_the_target_finds_it():
    """W_hn is a rotation which the FFT mesh can build: a near start is followed to the end."""
    plan = Mesh("fft", H)
    target = plan.matrix(draw(plan.num_angles) * 0.1)
    gru = gru_of()
    with torch.no_grad():
        gru.weight_hh_l0[2 * H :] = 2.0 * target
    layer = convert(gru)
    assert_close(layer.orthogonal_matrix(), target, 1e-4)
    assert layer.conversion[0].residual <= 1e-4


def test_losses_are_told():
    gru = gru_of(num_layers=2, bidirectional=True)
    layer = convert(gru)
    assert [(c.layer, c.reverse) for c in layer.conversion] == [(0, False), (0, True), (1, False), (1, True)]
    for item in layer.conversion:
        suffix = f"_l{item.layer}" + ("_reverse" if item.reverse else "")
        U = layer.orthogonal_matrix(item.layer, item.reverse).detach()
        W = getattr(gru, f"weight_hh{suffix}").detach()[2 * H :]
        Q = nearest_rotation(W)
        assert item.residual == pytest.approx(((U - Q).norm() / Q.norm()).item(), rel=1e-6)
        assert item.distance == pytest.approx(((U - W).norm() / W.norm()).item(), rel=1e-6)
        assert_close(item.dropped_b_in, getattr(gru, f"bias_ih{suffix}")[2 * H :], 1e-15)
        assert_close(item.dropped_b_hn, getattr(gru, f"bias_hh{suffix}")[2 * H :], 1e-15)
        assert f"{item.residual:.2g}" in str(item)


def test_without_biases_none_are_dropped():
    item = convert(gru_of(bias=False)).conversion[0]
    assert item.dropped_b_in is None
    assert item.dropped_b_hn is None


def test_sizes_and_options_are_taken_over():
    gru = nn.GRU(I, H, 2, batch_first=True, dropout=0.25, bidirectional=True)
    layer = convert(gru, mesh="tunable", capacity=3, backend="manual")
    for name in (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
    ):
        assert getattr(layer, name) == getattr(gru, name)
    assert layer.angles_l0.dtype == torch.float32
    assert "capacity=3" in repr(layer)
    x = torch.zeros(2, 4, I)
    assert [tuple(v.shape) for v in layer.eval()(x)] == [tuple(v.shape) for v in gru.eval()(x)]


def test_the_gru_is_left_alone_and_shares_nothing():
    gru = gru_of()
    before = {name: value.clone() for name, value in gru.state_dict().items()}
    layer = convert(gru)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(1.0)
    for name, value in gru.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_result_trains():
    layer = convert(gru_of())
    output, _ = layer(draw(4, 2, I))
    output.square().sum().backward()
    assert all(p.requires_grad and p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_the_random_stream_of_the_user_is_not_needed():
    """Twice the same from the same GRU, whatever the seed."""
    gru = gru_of()
    torch.manual_seed(1)
    first = convert(gru)
    torch.manual_seed(2)
    second = convert(gru)
    assert torch.equal(first.angles_l0, second.angles_l0)


def test_one_unit_has_no_angles_to_fit():
    layer = convert(nn.GRU(I, 1).double())
    assert layer.angles_l0.numel() == 0
    assert layer(draw(4, 2, I))[0].shape == (4, 2, 1)


def test_in_inference_mode_the_same_is_fitted():
    gru = gru_of()
    with torch.inference_mode():
        inside = convert(gru)
    outside = convert(gru)
    assert torch.equal(inside.angles_l0, outside.angles_l0)
    inside(draw(4, 2, I))[0].sum().backward()


@pytest.mark.parametrize("gate", ["reset_gate", "update_gate"])
def test_a_gate_cannot_be_left_out(gate):
    options: dict[str, Any] = {gate: False}
    with pytest.raises(ValueError, match="from_gru copies both gates"):
        goru.GORU.from_gru(gru_of(), **options)


@pytest.mark.parametrize("value", [nn.LSTM(I, H), nn.Linear(2, 2), None], ids=["LSTM", "Linear", "None"])
def test_something_else_is_refused(value):
    with pytest.raises(TypeError):
        convert(value)


def test_without_a_mesh_the_rotation_is_exact():
    gru = gru_of(num_layers=2)
    for item in convert(gru).conversion:
        assert item.residual < 1e-12
    assert convert(gru, capacity=2).conversion[0].residual > 0.1  # what a smaller mesh leaves, which was asked for
