"""What must hold for every angle, size and sequence, looked for by Hypothesis."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import goru
from goru.rotations import Mesh, orthogonality_error
from tests.specimens import BY_NAME, KINDS, Kind, assert_close, draw, lively, rounding

F32, F64 = torch.float32, torch.float64
I = 3

quick = settings(deadline=None, max_examples=40, derandomize=True)
kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 2**31)


@st.composite
def meshes(draw_from: Any, largest: int = 17) -> Mesh:
    size = draw_from(st.integers(1, largest))
    kind = draw_from(st.sampled_from(["fft", "tunable"]))
    capacity = draw_from(st.integers(1, size)) if kind == "tunable" else None
    return Mesh(kind, size, capacity, draw_from(st.booleans()))


# Far from the interval of the initialization too: training may carry angles anywhere.
scales = st.sampled_from([0.0, 1e-8, 1.0, math.pi, 100.0, 1e6])


def angles_of(mesh: Mesh, seed: int, scale: float, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(mesh.num_angles, generator=generator, dtype=F64) * 2 - 1) * scale).to(dtype)


@quick
@given(mesh=meshes(), seed=seeds, scale=scales, dtype=st.sampled_from([F32, F64]))
def test_u_is_orthogonal_or_unitary(mesh: Mesh, seed: int, scale: float, dtype: torch.dtype):
    U = mesh.matrix(angles_of(mesh, seed, scale, dtype))
    wide = U.to(torch.complex128)
    eye = torch.eye(mesh.size, dtype=torch.complex128)
    # Each of the L layers (and the phases) rounds a column by a few eps.
    allowed = 8 * (mesh.num_layers + 1) * torch.finfo(dtype).eps
    assert (wide.mH @ wide - eye).abs().max() <= allowed
    assert (wide @ wide.mH - eye).abs().max() <= allowed * math.sqrt(mesh.size)
    assert orthogonality_error(U) <= allowed


@quick
@given(mesh=meshes(), seed=seeds, scale=scales)
def test_norms_and_angles_between_states_are_kept(mesh: Mesh, seed: int, scale: float):
    angles = angles_of(mesh, seed, scale)
    h = draw(mesh.size, 4, seed=seed, dtype=torch.complex128 if mesh.complex else F64)
    moved = mesh.apply(angles, h)
    allowed = 8 * (mesh.num_layers + 1) * mesh.size * torch.finfo(F64).eps
    assert_close(moved.norm(dim=0), h.norm(dim=0), allowed)
    assert_close(moved.mH @ moved, h.mH @ h, allowed)
    assert_close(moved, mesh.matrix(angles) @ h, allowed)


@quick
@given(mesh=meshes(), seed=seeds, turns=st.integers(-3, 3))
def test_whole_turns_change_nothing(mesh: Mesh, seed: int, turns: int):
    angles = angles_of(mesh, seed, 1.0)
    assert_close(mesh.matrix(angles + 2 * math.pi * turns), mesh.matrix(angles), 1e-13)


def largest_rank(matrix: Any, angles: list[Tensor]) -> int:
    """Rank of the Jacobian of U by its angles, the largest over some places: where angles nearly align it drops."""
    ranks = []
    for place in angles:
        jacobian = torch.autograd.functional.jacobian(lambda a: torch.view_as_real(matrix(a) + 0j).flatten(), place)
        singular = torch.linalg.svdvals(jacobian)
        ranks.append(int((singular > 1e-7 * singular[0]).sum()))
    return max(ranks)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
def test_a_full_tunable_mesh_moves_in_every_direction(size: int, complex: bool):
    """The Jacobian of U has the rank of the group: H(H-1)/2 for rotations, H^2 for unitaries."""
    mesh = Mesh("tunable", size, size, complex)
    dimension = size * size if complex else size * (size - 1) // 2
    assert mesh.num_angles == dimension
    assert largest_rank(mesh.matrix, [angles_of(mesh, seed, math.pi) for seed in range(3)]) == dimension


def test_phases_on_the_output_would_not_reach_every_unitary():
    """The same count of angles with the phase on q' instead of q: rank 43 of 49 at H = 7, so the rank tells."""
    mesh = Mesh("tunable", 7, 7, complex=True)

    def matrix(angles: Tensor) -> Tensor:
        theta, phi, omega = mesh.split(angles)
        rows = list(torch.eye(7, dtype=torch.complex128).unbind(0))
        pairs = [pair for layer in mesh.pairs for pair in layer]
        for n, (p, q) in enumerate(pairs):
            c, s, e = torch.cos(theta[n]), torch.sin(theta[n]), torch.exp(1j * phi[n])
            rows[p], rows[q] = c * rows[p] - s * rows[q], e * (s * rows[p] + c * rows[q])
        return torch.exp(1j * omega)[:, None] * torch.stack(rows)

    assert largest_rank(matrix, [angles_of(mesh, seed, math.pi) for seed in range(3)]) == 43


