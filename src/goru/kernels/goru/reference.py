"""GORU's equations in plain torch: the specification that the other implementations are compared with.

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


def results(inputs: GoruInputs, options: GoruOptions) -> list[tuple[tuple[Any, ...], torch.dtype]]:
    """output (T, B, H), h_n (B, H)."""
    x, H = inputs.x, options.mesh.size
    return [((x.shape[0], x.shape[1], H), x.dtype), ((x.shape[1], H), inputs.h0.dtype)]


class Trace(NamedTuple):
    """What a GORU did: output and the three inner signals, each (T, B, H), and the last state (B, H)."""

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
    valid = None if lengths is None else valid_steps(lengths, x.shape[0])[..., None]
    if valid is not None:
        x = torch.where(valid, x, torch.zeros_like(x))
    from_x = (x @ weight_ih.T).unbind(0)
    on, off = torch.ones_like(h0), torch.zeros_like(h0)
    h = h0
    steps: list[tuple[Tensor, ...]] = []
    for t in walk(x.shape[0], options.reverse):
        x_t = from_x[t]
        seen = h if valid is None else torch.where(valid[t], h, off)  # without the NaN of a row that has ended
        reset, update = on, off
        if options.reset_gate:
            reset = torch.sigmoid(x_t[:, :H] + seen @ weight_hh[:H].T + _bias(bias, 0, H))  # type: ignore[index]
        if options.update_gate:
            k = H * options.reset_gate
            update = torch.sigmoid(x_t[:, k : k + H] + seen @ weight_hh[k:].T + _bias(bias, k, H))  # type: ignore[index]
        candidate = x_t[:, -H:] + reset * (seen @ u.T)
        if bias is not None:
            candidate = modrelu(candidate, bias[-H:])
        new = update * seen + (1 - update) * candidate
        if valid is None:
            h = new
            steps.append((h, reset, update, candidate))
        else:
            h = torch.where(valid[t], new, h)
            steps.append(tuple(torch.where(valid[t], s, off) for s in (h, reset, update, candidate)))
    if options.reverse:
        steps.reverse()
    return Trace(*(torch.stack(signal) for signal in zip(*steps, strict=True)), h_n=h)


def goru(inputs: GoruInputs, options: GoruOptions) -> tuple[Tensor, Tensor]:
    """output (T, B, H) and h_n (B, H)."""
    signals = trace(inputs, options)
    return signals.output, signals.h_n


def _bias(bias: Tensor | None, start: int, size: int) -> Tensor | float:
    return 0.0 if bias is None else bias[start : start + size]
