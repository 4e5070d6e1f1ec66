"""EURNN's equations in plain torch: the specification that the other implementations are compared with.

First what the recurrence is given and gives back; letters as in recurrence.py. Autograd differentiates
the equations, twice if need be, and they run under torch.func transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...activation import modrelu
from ...rotations import Mesh
from ..chunks import walk
from ..lengths import valid_steps


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


def results(inputs: EurnnInputs, options: EurnnOptions) -> list[tuple[tuple[Any, ...], torch.dtype]]:
    """output (T, B, H), the real part, and h_n (B, H)."""
    x, H = inputs.x, options.mesh.size
    return [((x.shape[0], x.shape[1], H), x.dtype), ((x.shape[1], H), inputs.h0.dtype)]


def eurnn(inputs: EurnnInputs, options: EurnnOptions) -> tuple[Tensor, Tensor]:
    """output (T, B, H), the real part, and h_n (B, H)."""
    x, h0, weight_ih, bias, u, angles, lengths = inputs
    mesh = options.mesh
    valid = None if lengths is None else valid_steps(lengths, x.shape[0])[..., None]
    if valid is not None:
        x = torch.where(valid, x, torch.zeros_like(x))
    from_x = x @ weight_ih.T
    if mesh.complex:
        from_x = torch.complex(from_x[..., : mesh.size], from_x[..., mesh.size :])
    arrivals = from_x.unbind(0)
    h = h0
    outputs = []
    for t in walk(x.shape[0], options.reverse):
        seen = h if valid is None else torch.where(valid[t], h, torch.zeros_like(h))  # no NaN of a row that has ended
        rotated = mesh.apply(angles, seen.T).T if angles is not None else seen @ u.T  # type: ignore[union-attr]
        new = rotated + arrivals[t]
        if bias is not None:
            new = modrelu(new, bias)
        h = new if valid is None else torch.where(valid[t], new, h)
        real = h.real if mesh.complex else h
        outputs.append(real if valid is None else torch.where(valid[t], real, torch.zeros_like(real)))
    if options.reverse:
        outputs.reverse()
    return torch.stack(outputs), h