def random_group_element(size: int, complex: bool, seed: int) -> Tensor:
    """Haar-distributed: a rotation (det +1) or a unitary matrix."""
    Q, R = torch.linalg.qr(draw(size, size, seed=seed, dtype=torch.complex128 if complex else F64))
    Q = Q * (R.diagonal() / R.diagonal().abs())
    if not complex and torch.linalg.det(Q) < 0:
        Q[:, 0] = -Q[:, 0]
    return Q


@pytest.mark.parametrize("size", [2, 3, 5, 6])
@pytest.mark.parametrize("complex", [False, True], ids=["rotation", "unitary"])
def test_a_full_tunable_mesh_learns_any_target(size: int, complex: bool):
    """By descent on the angles, to 1e-4 in every entry; a few starts, for the landscape has saddles."""
    mesh = Mesh("tunable", size, size, complex)
    target = random_group_element(size, complex, seed=size)
    best = math.inf
    for start in range(8):
        angles = angles_of(mesh, 100 + start, math.pi).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [angles],
            max_iter=500,
            tolerance_grad=1e-10,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def closure(angles: Tensor = angles, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (mesh.matrix(angles) - target).abs().square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)  # pyright: ignore[reportArgumentType]
        best = min(best, (mesh.matrix(angles) - target).abs().max().item())
        if best <= 1e-4:
            break
    assert best <= 1e-4


def test_a_reflection_stays_out_of_reach():
    """det -1 cannot be built from rotations: some column of the best fit is off by far."""
    mesh = Mesh("tunable", 3, 3)
    target = torch.diag(torch.tensor([-1.0, 1.0, 1.0], dtype=F64))
    for seed in range(20):
        U = mesh.matrix(angles_of(mesh, seed, math.pi))
        assert torch.linalg.det(U).item() == pytest.approx(1.0, abs=1e-13)
        assert (U - target).norm() >= 2 - 1e-12  # |U - Q|^2 = 6 - 2 tr(Q^T U) and tr(V) <= 1 for det V = -1


@pytest.mark.parametrize("name", ["goru", "goru-tunable", "eurnn", "eurnn-fft", "eurnn-real"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_orthogonal_after_every_optimizer_step_and_after_save_and_load(name: str, optimizer):
    kind, H = BY_NAME[name], 13
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True))
    updates = optimizer(layer.parameters(), lr=0.3)  # wild on purpose
    x = draw(4, 8, I, dtype=F32)
    start = layer.orthogonal_matrix().detach().clone()
    allowed = 8 * (H + 1) * torch.finfo(F32).eps
    for _ in range(12):
        updates.zero_grad()
        loss = (layer(x)[0] - 1.0).square().mean()
        loss.backward()
        updates.step()
        assert layer.orthogonality_error() <= allowed
    assert (layer.orthogonal_matrix() - start).abs().max() > 0.01
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = kind.layer(I, H, num_layers=2, bidirectional=True)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.orthogonality_error() <= allowed
    assert torch.equal(other.orthogonal_matrix(), layer.orthogonal_matrix())


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda: goru.GORU(1, 1024), id="goru-fft"),
        pytest.param(lambda: goru.GORU(1, 1024, mesh="tunable", capacity=64), id="goru-tunable"),
        pytest.param(lambda: goru.GORU(1, 1024, mesh="tunable", capacity=1024), id="goru-full", marks=pytest.mark.soak),
        pytest.param(lambda: goru.EURNN(1, 1024), id="eurnn"),
        pytest.param(lambda: goru.EURNN(1, 1024, mesh="fft"), id="eurnn-fft"),
        pytest.param(lambda: goru.GORU(1, 1023), id="odd"),
    ],
)
def test_a_thousand_units_in_float32(layer):
    torch.manual_seed(0)
    assert layer().orthogonality_error() <= 1e-5


@quick
@given(kind=kinds, H=st.integers(1, 9), T=st.integers(2, 8), cut=st.data(), seed=seeds)
def test_splitting_a_sequence(kind: Kind, H: int, T: int, cut: Any, seed: int):
    layer = lively(kind.layer(I, H, num_layers=2, dtype=F64), seed)
    x = draw(T, 2, I, seed=seed)
    n = cut.draw(st.integers(1, T - 1))
    output, h_n = layer(x)
    first, middle = layer(x[:n])
    second, last = layer(x[n:], middle)
    allowed = rounding(F64, 2 * T, 2 * H + I)
    assert_close(torch.cat([first, second]), output, allowed)
    assert_close(last, h_n, allowed)


@quick
@given(
    kind=kinds,
    H=st.integers(1, 9),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    extra=st.integers(0, 3),
    filling=st.sampled_from([0.0, 5.0, math.nan, math.inf]),
    seed=seeds,
)
def test_padding(kind: Kind, H: int, lengths: list[int], extra: int, filling: float, seed: int):
    layer = lively(kind.layer(I, H, bidirectional=True, dtype=F64), seed)
    T, B = max(lengths) + extra, len(lengths)
    x = draw(T, B, I, seed=seed)
    for i, n in enumerate(lengths):
        x[n:, i] = filling
    output, h_n = layer(x, lengths=torch.tensor(lengths))
    allowed = rounding(F64, T, 2 * H + I)
    for i, n in enumerate(lengths):
        single, single_h = layer(x[:n, i])
        assert_close(output[:n, i], single, allowed)
        assert_close(h_n[:, i], single_h, allowed)
        assert torch.equal(output[n:, i], torch.zeros(T - n, 2 * H, dtype=F64))


