"""What a GORU recurrence is given and gives back; letters as in recurrence.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...rotations import Mesh


class GoruInputs(NamedTuple):
    """Rows of a gate that is off are missing, and weight_hh is None when both are off. Either u or angles is None."""

    x: Tensor  # (T, B, I)
    h0: Tensor  # (B, H)
    weight_ih: Tensor  # (3H, I), rows r z c
    weight_hh: Tensor | None  # (2H, H), rows r z
    bias: Tensor | None  # (3H), b_r b_z b_h
    u: Tensor | None  # (H, H)
    angles: Tensor | None
    lengths: Tensor | None = None


@dataclass(frozen=True)
class GoruOptions:
    mesh: Mesh
    reset_gate: bool = True
    update_gate: bool = True
    reverse: bool = False


def results(inputs: GoruInputs, options: GoruOptions) -> list[tuple[tuple[Any, ...], torch.dtype]]:
    """output (T, B, H), h_n (B, H)."""
    x, H = inputs.x, options.mesh.size
    return [((x.shape[0], x.shape[1], H), x.dtype), ((x.shape[1], H), inputs.h0.dtype)]
