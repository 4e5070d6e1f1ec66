"""The equations in plain torch: the specification that the other implementations are compared with.

Autograd differentiates it, twice if need be, and it runs under torch.func transforms. Arguments as in operators.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..activation import modrelu
from ..rotations import Mesh
from .lengths import check, valid_steps


class Trace(NamedTuple):
    """What a GORU did: output and the three inner signals, each (T, B, H), and the last state (B, H)."""

    output: Tensor
    reset: Tensor
    update: Tensor
    candidate: Tensor
    h_n: Tensor


def goru_trace(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
) -> Trace:
    """Every signal of a GORU over time; beyond a row's end all of them are 0."""
    check(lengths, x.shape[0])
    H = u.shape[0]
    valid = None if lengths is None else valid_steps(lengths, x.shape[0])[..., None]
    if valid is not None:
        x = torch.where(valid, x, torch.zeros_like(x))
    from_x = x @ weight_ih.T
    on, off = torch.ones_like(h0), torch.zeros_like(h0)
    h = h0
    steps: list[tuple[Tensor, ...]] = []
    for t in _order(x.shape[0], reverse):
        reset, update = on, off
        if reset_gate:
            reset = torch.sigmoid(from_x[t, :, :H] + h @ weight_hh[:H].T + _bias(bias, 0, H))  # type: ignore[index]
        if update_gate:
            k = H * reset_gate
            update = torch.sigmoid(from_x[t, :, k : k + H] + h @ weight_hh[k:].T + _bias(bias, k, H))  # type: ignore[index]
        candidate = from_x[t, :, -H:] + reset * (h @ u.T)
        if bias is not None:
            candidate = modrelu(candidate, bias[-H:])
        new = update * h + (1 - update) * candidate
        if valid is None:
            h = new
            steps.append((h, reset, update, candidate))
        else:
            h = torch.where(valid[t], new, h)
            steps.append(tuple(torch.where(valid[t], s, off) for s in (h, reset, update, candidate)))
    if reverse:
        steps.reverse()
    return Trace(*(torch.stack(signal) for signal in zip(*steps, strict=True)), h_n=h)


def goru(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """output (T, B, H) and h_n (B, H)."""
    trace = goru_trace(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    return trace.output, trace.h_n


def eurnn(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    mesh: Mesh,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """output (T, B, H), the real part, and h_n (B, H). The transition is U itself or the angles of the mesh."""
    check(lengths, x.shape[0])
    valid = None if lengths is None else valid_steps(lengths, x.shape[0])[..., None]
    if valid is not None:
        x = torch.where(valid, x, torch.zeros_like(x))
    from_x = x @ weight_ih.T
    if mesh.complex:
        from_x = torch.complex(from_x[..., : mesh.size], from_x[..., mesh.size :])
    h = h0
    outputs = []
    for t in _order(x.shape[0], reverse):
        rotated = h @ transition.T if transition.dim() == 2 else mesh.apply(transition, h.T).T
        new = rotated + from_x[t]
        if bias is not None:
            new = modrelu(new, bias)
        h = new if valid is None else torch.where(valid[t], new, h)
        real = h.real if mesh.complex else h
        outputs.append(real if valid is None else torch.where(valid[t], real, torch.zeros_like(real)))
    if reverse:
        outputs.reverse()
    return torch.stack(outputs), h


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _bias(bias: Tensor | None, start: int, size: int) -> Tensor | float:
    return 0.0 if bias is None else bias[start : start + size]