@quick
@given(kind=kinds, H=st.integers(1, 9), order=st.permutations(range(6)), seed=seeds)
def test_permuting_the_batch_permutes_the_result(kind: Kind, H: int, order: list[int], seed: int):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64), seed)
    x = draw(4, 6, I, seed=seed)
    lengths = torch.tensor([4, 1, 3, 2, 4, 1])
    output, h_n = layer(x, lengths=lengths)
    moved, moved_h = layer(x[:, order], lengths=lengths[order])
    allowed = rounding(F64, 8, 2 * H + I)
    assert_close(moved, output[:, order], allowed)
    assert_close(moved_h, h_n[:, order], allowed)


@quick
@given(H=st.integers(1, 9), mesh=st.sampled_from(["fft", "tunable"]), complex=st.booleans(), seed=seeds)
def test_memory_without_input_keeps_its_norm(H: int, mesh: str, complex: bool, seed: int):
    """No input, no bias: an EURNN only turns its state; 50 steps and the norm is what it was."""
    layer = lively(goru.EURNN(I, H, bias=False, mesh=mesh, complex=complex, dtype=F64), seed)
    h = draw(1, 2, H, seed=seed, dtype=torch.complex128 if complex else F64)
    _, h_n = layer(torch.zeros(50, 2, I, dtype=F64), h)
    assert_close(h_n.norm(dim=-1), h.norm(dim=-1), rounding(F64, 50, 2 * H))


@quick
@given(H=st.integers(1, 9), bias=st.floats(-2.0, -0.01), seed=seeds)
def test_a_negative_bias_never_lets_the_state_grow(H: int, bias: float, seed: int):
    layer = lively(goru.EURNN(I, H, complex=False, dtype=F64), seed)
    with torch.no_grad():
        layer.bias_l0.fill_(bias)
    states, _ = layer(torch.zeros(20, 2, I, dtype=F64), draw(1, 2, H, seed=seed))
    norms = states.norm(dim=-1)
    assert (norms[1:] <= norms[:-1] * (1 + 1e-14)).all()


@quick
@given(H=st.integers(1, 6), seed=seeds, side=st.sampled_from([-20.0, 20.0]))
def test_a_saturated_update_gate_holds_or_replaces_the_state(H: int, seed: int, side: float):
    """z -> 1 keeps h exactly (sigmoid(800) is 1); z -> 0 gives the candidate, as without the gate."""
    layer = lively(goru.GORU(I, H, dtype=F64), seed)
    without: Any = goru.GORU(I, H, update_gate=False, dtype=F64)
    with torch.no_grad():
        layer.bias_l0[H : 2 * H] = 40 * side
        rows = [*range(H), *range(2 * H, 3 * H)]
        without.weight_ih_l0.copy_(layer.weight_ih_l0[rows])
        without.weight_hh_l0.copy_(layer.weight_hh_l0[:H])
        without.bias_l0.copy_(layer.bias_l0[rows])
        without.angles_l0.copy_(layer.angles_l0)
    x, h = draw(1, 2, I, seed=seed), draw(1, 2, H, seed=seed + 1)
    _, h_n = layer(x, h)
    if side > 0:
        assert torch.equal(h_n, h)
    else:
        assert_close(h_n, without(x, h)[1], rounding(F64, 1, 2 * H + I))


@quick
@given(H=st.integers(1, 6), seed=seeds)
def test_a_saturated_reset_gate_is_a_missing_one(H: int, seed: int):
    layer = lively(goru.GORU(I, H, dtype=F64), seed)
    without: Any = goru.GORU(I, H, reset_gate=False, dtype=F64)
    with torch.no_grad():
        layer.bias_l0[:H] = 800.0
        without.weight_ih_l0.copy_(layer.weight_ih_l0[H:])
        without.weight_hh_l0.copy_(layer.weight_hh_l0[H:])
        without.bias_l0.copy_(layer.bias_l0[H:])
        without.angles_l0.copy_(layer.angles_l0)
    x = draw(5, 2, I, seed=seed)
    assert_close(layer(x)[0], without(x)[0], rounding(F64, 5, 2 * H + I))


@quick
@given(bias=st.floats(-3.0, 3.0), exponent=st.integers(-330, 3), sign=st.sampled_from([-1.0, 1.0]))
def test_modrelu_around_zero(bias: float, exponent: int, sign: float):
    """Odd, never NaN, 0 for what counts as 0, and sign(a) relu(|a| + b) for the rest."""
    a = torch.tensor([sign * float(f"1e{exponent}")], dtype=F64)
    b = torch.tensor([bias], dtype=F64)
    value = goru.modrelu(a, b)
    assert torch.equal(goru.modrelu(-a, b), -value)
    if abs(a.item()) < math.sqrt(torch.finfo(F64).tiny):
        assert value.item() == 0.0
    else:
        assert value.item() == pytest.approx(sign * max(abs(a.item()) + bias, 0.0), rel=1e-15, abs=0.0)
