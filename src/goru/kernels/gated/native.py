"""GRU and LSTM on the native kernels (csrc/gated)."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..native import library
from ..native.call import UNPACKED_ROWS, Call, check, dtype_code, last_state, pointer, rows
from ..native.library import pooled_empty, scratch
from ..native.structures import Shape, structure
from .reference import GatedOptions, GruInputs, LstmInputs

GRU, LSTM = 0, 1  # as in csrc/gated/structures.h
GATES = {GRU: 3, LSTM: 4}

GatedSizes = structure(
    "GatedSizes",
    (c_int64, "packed packed_backward packed_input bias saved chunk_row through_row wide square bias_sums block_rows"),
)
GatedForward = structure(
    "GatedForward", (Shape, "shape"), (c_void_p, "x h0 bias packed weight_ih weight_hh output saved cell")
)
GatedBackward = structure(
    "GatedBackward", (Shape, "shape"), (c_int64, "grad_step grad_row rows"),
    (c_void_p, "grad_output x h0 c0 output saved packed packed_input carry carry_cell chunk through"),
    (c_void_p, "wide square bias_sums grad_x"),
)  # fmt: skip
GatedFinish = structure(
    "GatedFinish", (c_int64, "inputs hidden blocks"),
    (c_void_p, "wide square bias_sums grad_weight_ih grad_weight_hh grad_bias_ih grad_bias_hh"),
)  # fmt: skip
library.declare(
    goru_gated_sizes=[c_int, c_int, c_int64, c_int64, c_void_p],
    goru_gated_bias=[c_int, c_int, c_void_p, c_void_p, c_int64, c_void_p],
    goru_gated_pack=[c_int, c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
    goru_gated_pack_backward=[c_int, c_int, c_void_p, c_int64, c_void_p],
    goru_gated_pack_input=[c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
    goru_gated_forward=[c_int, c_int, c_void_p],
    goru_gated_backward=[c_int, c_int, c_void_p],
    goru_gated_finish=[c_int, c_int, c_void_p],
)


@cache
def _sizes(code: int, cell: int, inputs: int, hidden: int) -> Any:
    sizes = GatedSizes()
    library.get().goru_gated_sizes(code, cell, inputs, hidden, byref(sizes))
    return sizes


def saved(inputs: GruInputs | LstmInputs, options: GatedOptions) -> tuple[Any, ...]:
    """Shape of what the forward pass saves; csrc/gated/gru.h and lstm.h say what it is."""
    x, h0 = inputs.x, inputs.h0
    blocks = _sizes(dtype_code(x.dtype), _cell(inputs), 1, 1).saved  # of one unit; H may be symbolic here
    return (x.shape[0], x.shape[1], blocks * h0.shape[1])


def _cell(inputs: GruInputs | LstmInputs) -> int:
    return LSTM if isinstance(inputs, LstmInputs) else GRU


class GatedCall(Call):
    """The checked arguments of a GRU or an LSTM."""

    def __init__(self, inputs: GruInputs | LstmInputs, options: GatedOptions) -> None:
        if inputs.h0.dim() != 2:
            raise RuntimeError(f"h0 must have the shape (B, H), got {tuple(inputs.h0.shape)}")
        super().__init__(inputs.x, inputs.h0.shape[1], inputs.lengths, options.reverse, False)
        dtype, B, I, H = self.dtype, self.B, self.I, self.H
        self.cell = _cell(inputs)
        G = GATES[self.cell]
        self.h0 = check("h0", inputs.h0, (B, H), dtype)
        self.c0 = check("c0", inputs.c0, (B, H), dtype) if isinstance(inputs, LstmInputs) else None
        self.weight_ih = check("weight_ih", inputs.weight_ih, (G * H, I), dtype)
        self.weight_hh = check("weight_hh", inputs.weight_hh, (G * H, H), dtype)
        if (inputs.bias_ih is None) != (inputs.bias_hh is None):
            raise RuntimeError("the native backend needs both biases or none, got one")
        self.bias_ih = None if inputs.bias_ih is None else check("bias_ih", inputs.bias_ih, (G * H,), dtype)
        self.bias_hh = None if inputs.bias_hh is None else check("bias_hh", inputs.bias_hh, (G * H,), dtype)
        self.sizes = _sizes(self.code, self.cell, I, H)
        self.block_rows = self.sizes.block_rows
        self.step_flops = 2.0 * B * H * (G * (H + I) + 40)  # products, activations


def forward(inputs: GruInputs | LstmInputs, options: GatedOptions, save: bool) -> tuple[Tensor, ...]:
    g = GatedCall(inputs, options)
    T, B, I, H = g.T, g.B, g.I, g.H
    output = pooled_empty((T, B, H), g.dtype)
    saves = pooled_empty((T, B, g.sizes.saved), g.dtype) if save else torch.empty(0, dtype=g.dtype, device="cpu")
    cell = None if g.c0 is None else g.c0.clone()
    if B > 0:
        pack = T * B > UNPACKED_ROWS
        with scratch({"packed": g.sizes.packed if pack else 0, "bias": g.sizes.bias}, g.dtype.itemsize) as memory:
            weights = g.weight_ih.data_ptr(), g.weight_hh.data_ptr()
            g.library.goru_gated_bias(g.code, g.cell, pointer(g.bias_ih), pointer(g.bias_hh), H, memory["bias"])
            if pack:
                g.library.goru_gated_pack(g.code, g.cell, *weights, I, H, memory["packed"])
            call = GatedForward(
                g.shape, g.x.data_ptr(), g.h0.data_ptr(), memory["bias"], memory["packed"] if pack else None, *weights,
                output.data_ptr(), saves.data_ptr() if save else None, pointer(cell),
            )  # fmt: skip
            g.forward(g.library.goru_gated_forward, call, g.steps_per_call(), g.cell)
    h_n = last_state(output, inputs.lengths, options.reverse) if B > 0 else torch.empty_like(g.h0)
    return (output, h_n, saves) if cell is None else (output, h_n, cell, saves)


def backward(
    inputs: GruInputs | LstmInputs,
    options: GatedOptions,
    output: Tensor,
    saves: Tensor,
    grads: tuple[Tensor, ...],
    needs_x: bool,
) -> tuple[Tensor | None, ...]:
    g = GatedCall(inputs, options)
    T, B, I, H, dtype, s = g.T, g.B, g.I, g.H, g.dtype, g.sizes
    grad, grad_step, grad_row = rows("grad_output", grads[0], (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saves = check("saved", saves, (T, B, s.saved), dtype)
    # One for each state: h, and c of an LSTM.
    carries = [check("the gradient of a state", grad, (B, H), dtype) for grad in grads[1:]]
    carries = [carry.clone(memory_format=torch.contiguous_format) for carry in carries]
    dx = torch.empty((T, B, I), dtype=dtype, device="cpu") if needs_x else None
    sums = torch.zeros(s.wide + s.square + g.blocks * s.bias_sums, dtype=dtype, device="cpu")
    wide = sums.data_ptr()
    square = wide + s.wide * dtype.itemsize
    bias_sums = square + s.square * dtype.itemsize
    if B > 0:
        steps = g.steps_per_call(s.chunk_row * B)
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "through": s.through_row * B,
            "chunk": s.chunk_row * steps * B,
        }
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_gated_pack_backward(g.code, g.cell, g.weight_hh.data_ptr(), H, memory["packed"])
            if needs_x:
                g.library.goru_gated_pack_input(g.code, g.cell, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GatedBackward(
                g.shape, grad_step, grad_row, steps * B, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(),
                pointer(g.c0), output.data_ptr(), saves.data_ptr(), memory["packed"], memory["packed_input"],
                carries[0].data_ptr(), carries[-1].data_ptr(), memory["chunk"], memory["through"], wide, square,
                bias_sums, pointer(dx),
            )  # fmt: skip
            g.backward(g.library.goru_gated_backward, call, steps, g.cell)
    weight_ih, weight_hh = torch.empty_like(g.weight_ih), torch.empty_like(g.weight_hh)
    bias_ih, bias_hh = (None if bias is None else torch.empty_like(bias) for bias in (g.bias_ih, g.bias_hh))
    finish = GatedFinish(
        I, H, g.blocks, wide, square, bias_sums, weight_ih.data_ptr(), weight_hh.data_ptr(), pointer(bias_ih),
        pointer(bias_hh),
    )  # fmt: skip
    g.library.goru_gated_finish(g.code, g.cell, byref(finish))
    return dx, *carries, weight_ih, weight_hh, bias_ih, bias_hh
