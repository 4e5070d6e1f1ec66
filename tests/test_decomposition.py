"""What cannot be taken apart into rotations is refused in a sentence."""

from __future__ import annotations

import math

import pytest
import torch

from goru.decomposition import angles_of_rotation, fit_angles, nearest_rotation
from goru.rotations import Mesh


def orthogonality_error(matrix: torch.Tensor) -> float:
    exact = matrix.double()
    return (exact.T @ exact - torch.eye(len(exact), dtype=torch.float64)).abs().max().item()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.ones(3, 3), r"needs an orthogonal matrix, got one with max \|M\^T M - I\| = 3"),
        (torch.eye(3) * (1 + 1e-4), "needs an orthogonal matrix"),
        (torch.full((3, 3), torch.nan), "needs an orthogonal matrix, got one with .* = nan"),
        (torch.eye(3) * 1j, r"expected a matrix of real floating-point numbers, got torch\.complex64"),
        (torch.eye(3).long(), r"real floating-point numbers, got torch\.int64"),
        (torch.zeros(2, 3), r"expected a square matrix, got one of shape \(2, 3\)"),
        (torch.zeros(0, 0), r"expected a square matrix, got one of shape \(0, 0\)"),
        (torch.diag(torch.tensor([1.0, 1.0, -1.0])), r"has determinant \+1, the given matrix has -1"),
        (-torch.ones(1, 1), r"has determinant \+1, the given matrix has -1"),
        (2 * torch.ones(1, 1), "needs an orthogonal matrix"),
    ],
)
def test_no_rotation(matrix: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        angles_of_rotation(matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 16, 512])
def test_the_nearest_rotation_is_one(size: int, dtype: torch.dtype) -> None:
    """Also with 512 units in float32, where a determinant underflows."""
    torch.manual_seed(size)
    found = nearest_rotation(torch.randn(size, size, dtype=dtype) / math.sqrt(size))
    assert orthogonality_error(found) < 8 * math.sqrt(size) * torch.finfo(dtype).eps
    assert torch.linalg.slogdet(found.double()).sign == 1
    if size < 100:
        mesh = Mesh("tunable", size, size)
        assert (mesh.matrix(angles_of_rotation(found)) - found.double()).abs().max() < 100 * torch.finfo(dtype).eps


def test_targets_of_a_fit() -> None:
    real, complex = Mesh("tunable", 3, 2), Mesh("tunable", 3, 2, complex=True)
    with pytest.raises(ValueError, match=r"real floating-point numbers, got torch\.complex128"):
        fit_angles(real, torch.eye(3, dtype=torch.complex128))
    with pytest.raises(ValueError, match=r"the mesh has 3 units, the target has shape \(4, 4\)"):
        fit_angles(real, torch.eye(4))
    for fit in (lambda m: fit_angles(real, m), nearest_rotation):
        with pytest.raises(ValueError, match="finite numbers"):
            fit(torch.full((3, 3), torch.inf))
    wanted = complex.matrix(torch.rand(complex.num_angles, dtype=torch.float64))
    found = complex.matrix(fit_angles(complex, wanted))
    assert (found - wanted).abs().max() < 1e-4
