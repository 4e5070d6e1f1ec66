"""EURNN's equations in plain torch: the specification that the other implementations are compared with.

Defines the inputs and outputs first, then the equations; letters as in recurrence.py. Autograd differentiates
them, twice if needed, and they run under torch.func transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...activation import modrelu
from ...rotations import Mesh
from .. import equations


class EurnnInputs(NamedTuple):
    """The weights are real; h0 and u are complex if the mesh is. Either u or angles is None."""

    x: Tensor  # (T, B, I)
    h0: Tensor  # (B, H)
    weight_ih: Tensor  # (H, I); for a complex mesh (2H, I), real rows, then imaginary ones
    bias: Tensor | None  # (H)
    u: Tensor | None  # (H, H)
    angles: Tensor | None
    lengths: Tensor | None = None


@dataclass(frozen=True)
class EurnnOptions:
    mesh: Mesh
    reverse: bool = False


def results(inputs: EurnnInputs, options: EurnnOptions) -> equations.Shapes:
    return equations.results(inputs.x, options.mesh.size, inputs.h0.dtype)


def eurnn(inputs: EurnnInputs, options: EurnnOptions) -> tuple[Tensor, Tensor]:
    """output (T, B, H), the real part, and h_n (B, H)."""
    x, h0, weight_ih, bias, u, angles, lengths = inputs
    mesh = options.mesh

    def step(from_x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        rotated = mesh.apply(angles, h.T).T if angles is not None else h @ u.T  # type: ignore[union-attr]
        new = rotated + from_x
        if bias is not None:
            new = modrelu(new, bias)
        return new, new.real if mesh.complex else new

    x, valid = equations.masked(x, lengths)
    from_x = x @ weight_ih.T
    if mesh.complex:
        from_x = torch.complex(from_x[..., : mesh.size], from_x[..., mesh.size :])
    steps, (h_n,) = equations.over_time(from_x, (h0,), step, valid, options.reverse)
    return torch.stack([output for _, output in steps]), h_n
