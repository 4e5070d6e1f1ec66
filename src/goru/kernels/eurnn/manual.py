"""EURNN with a hand-derived backward pass, in torch operations: any device, no compiler.

A complex EURNN saves its pre-activations (T, B, H), a real one nothing: its output is enough.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...activation import modrelu, smallest_magnitude
from ...rotations import Mesh
from ..chunks import chunk_size, chunks, previous_states, walk
from ..lengths import valid_steps
from ..mesh.manual import Rotations
from .reference import EurnnInputs, EurnnOptions


def prefers_rotations(mesh: Mesh) -> bool:
    """Whether rotating the state layer by layer, O(H L) a step, is cheaper than the product with U, O(H^2).

    In torch a mesh layer is three passes over the state, each bound by memory: about 24 multiplications a number.
    """
    return 24 * mesh.num_layers < mesh.size


def saved(inputs: EurnnInputs, options: EurnnOptions) -> tuple[Any, ...]:
    return (*inputs.x.shape[:2], options.mesh.size) if options.mesh.complex else (0,)


def forward(inputs: EurnnInputs, options: EurnnOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    x, h0, weight_ih, bias, u, angles, lengths = inputs
    mesh, reverse = options.mesh, options.reverse
    T, B, _ = x.shape
    H = mesh.size
    rotations = None if angles is None else Rotations(angles, mesh)
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    output = x.new_empty((T, B, H))
    saves = h0.new_empty((T, B, H) if save and mesh.complex else (0,))
    h = h0
    for chunk in chunks(T, chunk_size(T, B * H * (2 if mesh.complex else 1)), reverse):
        steps = x[chunk] if valid is None else x[chunk].masked_fill(~valid[chunk], 0)
        arrivals = _join(steps @ weight_ih.T, mesh).unbind(0)
        for i in walk(len(arrivals), reverse):
            t = chunk.start + i
            rotated = h @ u.T if rotations is None else rotations.apply(h.T).T  # type: ignore[union-attr]
            a = rotated + arrivals[i]
            if mesh.complex and save:
                saves[t] = a
            new = a if bias is None else modrelu(a, bias)
            h = new if valid is None else torch.where(valid[t], new, h)
            real = h.real if mesh.complex else h
            output[t] = real if valid is None else real.masked_fill(~valid[t], 0)
    return output, h.clone(), saves


def backward(
    inputs: EurnnInputs, options: EurnnOptions, output: Tensor, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    x, h0, weight_ih, bias, u, angles, lengths = inputs
    grad_output, grad_h_n = grads
    mesh, reverse = options.mesh, options.reverse
    T, B, _ = x.shape
    H = mesh.size
    rotations = None if angles is None else Rotations(angles, mesh)
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    dx = x.new_empty(x.shape) if needs_x else None
    dweight_ih = torch.zeros_like(weight_ih)
    dbias = None if bias is None else torch.zeros_like(bias)
    du = None if u is None else torch.zeros_like(u)
    dangles = None if angles is None else torch.zeros_like(angles)

    def states(steps: slice) -> Tensor:
        if not mesh.complex:
            return output[steps]
        return saves[steps] if bias is None else modrelu(saves[steps], bias)

    g = grad_h_n
    for chunk in chunks(T, chunk_size(T, B * H * (2 if mesh.complex else 1)), not reverse):
        n = chunk.stop - chunk.start
        incoming, steps = grad_output[chunk], x[chunk]
        if valid is not None:
            incoming, steps = (part.masked_fill(~valid[chunk], 0) for part in (incoming, steps))
        a = saves[chunk] if mesh.complex else output[chunk]
        active, phase, turn = _activation_factors(a, bias, None if valid is None else valid[chunk])
        D = h0.new_empty((n, B, H))
        for i in walk(n, not reverse):
            g = g + incoming[i]
            da = g if turn is None else g + turn[i] * (phase[i].conj() * g).imag
            if active is not None:
                da = da * active[i]
            if valid is not None:
                da = da.masked_fill(~valid[chunk.start + i], 0)
            D[i] = da
            back = da @ u.conj() if rotations is None else rotations.apply_inverse(da.T).T  # type: ignore[union-attr]
            g = back if valid is None else torch.where(valid[chunk.start + i], back, g)
        before = previous_states(chunk, states, h0, valid, T, reverse)
        flat, flat_before = D.view(n * B, H), before.view(n * B, H)
        if du is not None:
            du += flat.T @ flat_before.conj()
        if dangles is not None and rotations is not None:
            dangles += rotations.gradient(rotations.apply(flat_before.T), flat.T)
        from_x = torch.cat([flat.real, flat.imag], 1) if mesh.complex else flat
        dweight_ih.addmm_(from_x.T, steps.reshape(n * B, x.shape[2]))
        if dx is not None:
            torch.mm(from_x, weight_ih, out=dx[chunk].view(n * B, x.shape[2]))
        if dbias is not None:
            outward = phase.conj() * D
            dbias += (outward.real if mesh.complex else outward).sum((0, 1))
    return dx, g.clone() if g is grad_h_n else g, dweight_ih, dbias, du, dangles


def _activation_factors(
    a: Tensor, bias: Tensor | None, valid: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """modReLU's backward pass as factors: da = active (g + turn Im(conj(phase) g)), db = Re(conj(phase) da).

    The first term is what a real modReLU has; the second is the derivative of the phase of the constant part b of
    the magnitude, b/|a|. For a real layer `a` may be the output: it has the sign of a, and is 0 where nothing passes.
    `active` is None if everything passes.
    """
    if bias is None:
        return valid, a, None
    if not a.is_complex():
        active = a != 0
        return active if valid is None else active & valid, a.sign(), None
    magnitude = a.abs()
    zero = magnitude < smallest_magnitude(a.dtype)
    magnitude = torch.where(zero, 1.0, magnitude)
    active = (magnitude + bias > 0) & ~zero
    phase = a / magnitude
    return active if valid is None else active & valid, phase, phase * (1j * bias / magnitude)


def _join(parts: Tensor, mesh: Mesh) -> Tensor:
    """(..., 2H) real and imaginary parts to (..., H) complex; a real mesh has no imaginary part."""
    return torch.complex(parts[..., : mesh.size], parts[..., mesh.size :]) if mesh.complex else parts
