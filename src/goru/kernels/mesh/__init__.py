"""The matrix U of a mesh from its angles, as a recurrence without steps: one input, one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...rotations import Mesh
from ..backends import MANUAL, REFERENCE, Choice, Equations, Kernel
from ..native import NATIVE
from ..recurrence import Recurrence
from . import manual, native

__all__ = ["MESH_MATRIX", "MeshInputs", "build_matrix"]


class MeshInputs(NamedTuple):
    angles: Tensor


def _results(inputs: MeshInputs, mesh: Mesh) -> list[tuple[tuple[Any, ...], torch.dtype]]:
    """u (H, H)."""
    return [((mesh.size, mesh.size), mesh.state_dtype(inputs.angles.dtype))]


def _kernel(matrix: Callable[[Tensor, Mesh], Tensor], backward: Callable[..., Tensor]) -> Kernel:
    def forward(inputs: MeshInputs, mesh: Mesh, save: bool) -> tuple[Tensor, Tensor]:
        u = matrix(inputs.angles, mesh)
        return u, u.new_empty(0)

    return Kernel(
        forward,
        lambda inputs, mesh, u, saved, grads, needs_x: (backward(grads[0], u, inputs.angles, mesh),),
        lambda inputs, mesh: (0,),
    )


MESH_MATRIX = Recurrence("mesh_matrix", MeshInputs, Mesh, _results, count=1)
REFERENCE.kernels["mesh_matrix"] = Equations(lambda inputs, mesh: (mesh.matrix(inputs.angles),))
MANUAL.kernels["mesh_matrix"] = _kernel(manual.matrix, manual.matrix_backward)
NATIVE.kernels["mesh_matrix"] = _kernel(native.matrix, native.matrix_backward)


def build_matrix(angles: Tensor, mesh: Mesh, backend: Choice | str) -> Tensor:
    """U in the dtype of the angles. Half precision is built in float32 and rounded once, not layer by layer."""
    half = angles.dtype in (torch.bfloat16, torch.float16)
    (u,) = MESH_MATRIX(MeshInputs(angles.float() if half else angles), mesh, backend)
    return u.to(angles.dtype) if half and not mesh.complex else u
