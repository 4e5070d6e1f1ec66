"""GRU and LSTM on the native kernels (csrc/gated)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..native import library
from ..native.call import UNPACKED_ROWS, Call, check, chunks, dtype_code, last_state, pointer, rows
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
    if options.checkpoint is not None:  # the output has all states h, these are the c
        count = (x.shape[0] + options.checkpoint - 1) // options.checkpoint
        return (count, x.shape[1], h0.shape[1]) if isinstance(inputs, LstmInputs) else (0,)
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

    def forward_elements(self) -> dict[str, int]:
        """The sizes of the buffers of a forward pass."""
        return {"packed": self.sizes.packed if self.T * self.B > UNPACKED_ROWS else 0, "bias": self.sizes.bias}

    def forward_call(self, memory: dict[str, int], output: Tensor, saves: Tensor | None, cell: Tensor | None) -> Any:
        """The arguments of a forward pass, with the weights packed. `cell`: c_0, and at the end c_n."""
        pack = self.T * self.B > UNPACKED_ROWS
        weights, biases = (self.weight_ih.data_ptr(), self.weight_hh.data_ptr()), (self.bias_ih, self.bias_hh)
        self.library.goru_gated_bias(self.code, self.cell, *map(pointer, biases), self.H, memory["bias"])
        if pack:
            self.library.goru_gated_pack(self.code, self.cell, *weights, self.I, self.H, memory["packed"])
        return GatedForward(
            self.shape, self.x.data_ptr(), self.h0.data_ptr(), memory["bias"], memory["packed"] if pack else None,
            *weights, output.data_ptr(), pointer(saves), pointer(cell),
        )  # fmt: skip

    def recomputer(
        self, memory: dict[str, int], output: Tensor, cells: Tensor, saves: Tensor, backward: Any
    ) -> Callable[[int, int], None]:
        """recompute(first, last) takes the steps after a checkpoint once more and writes what their backward pass reads
        to `saves`, which has room for one step more: the one before them, for its c. The states in the output get
        the same bits again. `cells`: c at the checkpoints."""
        cell = None if self.c0 is None else torch.empty_like(self.c0)
        forward = self.forward_call(memory, output, saves, cell)
        interval = len(saves) - 1

        def recompute(first: int, last: int) -> None:
            reverse = bool(self.shape.reverse)
            start = self.lowest_time(first, last) - (not reverse)
            forward.shape.saved_from = backward.shape.saved_from = start * self.B
            if cell is not None:
                cell.copy_(cells[first // interval])
                saves[last - first if reverse else 0, :, -self.H :] = cell
            self.forward(self.library.goru_gated_forward, forward, self.cell, between=(first, last))

        return recompute


def forward(inputs: GruInputs | LstmInputs, options: GatedOptions, save: bool) -> tuple[Tensor, ...]:
    g = GatedCall(inputs, options)
    T, B, H = g.T, g.B, g.H
    output = pooled_empty((T, B, H), g.dtype)
    saves = pooled_empty(saved(inputs, options) if save else (0,), g.dtype)
    cell = None if g.c0 is None else g.c0.clone()
    if B > 0:
        with scratch(g.forward_elements(), g.dtype.itemsize) as memory:
            call = g.forward_call(memory, output, saves if save and options.checkpoint is None else None, cell)
            if save and options.checkpoint is not None and cell is not None:
                for i, between in enumerate(chunks(0, T, options.checkpoint)):
                    saves[i] = cell
                    g.forward(g.library.goru_gated_forward, call, g.cell, between=between)
            else:
                g.forward(g.library.goru_gated_forward, call, g.cell)
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
    saves = check("saved", saves, saved(inputs, options), dtype)
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
        capacity = g.chunk_rows(steps)
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "through": s.through_row * B,
            "chunk": s.chunk_row * capacity,
        }
        checkpoint = None if options.checkpoint is None else min(options.checkpoint, T)
        cells = saves
        if checkpoint is not None:
            elements |= {f"forward {name}": size for name, size in g.forward_elements().items()}
            saves = pooled_empty((checkpoint + 1, B, s.saved), dtype)  # and the step before them, for its c
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_gated_pack_backward(g.code, g.cell, g.weight_hh.data_ptr(), H, memory["packed"])
            if needs_x:
                g.library.goru_gated_pack_input(g.code, g.cell, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GatedBackward(
                g.shape, grad_step, grad_row, capacity, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(),
                pointer(g.c0), output.data_ptr(), saves.data_ptr(), memory["packed"], memory["packed_input"],
                carries[0].data_ptr(), carries[-1].data_ptr(), memory["chunk"], memory["through"], wide, square,
                bias_sums, pointer(dx),
            )  # fmt: skip
            recompute = None
            if checkpoint is not None:
                names = {name: memory[f"forward {name}"] for name in ("packed", "bias")}
                recompute = g.recomputer(names, output, cells, saves, call)
            g.backward(g.library.goru_gated_backward, call, steps, g.cell, checkpoint=checkpoint, recompute=recompute)
    weight_ih, weight_hh = torch.empty_like(g.weight_ih), torch.empty_like(g.weight_hh)
    bias_ih, bias_hh = (None if bias is None else torch.empty_like(bias) for bias in (g.bias_ih, g.bias_hh))
    finish = GatedFinish(
        I, H, g.blocks, wide, square, bias_sums, weight_ih.data_ptr(), weight_hh.data_ptr(), pointer(bias_ih),
        pointer(bias_hh),
    )  # fmt: skip
    g.library.goru_gated_finish(g.code, g.cell, byref(finish))
    return dx, *carries, weight_ih, weight_hh, bias_ih, bias_hh
