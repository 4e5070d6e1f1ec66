"""From a matrix back to angles: exact for a full tunable mesh, a local fit for any other.

Legend: H units, L mesh layers; R(theta) = [[c, -s], [s, c]] on a pair (p, p + 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .kernels.mesh import build_matrix
from .rotations import Mesh

ORTHOGONAL = 32.0
"""max |M^T M - I| of an orthogonal matrix, as a multiple of sqrt(H) roundings of its dtype; a product of H layers of
rotations, or a matrix from `nearest_rotation`, stays below 4 in measurements."""


def _check_square(matrix: Tensor) -> int:
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.numel():
        raise ValueError(f"expected a square matrix, got one of shape {tuple(matrix.shape)}")
    return matrix.shape[0]


def _check_real(matrix: Tensor) -> None:
    if not matrix.is_floating_point():
        raise ValueError(f"expected a matrix of real floating-point numbers, got {matrix.dtype}")


def nearest_rotation(matrix: Tensor) -> Tensor:
    """The rotation (det +1) nearest to `matrix` in the Frobenius norm: its polar factor, with the least singular
    direction flipped if the determinant requires it.

    Args:
        matrix: (H, H), real.

    >>> nearest_rotation(torch.tensor([[0.0, -3.0], [2.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    _check_square(matrix)
    _check_real(matrix)
    if not matrix.isfinite().all():
        raise ValueError("nearest_rotation needs a matrix of finite numbers, got one with NaN or infinity")
    left, _, right = torch.linalg.svd(matrix)
    signs = torch.ones(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    signs[-1] = torch.linalg.slogdet(left @ right).sign  # det itself underflows at a few hundred units
    return (left * signs) @ right


def angles_of_rotation(rotation: Tensor) -> Tensor:
    """Angles of the real tunable mesh of capacity H whose matrix is `rotation` (det +1), in float64.

    Elements are nulled along the antidiagonals, alternately by rotations of columns and of rows (Clements et al.
    2016), which leaves a diagonal of signs. The signs move to the input side of the mesh and then through it: each
    layer passes a lone -1 to the right, two that meet become a rotation by pi, and after H layers none is left.

    Args:
        rotation: (H, H), orthogonal, with determinant +1.

    >>> angles_of_rotation(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    tensor([1.5708], dtype=torch.float64)
    """
    H = _check_square(rotation)
    _check_real(rotation)
    mesh = Mesh("tunable", H, H)
    # Row p of `work` is column p of the matrix: the column rotations, half of all, run over contiguous memory.
    work = rotation.detach().to("cpu", torch.float64).T.contiguous()
    error = (work @ work.T - torch.eye(H, dtype=torch.float64, device="cpu")).abs().max().item()
    allowed = ORTHOGONAL * math.sqrt(H) * torch.finfo(rotation.dtype).eps
    if not error <= allowed:  # NaN neither
        raise ValueError(
            f"angles_of_rotation needs an orthogonal matrix, got one with max |M^T M - I| = {error:.3g} (at most "
            f"{allowed:.3g} for {rotation.dtype}); take nearest_rotation(matrix) first"
        )
    if torch.linalg.slogdet(work).sign < 0:
        raise ValueError("a product of rotations has determinant +1, the given matrix has -1")
    if H == 1:
        return torch.zeros(0, dtype=torch.float64, device="cpu")
    before: list[tuple[int, float]] = []  # (p, theta), in the order in which they act on a state
    after: list[tuple[int, float]] = []  # the same, last first
    for diagonal in range(1, H):
        for j in range(diagonal):
            if diagonal % 2:
                p, row = diagonal - 1 - j, H - 1 - j
                theta = math.atan2(work[p, row].item(), work[p + 1, row].item())
                work[p : p + 2] = _rotation(theta) @ work[p : p + 2]
                before.append((p, theta))
            else:
                p, column = H - diagonal + j - 1, j
                theta = math.atan2(-work[column, p + 1].item(), work[column, p].item())
                work[:, p : p + 2] = work[:, p : p + 2] @ _rotation(theta).T
                after.append((p, -theta))
    signs = [1 if value > 0 else -1 for value in work.diagonal().tolist()]
    before = [(p, theta if signs[p] == signs[p + 1] else -theta) for p, theta in before]
    layers = _schedule(before + after[::-1], H)
    angles = []
    for layer in layers:
        for p in sorted(layer):
            theta = layer[p]
            match signs[p], signs[p + 1]:
                case -1, -1:
                    theta += math.pi
                    signs[p] = signs[p + 1] = 1
                case -1, 1:
                    theta = math.pi - theta
                    signs[p], signs[p + 1] = 1, -1
                case 1, -1:
                    theta = -theta
            angles.append(theta)
    assert len(angles) == mesh.num_angles
    return torch.tensor([math.remainder(theta, 2 * math.pi) for theta in angles], dtype=torch.float64, device="cpu")


def _rotation(theta: float) -> Tensor:
    c, s = math.cos(theta), math.sin(theta)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64, device="cpu")


def _schedule(rotations: list[tuple[int, float]], H: int) -> list[dict[int, float]]:
    """Place each rotation in the first layer where its pair is free; together they fill the mesh exactly."""
    layers: list[dict[int, float]] = [{} for _ in range(H)]
    free = [0] * H
    for p, theta in rotations:
        layer = max(free[p], free[p + 1])
        layers[layer][p] = theta
        free[p] = free[p + 1] = layer + 1
    return layers


def fit_angles(mesh: Mesh, target: Tensor, starts: int = 3, iterations: int = 200) -> Tensor:
    """Angles whose matrix is close to `target` in the Frobenius norm: the best of a few local searches, in float64.

    A mesh with fewer angles than a rotation reaches only a non-convex subset of them; check the residual.

    Args:
        mesh: the layout of the rotations.
        target: (H, H).
        starts: number of searches, each from different angles.
        iterations: iterations of each search.

    >>> mesh = Mesh("fft", 4)
    >>> target = mesh.matrix(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))
    >>> bool((mesh.matrix(fit_angles(mesh, target)) - target).abs().max() < 1e-3)
    True
    """
    if _check_square(target) != mesh.size:
        raise ValueError(f"the mesh has {mesh.size} units, the target has shape {tuple(target.shape)}")
    if not mesh.complex:
        _check_real(target)
    if not target.isfinite().all():
        raise ValueError("fit_angles needs a target of finite numbers, got one with NaN or infinity")
    target = target.detach().to("cpu", torch.complex128 if mesh.complex else torch.float64)
    if mesh.num_angles == 0:
        return torch.zeros(0, dtype=torch.float64, device="cpu")
    generator = torch.Generator("cpu").manual_seed(0)
    best, best_loss = torch.zeros(mesh.num_angles, dtype=torch.float64, device="cpu"), math.inf
    for _ in range(starts):
        start = torch.rand(mesh.num_angles, generator=generator, dtype=torch.float64, device="cpu")
        angles = ((start - 0.5) * 2 * math.pi).requires_grad_()
        optimizer = torch.optim.LBFGS([angles], max_iter=iterations, history_size=20, line_search_fn="strong_wolfe")

        def loss(angles: Tensor = angles, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            with torch.enable_grad():
                value = (build_matrix(angles, mesh, "manual") - target).abs().square().sum()
                value.backward()
            return value

        optimizer.step(loss)  # type: ignore[arg-type]
        value = loss().item()
        if value < best_loss:
            best, best_loss = angles.detach().clone(), value
    return best
