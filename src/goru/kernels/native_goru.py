"""GORU on the native kernels. Arguments as in operators.py."""

from __future__ import annotations

from ctypes import byref

import torch
from torch import Tensor

from . import library
from .library import DTYPES, GoruBackward, GoruForward, GoruSizes, Shape, pooled_empty, scratch
from .native_arguments import CALL_FLOPS, Ragged, check, chunks, last_state, pointer, rows, worth_threads

CHUNK_BYTES = 4 << 20  # what a chunk of the backward pass keeps in the cache


def saved_blocks(reset_gate: bool, update_gate: bool) -> int:
    """Blocks of H that a GORU step saves: v, r, z with both gates; v, r or z, c with one; nothing without."""
    return 3 if reset_gate and update_gate else 2 if reset_gate or update_gate else 0


class _Goru:
    """The checked weights of a GORU, its sizes, and the structure that describes a call."""

    def __init__(
        self,
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
    ) -> None:
        self.library = library.get()
        if x.dim() != 3 or u.dim() != 2 or x.shape[0] == 0 or u.shape[0] == 0:
            raise RuntimeError(
                f"the native backend needs x of shape (T, B, I) and u of shape (H, H) with T, H > 0, got "
                f"{tuple(x.shape)} and {tuple(u.shape)}"
            )
        self.dtype = dtype = x.dtype
        if dtype not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got {dtype}")
        T, B, I = x.shape
        H = u.shape[0]
        G = 1 + reset_gate + update_gate
        self.T, self.B, self.I, self.H, self.G = T, B, I, H, G
        self.x, x_step, x_row = rows("x", x, (T, B, I), dtype)
        self.h0 = check("h0", h0, (B, H), dtype)
        self.weight_ih = check("weight_ih", weight_ih, (G * H, I), dtype)
        self.u = check("u", u, (H, H), dtype)
        if (weight_hh is None) != (G == 1):
            raise RuntimeError("the native backend needs weight_hh exactly when at least one gate is on")
        self.weight_hh = None if weight_hh is None else check("weight_hh", weight_hh, ((G - 1) * H, H), dtype)
        self.bias = None if bias is None else check("bias", bias, (G * H,), dtype)
        self.ragged = Ragged(lengths, T, B)
        self.code, self.gates = DTYPES[dtype], reset_gate + 2 * update_gate
        self.sizes = GoruSizes()
        self.library.goru_goru_sizes(self.code, self.gates, I, H, byref(self.sizes))
        self.blocks = -(-B // self.sizes.block_rows)
        self.step_flops = 2.0 * B * G * H * (H + I)
        order, active = self.ragged.pointers()
        self.shape = Shape(
            T, B, I, H, reset_gate, update_gate, reverse, bias is not None, 0, T, 1, order, active, x_step, x_row
        )

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_FLOPS / max(1.0, self.step_flops))))


def goru_forward(
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
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    g = _Goru(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    T, B, I, H = g.T, g.B, g.I, g.H
    output = pooled_empty((T, B, H), g.dtype)
    blocks = saved_blocks(reset_gate, update_gate)
    saved = pooled_empty((T, B, blocks * H), g.dtype) if save else torch.empty(0, dtype=g.dtype)
    if B == 0:
        return output, torch.empty_like(g.h0), saved
    with scratch({"packed": g.sizes.packed}, g.dtype.itemsize) as memory:
        packed = memory["packed"]
        g.library.goru_goru_pack(
            g.code, g.gates, g.weight_ih.data_ptr(), pointer(g.weight_hh), g.u.data_ptr(), I, H, packed
        )
        call = GoruForward(
            g.shape, g.x.data_ptr(), g.h0.data_ptr(), packed, pointer(g.bias), output.data_ptr(),
            saved.data_ptr() if save else None,
        )  # fmt: skip
        for first, last in chunks(T, g.steps_per_call()):
            call.shape.first, call.shape.last = first, last
            call.shape.threads = worth_threads((last - first) * g.step_flops, g.blocks)
            g.library.goru_goru_forward(g.code, byref(call))
    return output, last_state(output, lengths, reverse), saved


def goru_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = _Goru(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    T, B, I, H, G, dtype = g.T, g.B, g.I, g.H, g.G, g.dtype
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saved = check("saved", saved, (T, B, saved_blocks(reset_gate, update_gate) * H), dtype)
    carry = check("grad_h_n", grad_h_n, (B, H), dtype).clone()
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=dtype)
    s = g.sizes
    weights = torch.zeros(s.weights, dtype=dtype)
    db = torch.zeros((g.blocks, s.bias), dtype=dtype)
    steps = max(1, min(CHUNK_BYTES // dtype.itemsize // (s.chunk_row * max(1, B)), g.steps_per_call(), T))
    if B > 0:
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "through": s.through_row * B,
            "chunk": s.chunk_row * steps * B,
        }
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_goru_pack_backward(
                g.code, g.gates, pointer(g.weight_hh), g.u.data_ptr(), H, memory["packed"]
            )
            if needs_x:
                g.library.goru_goru_pack_input(g.code, g.gates, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GoruBackward(
                g.shape, grad_step, grad_row, steps * B, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(),
                output.data_ptr(), saved.data_ptr(), memory["packed"], memory["packed_input"], carry.data_ptr(),
                memory["chunk"], memory["through"], weights.data_ptr(), db.data_ptr(),
                dx.data_ptr() if needs_x else None,
            )  # fmt: skip
            for first, last in reversed(list(chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                call.shape.threads = worth_threads(2 * (last - first) * g.step_flops, g.blocks)
                g.library.goru_goru_backward(g.code, byref(call))
    Hp = s.bias
    square = weights[: G * Hp * Hp].view(G, Hp, Hp)[:, :H, :H]
    wide = weights[G * Hp * Hp :].view(G, Hp, -1)[:, :H, : I + 1]
    # The sums have the candidate first (as U is before W_r, W_z), weight_ih and bias have it last.
    wide = wide.roll(-1, 0)
    dweight_hh = square[1:].reshape((G - 1) * H, H).clone() if g.weight_hh is not None else weights.new_empty(0)
    dbias = weights.new_empty(0)
    if g.bias is not None:
        dbias = wide[..., I].reshape(-1).clone()
        dbias[-H:] = db.sum(0)[:H]
    return dx, carry, wide[..., :I].reshape(G * H, I).clone(), dweight_hh, dbias, square[0].clone()
