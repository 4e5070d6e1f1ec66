"""Meshes against the oracle, and against their description in words (docs/mathematics.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from goru.rotations import Mesh, orthogonality_error
from tests import oracle
from tests.specimens import assert_close, draw, rounding

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16]
MESHES = [
    (kind, size, capacity)
    for size in SIZES
    for kind, capacities in (("fft", [None]), ("tunable", sorted({1, min(2, size), (size + 1) // 2, size})))
    for capacity in capacities
]


def random_angles(mesh: Mesh, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(mesh.num_angles, generator=generator, dtype=torch.float64) * 2 - 1) * math.pi


@pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize(("kind", "size", "capacity"), MESHES)
def test_matrix_and_apply_equal_the_oracle(kind, size, capacity, complex):
    mesh = Mesh(kind, size, capacity, complex)
    assert mesh.num_angles == oracle.number_of_angles(kind, size, capacity, complex)
    angles = random_angles(mesh)
    expected = oracle.mesh_matrix(kind, size, capacity, angles.numpy(), complex)
    tolerance = rounding(torch.float64, steps=size, terms=2)
    U = mesh.matrix(angles)
    assert U.dtype == (torch.complex128 if complex else torch.float64)
    assert_close(U, expected, tolerance, "U")
    columns = draw(size, 3, dtype=U.dtype)
    assert_close(mesh.apply(angles, columns), expected @ columns.numpy(), tolerance * size, "U @ columns")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (2, [[(0, 1)]]),
        (3, [[(0, 2)], [(0, 1)]]),
        (4, [[(0, 2), (1, 3)], [(0, 1), (2, 3)]]),
        (5, [[(0, 4)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]),
        (6, [[(0, 4), (1, 5)], [(0, 2), (1, 3)], [(0, 1), (2, 3), (4, 5)]]),
        (7, [[(0, 4), (1, 5), (2, 6)], [(0, 2), (1, 3), (4, 6)], [(0, 1), (2, 3), (4, 5)]]),
    ],
)
def test_fft_pairs_written_out_by_hand(size, expected):
    assert oracle.mesh_pairs("fft", size) == expected
    assert [list(layer) for layer in Mesh("fft", size).pairs] == expected


@pytest.mark.parametrize(
    ("size", "capacity", "expected"),
    [
        (2, 2, [[(0, 1)], []]),
        (3, 3, [[(0, 1)], [(1, 2)], [(0, 1)]]),
        (4, 3, [[(0, 1), (2, 3)], [(1, 2)], [(0, 1), (2, 3)]]),
        (5, 2, [[(0, 1), (2, 3)], [(1, 2), (3, 4)]]),
    ],
)
def test_tunable_pairs_written_out_by_hand(size, capacity, expected):
    assert oracle.mesh_pairs("tunable", size, capacity) == expected
    assert [list(layer) for layer in Mesh("tunable", size, capacity).pairs] == expected


def test_one_real_rotation_turns_p_toward_q():
    """theta = 30 degrees on H = 2: the first column is (cos, sin)."""
    U = Mesh("tunable", 2, 1).matrix(torch.tensor([math.pi / 6], dtype=torch.float64))
    c, s = math.sqrt(3) / 2, 0.5
    assert_close(U, np.array([[c, -s], [s, c]]), 1e-15)


def test_one_complex_rotation_has_its_phase_on_the_input_q():
    theta, phi, omega = math.pi / 6, math.pi / 2, [math.pi, -math.pi / 2]
    U = Mesh("tunable", 2, 1, complex=True).matrix(torch.tensor([theta, phi, *omega], dtype=torch.float64))
    c, s = math.sqrt(3) / 2, 0.5
    # e = i; the rows are then multiplied by exp(i omega) = -1 and -i.
    expected = np.array([[-1 * c, -1 * -1j * s], [-1j * s, -1j * 1j * c]])
    assert_close(U, expected, 1e-15)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("kind", ["fft", "tunable"])
def test_angles_of_zero_give_the_identity(kind, complex):
    mesh = Mesh(kind, 7, None, complex)
    assert torch.equal(mesh.matrix(torch.zeros(mesh.num_angles)).real, torch.eye(7))


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("kind", ["fft", "tunable"])
def test_one_unit_has_no_angles_and_u_is_one(kind, complex):
    mesh = Mesh(kind, 1, None, complex)
    assert mesh.num_angles == 0
    U = mesh.matrix(torch.empty(0))
    assert U.shape == (1, 1)
    assert U.item() == 1
    assert U.is_complex() == complex


@pytest.mark.parametrize("size", [2, 3, 6, 7])
def test_every_unit_of_a_full_tunable_mesh_is_mixed(size):
    """The published real mesh loses its last unit at odd sizes; here no entry of U stays 0."""
    mesh = Mesh("tunable", size, size)
    assert mesh.matrix(random_angles(mesh)).abs().min() > 0


@pytest.mark.parametrize("size", [2, 3, 5, 8, 12])
def test_fft_mesh_joins_every_pair_of_units(size):
    """Powers of two: U has no structural zero. Other sizes: every unit is rotated at least once."""
    mesh = Mesh("fft", size)
    U = mesh.matrix(random_angles(mesh))
    if size & (size - 1) == 0:
        assert U.abs().min() > 0
    assert (U.abs() < 0.99999).all()


def test_determinant_of_a_real_mesh_is_plus_one():
    for size in (2, 3, 6, 9):
        mesh = Mesh("tunable", size, size)
        assert torch.linalg.det(mesh.matrix(random_angles(mesh))).item() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("complex", [False, True])
def test_dtype_of_u_follows_the_angles(dtype, complex):
    mesh = Mesh("fft", 5, None, complex)
    assert mesh.matrix(torch.zeros(mesh.num_angles, dtype=dtype)).dtype == (dtype.to_complex() if complex else dtype)


@pytest.mark.parametrize("kind", ["fft", "tunable"])
@pytest.mark.parametrize("complex", [False, True])
def test_gradient_of_u_is_right(kind, complex):
    mesh = Mesh(kind, 5, 3 if kind == "tunable" else None, complex)
    angles = random_angles(mesh).requires_grad_()
    assert torch.autograd.gradcheck(mesh.matrix, (angles,))
    columns = draw(5, 2, dtype=torch.complex128 if complex else torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(mesh.apply, (angles, columns))


def test_orthogonality_error_is_the_largest_entry_of_the_gram_matrix_minus_identity():
    assert orthogonality_error(torch.eye(3)) == 0.0
    assert orthogonality_error(torch.diag(torch.tensor([1.0, 2.0]))) == 3.0  # 2 * 2 - 1
    assert orthogonality_error(torch.tensor([[1.0, 1.0], [0.0, 1.0]])) == 1.0
    assert orthogonality_error(torch.diag(torch.tensor([1j, -1.0]))) == 0.0
    # Without the conjugate transpose, i * i - 1 = -2 would be reported as the error of a unitary matrix.
    assert orthogonality_error(torch.tensor([[0.0, 1j], [1j, 0.0]])) == 0.0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("butterfly", 4), ValueError),
        (("fft", 4, 2), ValueError),
        (("tunable", 4, 0), ValueError),
        (("tunable", 4, -1), ValueError),
        (("tunable", 4, 5), ValueError),
        (("tunable", 4, 2.0), TypeError),
        (("tunable", 4, "2"), TypeError),
        (("fft", -1), ValueError),
    ],
)
def test_bad_meshes_are_refused(arguments, error):
    with pytest.raises(error):
        Mesh(*arguments)


def test_refusals_name_what_was_given_and_what_is_possible():
    with pytest.raises(ValueError, match=r"(?s)fft.*tunable.*butterfly|butterfly.*fft.*tunable"):
        Mesh("butterfly", 4)
    with pytest.raises(ValueError, match=r"4.*9|9.*4"):
        Mesh("tunable", 4, 9)
