"""Layers and cells whose transition is a mesh: angles, the matrix U, its cache, and its orthogonality error.

A unit with a mesh has `mesh` and a parameter `angles`, and its `run` takes one more argument: `matrix()` returns U,
built once per pass or cached from an earlier one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.backends import Choice
from ..kernels.mesh import MESH_MATRIX, build_matrix
from ..rotations import Mesh, orthogonality_error
from ..tracing import transformed, untraced
from .recurrent import RecurrentCell, RecurrentLayer, RecurrentModule


class MatrixCache:
    """U of the last inference call, valid while the angles have the same values.

    It compares values, not version counters, which miss a change through `.data`.
    """

    def __init__(self) -> None:
        self.cached: dict[str, tuple[Tensor, str, Tensor]] = {}

    def matrix(self, key: str, angles: Tensor, mesh: Mesh, backend: Choice) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and angles.requires_grad
        if MESH_MATRIX.is_plain(backend) or needs_gradient or not untraced(angles) or transformed(angles):
            return build_matrix(angles, mesh, backend)
        cached = self.cached.get(key)
        if cached is not None:
            before, by, u = cached
            if by == backend.backend and before.dtype == angles.dtype and torch.equal(before, angles):
                return u
        # An inference tensor could not be saved for a later backward pass with frozen angles.
        with torch.inference_mode(False), torch.no_grad():
            u = build_matrix(angles, mesh, backend)
            self.cached[key] = (angles.detach().clone(), backend.backend, u)
        return u

    def __getstate__(self) -> dict[str, Any]:
        return {"cached": {}}


class OrthogonalModule(RecurrentModule):
    """What layers and cells of a unit with a mesh share."""

    unit: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._matrices = MatrixCache()

    def _run_unit(self, x, state, parameters, lengths, reverse, backend, suffix=""):
        def matrix() -> Tensor:
            return self._matrices.matrix(suffix, parameters["angles"], self.unit.mesh, backend)

        return self.unit.run(x, state, parameters, lengths, reverse, backend, matrix)

    def _matrix(self, angles: Tensor) -> Tensor:
        return build_matrix(angles, self.unit.mesh, self._backend(angles))


class OrthogonalLayer(OrthogonalModule, RecurrentLayer):
    """Stacked layers of a unit with a mesh."""

    def orthogonal_matrix(self, layer: int = 0, reverse: bool = False) -> Tensor:
        """The H x H matrix U of one layer and direction; it acts as U @ h. Differentiable."""
        self._check_place(layer, reverse)
        return self._matrix(self._parameters_of(layer, reverse)["angles"])

    @torch.no_grad()
    def orthogonality_error(self) -> float:
        """`max |U^H U - I|` over all layers and directions."""
        errors = [orthogonality_error(self.orthogonal_matrix(*place)) for place in self._places()]
        return torch.tensor(errors, dtype=torch.float64).max().item()  # Python's max ignores a NaN


class OrthogonalCell(OrthogonalModule, RecurrentCell):
    """One step of a unit with a mesh."""

    def orthogonal_matrix(self) -> Tensor:
        """The H x H matrix U; it acts as U @ h. Differentiable."""
        return self._matrix(self._named()["angles"])

    @torch.no_grad()
    def orthogonality_error(self) -> float:
        """`max |U^H U - I|`."""
        return orthogonality_error(self.orthogonal_matrix())


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """All parameters of `module` in two groups: with weight decay, and without it the angles of its meshes.

    Decay would pull the angles toward 0, and so U toward the identity.

    Args:
        module: the model.
        weight_decay: weight decay of all parameters except the angles.

    >>> import goru
    >>> model = nn.Sequential(nn.Linear(3, 4), goru.GORU(4, 8))
    >>> [group["weight_decay"] for group in parameter_groups(model, 0.01)]
    [0.01, 0.0]
    """
    angles = {
        id(parameter)
        for part in module.modules()
        if isinstance(part, RecurrentModule)
        for name, parameter in part.named_parameters()
        if name.split(".")[-1].startswith("angles") or ".angles" in f".{name}"
    }
    decayed, kept = [], []
    for parameter in module.parameters():
        (kept if id(parameter) in angles else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
