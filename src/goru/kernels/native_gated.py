"""GRU and LSTM on the native kernels."""

from __future__ import annotations

from ctypes import byref
from functools import cache

import torch
from torch import Tensor

from . import library
from .library import DTYPES, GatedBackward, GatedFinish, GatedForward, GatedSizes, Shape, pooled_empty, scratch
from .native_arguments import CALL_FLOPS, Ragged, check, chunks, last_state, pointer, rows, worth_threads

GRU, LSTM = 0, 1
GATES = (3, 4)
CHUNK_BYTES = 4 << 20  # what a chunk of the backward pass keeps in the cache
UNPACKED_ROWS = 8  # up to so many rows (t, b) the forward pass takes the weights as they are


@cache
def _sizes(cell: int, code: int, inputs: int, hidden: int) -> GatedSizes:
    sizes = GatedSizes()
    library.get().goru_gated_sizes(cell, code, inputs, hidden, byref(sizes))
    return sizes


class Gated:
    """The checked weights of a GRU or an LSTM, its sizes, and the structure that describes a call."""

    def __init__(self, cell, x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, lengths, reverse) -> None:
        self.library = library.get()
        if x.dim() != 3 or x.shape[0] == 0:
            raise RuntimeError(f"the native backend needs x of shape (T, B, I) with T > 0, got {tuple(x.shape)}")
        self.dtype = dtype = x.dtype
        if dtype not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got {dtype}")
        T, B, I = x.shape
        H, G = h0.shape[1], GATES[cell]
        self.T, self.B, self.I, self.H, self.G = T, B, I, H, G
        self.x, x_step, x_row = rows("x", x, (T, B, I), dtype)
        self.h0 = check("h0", h0, (B, H), dtype)
        self.c0 = None if c0 is None else check("c0", c0, (B, H), dtype)
        self.weight_ih = check("weight_ih", weight_ih, (G * H, I), dtype)
        self.weight_hh = check("weight_hh", weight_hh, (G * H, H), dtype)
        self.bias_ih = None if bias_ih is None else check("bias_ih", bias_ih, (G * H,), dtype)
        self.bias_hh = None if bias_hh is None else check("bias_hh", bias_hh, (G * H,), dtype)
        self.ragged = Ragged(lengths, T, B)
        self.key = cell, DTYPES[dtype]
        self.sizes = _sizes(*self.key, I, H)
        self.blocks = -(-B // self.sizes.block_rows)
        self.step_flops = 2.0 * B * H * (G * (H + I) + 40)
        order, active = self.ragged.pointers()
        self.shape = Shape(T, B, I, H, 0, 0, reverse, 0, 0, T, 1, order, active, x_step, x_row)

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_FLOPS / max(1.0, self.step_flops))))


def forward(cell, x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, lengths, reverse, save):
    g = Gated(cell, x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, lengths, reverse)
    T, B, I, H = g.T, g.B, g.I, g.H
    output = pooled_empty((T, B, H), g.dtype)
    saved = pooled_empty((T, B, g.sizes.saved * H), g.dtype) if save else torch.empty(0, dtype=g.dtype, device="cpu")
    c_n = None if g.c0 is None else g.c0.clone()
    if B == 0:
        return output, torch.empty_like(g.h0), c_n, saved
    pack = T * B > UNPACKED_ROWS
    with scratch({"packed": g.sizes.packed if pack else 0, "bias": g.sizes.bias}, g.dtype.itemsize) as memory:
        weights = g.weight_ih.data_ptr(), g.weight_hh.data_ptr()
        g.library.goru_gated_bias(*g.key, pointer(g.bias_ih), pointer(g.bias_hh), H, memory["bias"])
        if pack:
            g.library.goru_gated_pack(*g.key, *weights, I, H, memory["packed"])
        call = GatedForward(
            g.shape, g.x.data_ptr(), g.h0.data_ptr(), memory["bias"], memory["packed"] if pack else None, *weights,
            output.data_ptr(), saved.data_ptr() if save else None, pointer(c_n),
        )  # fmt: skip
        for first, last in chunks(T, g.steps_per_call()):
            call.shape.first, call.shape.last = first, last
            call.shape.threads = worth_threads((last - first) * g.step_flops, g.blocks)
            g.library.goru_gated_forward(*g.key, byref(call))
    return output, last_state(output, lengths, reverse), c_n, saved


def backward(
    cell, grad_output, grad_h_n, grad_c_n, x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, lengths, output, saved,
    reverse, needs_x,
):  # fmt: skip
    g = Gated(cell, x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, lengths, reverse)
    T, B, I, H, G, dtype, s = g.T, g.B, g.I, g.H, g.G, g.dtype, g.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saved = check("saved", saved, (T, B, s.saved * H), dtype)
    carry = check("grad_h_n", grad_h_n, (B, H), dtype).clone(memory_format=torch.contiguous_format)
    carry_cell = None
    if grad_c_n is not None:
        carry_cell = check("grad_c_n", grad_c_n, (B, H), dtype).clone(memory_format=torch.contiguous_format)
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=dtype, device="cpu")
    sums = torch.zeros(s.wide + s.square + g.blocks * s.bias_sums, dtype=dtype, device="cpu")
    wide = sums.data_ptr()
    square = wide + s.wide * dtype.itemsize
    db = square + s.square * dtype.itemsize
    steps = max(1, min(CHUNK_BYTES // dtype.itemsize // (s.chunk_row * max(1, B)), g.steps_per_call(), T))
    elements = {
        "packed": s.packed_backward,
        "packed_input": s.packed_input if needs_x else 0,
        "through": s.through_row * B,
        "chunk": s.chunk_row * steps * B,
    }
    if B > 0:
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_gated_pack_backward(*g.key, g.weight_hh.data_ptr(), H, memory["packed"])
            if needs_x:
                g.library.goru_gated_pack_input(*g.key, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GatedBackward(
                g.shape, grad_step, grad_row, steps * B, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(), pointer(g.c0),
                output.data_ptr(), saved.data_ptr(), memory["packed"], memory["packed_input"], carry.data_ptr(),
                pointer(carry_cell), memory["chunk"], memory["through"], wide, square, db,
                dx.data_ptr() if needs_x else None,
            )  # fmt: skip
            for first, last in reversed(list(chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                call.shape.threads = worth_threads(2 * (last - first) * g.step_flops, g.blocks)
                g.library.goru_gated_backward(*g.key, byref(call))
    dweight_ih, dweight_hh = torch.empty_like(g.weight_ih), torch.empty_like(g.weight_hh)
    dbias_ih, dbias_hh = (None if b is None else torch.empty_like(b) for b in (g.bias_ih, g.bias_hh))
    finish = GatedFinish(
        I, H, g.blocks, wide, square, db, dweight_ih.data_ptr(), dweight_hh.data_ptr(), pointer(dbias_ih),
        pointer(dbias_hh),
    )  # fmt: skip
    g.library.goru_gated_finish(*g.key, byref(finish))
    return dx, carry, carry_cell, dweight_ih, dweight_hh, dbias_ih, dbias_hh
