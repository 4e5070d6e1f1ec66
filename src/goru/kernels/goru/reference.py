"""GORU's equations in plain torch: the specification that the other implementations are compared with.

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


class GoruInputs(NamedTuple):
    """Rows of a gate that is off are missing, and weight_hh is None if both are off. Either u or angles is None."""

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
    checkpoint: int | None = None  # native: nothing is saved, so many steps at a time are recomputed


def results(inputs: GoruInputs, options: GoruOptions) -> equations.Shapes:
    return equations.results(inputs.x, options.mesh.size, inputs.h0.dtype)


class Trace(NamedTuple):
    """What a GORU, or a GRU, did: output and the three inner signals, each (T, B, H), and the last state (B, H)."""

    output: Tensor
    reset: Tensor
    update: Tensor
    candidate: Tensor
    h_n: Tensor


def trace(inputs: GoruInputs, options: GoruOptions) -> Trace:
    """Every signal of a GORU over time; beyond a row's end all of them are 0."""
    x, h0, weight_ih, weight_hh, bias, u, angles, lengths = inputs
    if u is None:
        assert angles is not None
        u = options.mesh.matrix(angles)
    H = u.shape[0]
    on, off = torch.ones_like(h0), torch.zeros_like(h0)

    def step(from_x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        reset, update = on, off
        if options.reset_gate:
            reset = torch.sigmoid(from_x[:, :H] + h @ weight_hh[:H].T + _bias(bias, 0, H))  # type: ignore[index]
        if options.update_gate:
            k = H * options.reset_gate
            update = torch.sigmoid(from_x[:, k : k + H] + h @ weight_hh[k:].T + _bias(bias, k, H))  # type: ignore[index]
        candidate = from_x[:, -H:] + reset * (h @ u.T)
        if bias is not None:
            candidate = modrelu(candidate, bias[-H:])
        return update * h + (1 - update) * candidate, reset, update, candidate

    x, valid = equations.masked(x, lengths)
    steps, (h_n,) = equations.over_time(x @ weight_ih.T, (h0,), step, valid, options.reverse)
    return Trace(*equations.stacked(steps), h_n=h_n)


def goru(inputs: GoruInputs, options: GoruOptions) -> tuple[Tensor, Tensor]:
    """output (T, B, H) and h_n (B, H)."""
    signals = trace(inputs, options)
    return signals.output, signals.h_n


def _bias(bias: Tensor | None, start: int, size: int) -> Tensor | float:
    return 0.0 if bias is None else bias[start : start + size]
