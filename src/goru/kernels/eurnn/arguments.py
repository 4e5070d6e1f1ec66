"""What an EURNN recurrence is given and gives back; letters as in recurrence.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...rotations import Mesh


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
