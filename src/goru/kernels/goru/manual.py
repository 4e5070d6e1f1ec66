"""GORU with a hand-derived backward pass, in torch operations: any device, no compiler.

With g = dL/dh_t arriving at step t (v = U h_{t-1}, active = where modReLU passes its argument):
    da = g (1 - z) active         dv = da r      dr' = da v r (1 - r)      dz' = g (h_{t-1} - c) z (1 - z)
    dL/dh_{t-1} = g z + U^T dv + W_r^T dr' + W_z^T dz'                     db_h = sum da sign(c)
All four are g times a factor known from the forward pass: the loop multiplies by it, adds and makes one product.

Saved are the blocks v, then r, then z where the gates are on, then the candidate c: (T, B, K H).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...activation import smallest_magnitude
from ..chunks import chunk_size, chunks, previous_states, walk
from ..lengths import valid_steps
from ..mesh import manual as mesh_manual
from .reference import GoruInputs, GoruOptions


def saved(inputs: GoruInputs, options: GoruOptions) -> tuple[Any, ...]:
    T, B, _ = inputs.x.shape
    return (T, B, (2 + options.reset_gate + options.update_gate) * options.mesh.size)


def _matrix(inputs: GoruInputs, options: GoruOptions) -> Tensor:
    if inputs.u is not None:
        return inputs.u
    assert inputs.angles is not None
    return mesh_manual.matrix(inputs.angles, options.mesh)


def forward(inputs: GoruInputs, options: GoruOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    x, h0, weight_ih, weight_hh, bias, _, _, lengths = inputs
    reset_gate, update_gate, reverse = options.reset_gate, options.update_gate, options.reverse
    T, B, _ = x.shape
    H = options.mesh.size
    u = _matrix(inputs, options)
    gates = reset_gate + update_gate
    width = (gates + 2) * H
    recurrent = (u if weight_hh is None else torch.cat([u, weight_hh])).T
    b_gates = None if bias is None else torch.cat([bias[:-H], bias.new_zeros(H)])
    b_h = None if bias is None else bias[-H:]
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    output = x.new_empty((T, B, H))
    saves = x.new_empty((T, B, width) if save else (0,))
    size = chunk_size(T, B * width)
    scratch = x.new_empty((0 if save else size, B, width))
    magnitude, nothing = x.new_empty((B, H)), x.new_zeros(())
    h = h0
    for chunk in chunks(T, size, reverse):
        n = chunk.stop - chunk.start
        blocks = saves[chunk] if save else scratch[:n]
        steps = x[chunk] if valid is None else x[chunk].masked_fill(~valid[chunk], 0)
        # The v block starts at 0 so that one accumulating product serves v and the gates alike.
        blocks[..., :H].zero_()
        flat = blocks.view(n * B, width)[:, H:]
        if b_gates is None:
            torch.mm(steps.reshape(n * B, x.shape[2]), weight_ih.T, out=flat)
        else:
            torch.addmm(b_gates, steps.reshape(n * B, x.shape[2]), weight_ih.T, out=flat)
        products = blocks[..., : (gates + 1) * H].unbind(0)
        gated = blocks[..., H : (gates + 1) * H].unbind(0)
        vs = blocks[..., :H].unbind(0)
        resets = blocks[..., H : 2 * H].unbind(0)
        updates = blocks[..., -2 * H : -H].unbind(0)
        candidates = blocks[..., -H:].unbind(0)
        outputs = output[chunk].unbind(0)
        for i in walk(n, reverse):
            products[i].addmm_(h, recurrent)
            if gates:
                gated[i].sigmoid_()
            c = candidates[i]
            if reset_gate:
                c.addcmul_(resets[i], vs[i])
            else:
                c.add_(vs[i])
            if b_h is not None:
                _modrelu_(c, b_h, magnitude)
            if valid is None:
                if update_gate:
                    torch.lerp(c, h, updates[i], out=outputs[i])
                else:
                    outputs[i].copy_(c)
                h = outputs[i]
            else:
                alive = valid[chunk.start + i]
                h = torch.where(alive, torch.lerp(c, h, updates[i]) if update_gate else c, h)
                torch.where(alive, h, nothing, out=outputs[i])
    return output, h.clone(), saves


def backward(
    inputs: GoruInputs, options: GoruOptions, output: Tensor, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    x, h0, weight_ih, weight_hh, bias, _, angles, lengths = inputs
    grad_output, grad_h_n = grads
    reset_gate, update_gate, reverse = options.reset_gate, options.update_gate, options.reverse
    T, B, _ = x.shape
    H = options.mesh.size
    u = _matrix(inputs, options)
    gates = reset_gate + update_gate
    width = (gates + 2) * H
    recurrent = u if weight_hh is None else torch.cat([u, weight_hh])
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    dx = x.new_empty(x.shape) if needs_x else None
    dweight_ih = torch.zeros_like(weight_ih)
    drecurrent = torch.zeros_like(recurrent)
    dbias = None if bias is None else torch.zeros_like(bias)
    size = chunk_size(T, B * width)
    factors = x.new_empty((size, B, width))
    g = grad_h_n.contiguous()
    for chunk in chunks(T, size, not reverse):
        n = chunk.stop - chunk.start
        D = factors[:n]
        before = previous_states(chunk, output.__getitem__, h0, valid, T, reverse)
        keep = _factors(D, saves[chunk], before, bias is not None, reset_gate, update_gate)
        incoming, steps = grad_output[chunk], x[chunk]
        if valid is not None:
            # Filled, not multiplied: beyond a row's end there may be a NaN.
            D.masked_fill_(~valid[chunk], 0)
            incoming, steps = (part.masked_fill(~valid[chunk], 0) for part in (incoming, steps))
            keep = torch.where(valid[chunk], 0.0 if keep is None else keep, torch.ones_like(before))
        rows = D.view(n, B, gates + 2, H).unbind(0)
        products = D[..., : (gates + 1) * H].unbind(0)
        arrivals = incoming.unbind(0)
        keeps = None if keep is None else keep.unbind(0)
        for i in walk(n, not reverse):
            g = g + arrivals[i]
            rows[i].mul_(g.unsqueeze(1))
            if keeps is None:
                g = products[i] @ recurrent
            else:
                g.mul_(keeps[i]).addmm_(products[i], recurrent)
        if valid is not None:
            D.masked_fill_(~valid[chunk], 0)  # 0 times a g that is NaN, of a row that met one
        flat, flat_x = D.view(n * B, width), steps.reshape(n * B, x.shape[2])
        drecurrent.addmm_(flat[:, : (gates + 1) * H].T, before.view(n * B, H))
        dweight_ih.addmm_(flat[:, H:].T, flat_x)
        if dx is not None:
            torch.mm(flat[:, H:], weight_ih, out=dx[chunk].view(n * B, x.shape[2]))
        if dbias is not None:
            dbias[:-H] += flat[:, H:-H].sum(0)
            dbias[-H:] += (flat[:, -H:] * saves[chunk].view(n * B, width)[:, -H:].sign()).sum(0)
    du = drecurrent[:H]
    return (
        dx,
        g.clone() if g is grad_h_n else g,
        dweight_ih,
        None if weight_hh is None else drecurrent[H:].clone(),
        dbias,
        du.clone() if angles is None else None,
        None if angles is None else mesh_manual.matrix_backward(du, u, angles, options.mesh),
    )


def _factors(
    D: Tensor, saves: Tensor, before: Tensor, has_bias: bool, reset_gate: bool, update_gate: bool
) -> Tensor | None:
    """Fill D with what g is multiplied by (blocks v, r, z, c) and return z, the share of g that goes on (None: 0)."""
    H = before.shape[-1]
    v, c = saves[..., :H], saves[..., -H:]
    z = saves[..., -2 * H : -H] if update_gate else None
    dv, da = D[..., :H], D[..., -H:]
    if z is None:
        da.fill_(1)
    else:
        torch.sub(1, z, out=da)
        dz = D[..., -2 * H : -H]
        torch.sub(before, c, out=dz)
        dz.mul_(z).mul_(da)
    if has_bias:
        da.mul_(c != 0)
    if not reset_gate:
        dv.copy_(da)
        return z
    r = saves[..., H : 2 * H]
    torch.mul(da, r, out=dv)
    dr = D[..., H : 2 * H]
    torch.sub(1, r, out=dr)
    dr.mul_(v).mul_(dv)
    return z


def _modrelu_(a: Tensor, b: Tensor, magnitude: Tensor) -> None:
    """a becomes modrelu(a, b), for a real a; `magnitude` is a scratch tensor of the same shape."""
    torch.abs(a, out=magnitude)
    # -inf stays below 0 whatever b is, so that |a| = 0 gives 0 also where b > 0. threshold_ keeps what is *above* its
    # bound, hence the number just below the smallest magnitude that counts.
    below = smallest_magnitude(a.dtype) * (1 - torch.finfo(a.dtype).eps / 2)
    torch.threshold_(magnitude, below, -torch.inf)
    magnitude.add_(b).relu_()
    torch.copysign(magnitude, a, out=a)
