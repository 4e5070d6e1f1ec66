"""The recurrences with a hand-derived backward pass, in torch operations: any device, no compiler.

What does not depend on the previous state is done for many steps at once; only what does is left in the loop. Both
passes walk over chunks of steps, so that beside the results and what is saved only a chunk is in memory. Arguments,
results and letters as in operators.py.

GORU, g = dL/dh_t arriving at step t (v = U h_{t-1}, active = where modReLU lets pass):
    da = g (1 - z) active         dv = da r      dr' = da v r (1 - r)      dz' = g (h_{t-1} - c) z (1 - z)
    dL/dh_{t-1} = g z + U^T dv + W_r^T dr' + W_z^T dz'                     db_h = sum da sign(c)
All four are g times a factor known from the forward pass: the loop multiplies by it, adds and makes one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..activation import modrelu, smallest_magnitude
from ..rotations import Mesh
from .lengths import valid_steps
from .manual_mesh import Rotations, mesh_matrix, mesh_matrix_backward

__all__ = [
    "eurnn_backward",
    "eurnn_forward",
    "goru_backward",
    "goru_forward",
    "mesh_matrix",
    "mesh_matrix_backward",
]

CHUNK_ELEMENTS = 1 << 20  # of the widest buffer of a chunk: a few MB stay in the cache between the passes over them


def _chunk_size(steps: int, per_step: int) -> int:
    return max(1, min(steps, CHUNK_ELEMENTS // max(1, per_step)))


def _chunks(steps: int, size: int, reverse: bool) -> Iterator[slice]:
    """Slices of the time axis, in the order in which a recurrence walks over them."""
    starts = range(0, steps, size)
    for start in reversed(starts) if reverse else starts:
        yield slice(start, min(start + size, steps))


def _walk(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


# ------------------------------------------------------------------------------------------------- GORU


def goru_forward(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    mesh: Mesh,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    T, B, _ = x.shape
    H = mesh.size
    u = transition if transition.dim() == 2 else mesh_matrix(transition, mesh)
    gates = reset_gate + update_gate
    width = (gates + 2) * H
    recurrent = (u if weight_hh is None else torch.cat([u, weight_hh])).T
    b_gates = None if bias is None else torch.cat([bias[:-H], bias.new_zeros(H)])
    b_h = None if bias is None else bias[-H:]
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    output = x.new_empty((T, B, H))
    saved = x.new_empty((T, B, width) if save else (0,))
    size = _chunk_size(T, B * width)
    scratch = x.new_empty((0 if save else size, B, width))
    magnitude, nothing = x.new_empty((B, H)), x.new_zeros(())
    h = h0
    for chunk in _chunks(T, size, reverse):
        n = chunk.stop - chunk.start
        blocks = saved[chunk] if save else scratch[:n]
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
        for i in _walk(n, reverse):
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
    return output, h.clone(), saved


def goru_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    mesh: Mesh,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    T, B, _ = x.shape
    H = mesh.size
    u = transition if transition.dim() == 2 else mesh_matrix(transition, mesh)
    gates = reset_gate + update_gate
    width = (gates + 2) * H
    recurrent = u if weight_hh is None else torch.cat([u, weight_hh])
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    dx = x.new_empty(x.shape if needs_x else (0,))
    dweight_ih = torch.zeros_like(weight_ih)
    drecurrent = torch.zeros_like(recurrent)
    dbias = None if bias is None else torch.zeros_like(bias)
    size = _chunk_size(T, B * width)
    factors = x.new_empty((size, B, width))
    g = grad_h_n.contiguous()
    for chunk in _chunks(T, size, not reverse):
        n = chunk.stop - chunk.start
        D = factors[:n]
        before = _previous_states(chunk, output.__getitem__, h0, valid, T, reverse)
        keep = _goru_factors(D, saved[chunk], before, bias is not None, reset_gate, update_gate)
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
        for i in _walk(n, not reverse):
            g = g + arrivals[i]
            rows[i].mul_(g.unsqueeze(1))
            if keeps is None:
                g = products[i] @ recurrent
            else:
                g.mul_(keeps[i]).addmm_(products[i], recurrent)
        flat, flat_x = D.view(n * B, width), steps.reshape(n * B, x.shape[2])
        drecurrent.addmm_(flat[:, : (gates + 1) * H].T, before.view(n * B, H))
        dweight_ih.addmm_(flat[:, H:].T, flat_x)
        if needs_x:
            torch.mm(flat[:, H:], weight_ih, out=dx[chunk].view(n * B, x.shape[2]))
        if dbias is not None:
            dbias[:-H] += flat[:, H:-H].sum(0)
            dbias[-H:] += (flat[:, -H:] * saved[chunk].view(n * B, width)[:, -H:].sign()).sum(0)
    empty = x.new_empty(0)
    return (
        dx,
        g.clone() if g is grad_h_n else g,
        dweight_ih,
        empty if weight_hh is None else drecurrent[H:].clone(),
        empty if dbias is None else dbias,
        drecurrent[:H].clone() if transition.dim() == 2 else mesh_matrix_backward(drecurrent[:H], u, transition, mesh),
    )


def _goru_factors(
    D: Tensor, saved: Tensor, before: Tensor, has_bias: bool, reset_gate: bool, update_gate: bool
) -> Tensor | None:
    """Fill D with what g is multiplied by (blocks v, r, z, c) and return z, what g is kept by (None: not at all)."""
    H = before.shape[-1]
    v, c = saved[..., :H], saved[..., -H:]
    z = saved[..., -2 * H : -H] if update_gate else None
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
    r = saved[..., H : 2 * H]
    torch.mul(da, r, out=dv)
    dr = D[..., H : 2 * H]
    torch.sub(1, r, out=dr)
    dr.mul_(v).mul_(dv)
    return z


def _previous_states(
    chunk: slice, states: Callable[[slice], Tensor], h0: Tensor, valid: Tensor | None, T: int, reverse: bool
) -> Tensor:
    """h_{t-1} of each step of a chunk, in the direction of the walk, starting from h0."""
    before = h0.new_empty((chunk.stop - chunk.start, *h0.shape))
    if not reverse:
        first = max(chunk.start, 1)
        before[first - chunk.start :] = states(slice(first - 1, chunk.stop - 1))
        if chunk.start == 0:
            before[0] = h0
        return before
    last = min(chunk.stop, T - 1)
    before[: last - chunk.start] = states(slice(chunk.start + 1, last + 1))
    if chunk.stop == T:
        before[-1] = h0
    if valid is not None:
        # A backward walk starts from h0 at each row's own end, where the state beyond it was not stored.
        started = valid[chunk.start + 1 : last + 1]
        before[: len(started)] = torch.where(started, before[: len(started)], h0)
    return before


def _modrelu_(a: Tensor, b: Tensor, magnitude: Tensor) -> None:
    """a becomes modrelu(a, b), for a real a; `magnitude` is room of the same shape."""
    torch.abs(a, out=magnitude)
    # -inf stays below 0 whatever b is, so that |a| = 0 gives 0 also where b > 0. threshold_ keeps what is *above* its
    # bound, hence the number just below the smallest magnitude that counts.
    below = smallest_magnitude(a.dtype) * (1 - torch.finfo(a.dtype).eps / 2)
    torch.threshold_(magnitude, below, -torch.inf)
    magnitude.add_(b).relu_()
    torch.copysign(magnitude, a, out=a)


# ------------------------------------------------------------------------------------------------- EURNN


def eurnn_forward(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    mesh: Mesh,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    T, B, _ = x.shape
    H = mesh.size
    rotations = Rotations(transition, mesh) if transition.dim() == 1 else None
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    output = x.new_empty((T, B, H))
    saved = h0.new_empty((T, B, H) if save and mesh.complex else (0,))
    h = h0
    for chunk in _chunks(T, _chunk_size(T, B * H * (2 if mesh.complex else 1)), reverse):
        steps = x[chunk] if valid is None else x[chunk].masked_fill(~valid[chunk], 0)
        arrivals = _join(steps @ weight_ih.T, mesh).unbind(0)
        for i in _walk(len(arrivals), reverse):
            t = chunk.start + i
            rotated = h @ transition.T if rotations is None else rotations.apply(h.T).T
            a = rotated + arrivals[i]
            if mesh.complex and save:
                saved[t] = a
            new = a if bias is None else modrelu(a, bias)
            h = new if valid is None else torch.where(valid[t], new, h)
            real = h.real if mesh.complex else h
            output[t] = real if valid is None else real.masked_fill(~valid[t], 0)
    return output, h.clone(), saved


def eurnn_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    mesh: Mesh,
    reverse: bool,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    T, B, _ = x.shape
    H = mesh.size
    rotations = Rotations(transition, mesh) if transition.dim() == 1 else None
    valid = None if lengths is None else valid_steps(lengths, T)[..., None]
    dx = x.new_empty(x.shape if needs_x else (0,))
    dweight_ih = torch.zeros_like(weight_ih)
    dbias = None if bias is None else torch.zeros_like(bias)
    dtransition = torch.zeros_like(transition)

    def states(steps: slice) -> Tensor:
        if not mesh.complex:
            return output[steps]
        return saved[steps] if bias is None else modrelu(saved[steps], bias)

    g = grad_h_n
    for chunk in _chunks(T, _chunk_size(T, B * H * (2 if mesh.complex else 1)), not reverse):
        n = chunk.stop - chunk.start
        incoming, steps = grad_output[chunk], x[chunk]
        if valid is not None:
            incoming, steps = (part.masked_fill(~valid[chunk], 0) for part in (incoming, steps))
        a = saved[chunk] if mesh.complex else output[chunk]
        active, phase, turn = _activation_factors(a, bias, None if valid is None else valid[chunk])
        D = h0.new_empty((n, B, H))
        for i in _walk(n, not reverse):
            g = g + incoming[i]
            da = g if turn is None else g + turn[i] * (phase[i].conj() * g).imag
            if active is not None:
                da = da * active[i]
            D[i] = da
            back = da @ transition.conj() if rotations is None else rotations.apply_inverse(da.T).T
            g = back if valid is None else torch.where(valid[chunk.start + i], back, g)
        before = _previous_states(chunk, states, h0, valid, T, reverse)
        flat, flat_before = D.view(n * B, H), before.view(n * B, H)
        if rotations is None:
            dtransition += flat.T @ flat_before.conj()
        else:
            dtransition += rotations.gradient(rotations.apply(flat_before.T), flat.T)
        from_x = torch.cat([flat.real, flat.imag], 1) if mesh.complex else flat
        dweight_ih.addmm_(from_x.T, steps.reshape(n * B, x.shape[2]))
        if needs_x:
            torch.mm(from_x, weight_ih, out=dx[chunk].view(n * B, x.shape[2]))
        if dbias is not None:
            outward = phase.conj() * D
            dbias += (outward.real if mesh.complex else outward).sum((0, 1))
    empty = x.new_empty(0)
    return dx, g.clone() if g is grad_h_n else g, dweight_ih, empty if dbias is None else dbias, dtransition


def _activation_factors(
    a: Tensor, bias: Tensor | None, valid: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """modReLU's backward pass as factors: da = active (g + turn Im(conj(phase) g)), db = Re(conj(phase) da).

    The first term is what a real modReLU has; the second says that turning a also turns the constant part b of the
    length, by b/|a|. For a real layer `a` may be the output: it has the sign of a, and is 0 where nothing passes.
    `active` is None where everything passes.
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
