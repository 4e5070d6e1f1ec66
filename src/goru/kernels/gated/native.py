"""GRU and LSTM on the native kernels (csrc/gated)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..native import library
from ..native.call import Call, check, dtype_code, last_state, pointer, rows, streams
from ..native.library import pooled_empty, scratch
from ..native.structures import ChunkLayout, Shape, structure
from .reference import GatedOptions, GruInputs, LstmInputs

GRU, LSTM = 0, 1  # as in csrc/gated/structures.h
GATES = {GRU: 3, LSTM: 4}
SINGLE_ROW_WEIGHTS = 1 << 19  # bytes of weight_hh up to which a single row trains without packed ones,
SINGLE_ROW_CHUNK = 1 << 18  # and with smaller chunks
CELL_STEPS = 32  # c of an LSTM is saved before every so many steps; the backward pass recomputes the others

GatedSizes = structure(
    "GatedSizes",
    (c_int64, "packed packed_backward packed_input bias saved chunk_row through wide padded groups bias_sums"),
    (c_int64, "block_rows"),
)
GatedForward = structure(
    "GatedForward",
    (Shape, "shape"),
    (c_void_p, "x h0 bias packed weight_ih weight_hh output saved cell cells"),
    (c_int64, "cell_steps cells_from stream"),
)
GatedBackward = structure(
    "GatedBackward", (Shape, "shape"), (c_int64, "grad_step grad_row"), (ChunkLayout, "layout"),
    (c_void_p, "grad_output x h0 output saved packed_input packed weight_hh carry carry_cell chunk through"),
    (c_void_p, "wide square bias_sums grad_x cells"), (c_int64, "cells_from"),
)  # fmt: skip
GatedFinish = structure(
    "GatedFinish", (c_int64, "inputs hidden blocks groups"),
    (c_void_p, "wide square bias_sums grad_weight_ih grad_weight_hh grad_bias_ih grad_bias_hh"),
)  # fmt: skip
library.declare(
    goru_gated_sizes=[c_int, c_int, c_int64, c_int64, c_void_p],
    goru_gated_bias=[c_int, c_int, c_void_p, c_void_p, c_int64, c_void_p],
    goru_gated_pack=[c_int, c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
    goru_gated_pack_backward=[c_int, c_int, c_void_p, c_int64, c_void_p],
    goru_gated_pack_input=[c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
    goru_gated_forward=[c_int, c_int, c_void_p],
    goru_gated_cells=[c_int, c_int, c_void_p],
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
    T, B, H = (*inputs.x.shape[:2], inputs.h0.shape[1])  # may be symbolic
    lstm = isinstance(inputs, LstmInputs)
    gates = _sizes(dtype_code(inputs.x.dtype), _cell(inputs), 1, 1).saved * T if options.checkpoint is None else 0
    interval = options.checkpoint or CELL_STEPS
    cells = (T + interval - 1) // interval if lstm else 0
    # With checkpoints the output has all states h. For each step the gates of its rows, and after them the c.
    return (gates + cells, B, H)


def _cell(inputs: GruInputs | LstmInputs) -> int:
    return LSTM if isinstance(inputs, LstmInputs) else GRU


class GatedCall(Call):
    """The checked arguments of a GRU or an LSTM."""

    shares_rows = True

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
        # A single row of few units needs more memory for packed weights and a whole chunk than for all the rest.
        small = B == 1 and self.sizes.padded == H and self.weight_hh.nbytes <= SINGLE_ROW_WEIGHTS
        self.packs_backward = not small
        if small:
            self.chunk_bytes = SINGLE_ROW_CHUNK

    def forward_elements(self) -> dict[str, int]:
        """The sizes of the buffers of a forward pass."""
        return {"packed": self.sizes.packed if self.packs else 0, "bias": self.sizes.bias}

    def forward_call(
        self,
        memory: dict[str, int],
        output: Tensor,
        gates: int | None,
        cell: Tensor | None,
        cells: int | None,
        cell_steps: int = 1,
        stream: bool = False,
    ) -> Any:
        """The arguments of a forward pass, with the weights packed. `gates`, `cells`: where they are saved; c before
        every `cell_steps`-th step; `stream`: gates past the caches. `cell`: c_0, and at the end c_n."""
        weights, biases = (self.weight_ih.data_ptr(), self.weight_hh.data_ptr()), (self.bias_ih, self.bias_hh)
        self.library.goru_gated_bias(self.code, self.cell, *map(pointer, biases), self.H, memory["bias"])
        if self.packs:
            self.library.goru_gated_pack(self.code, self.cell, *weights, self.I, self.H, memory["packed"])
        return GatedForward(
            self.shape, self.x.data_ptr(), self.h0.data_ptr(), memory["bias"], memory["packed"] if self.packs else None,
            *weights, output.data_ptr(), gates, pointer(cell), cells, cell_steps, 0,
            stream,
        )  # fmt: skip

    def gate_lines(self, options: GatedOptions) -> int:
        """The number of rows of `saved` that hold gates; the others hold c."""
        return self.T * self.sizes.saved // self.H if options.checkpoint is None and self.H else 0

    def take_steps(self, arguments: Any, between: tuple[int, int] | None = None) -> None:
        """Call the library for all steps, or for those of a part."""
        self.forward(self.library.goru_gated_forward, arguments, self.cell, between=between)

    def cells_recomputer(self, kept: Tensor, cells: Tensor, backward: Any) -> Callable[[int, int], None]:
        """recompute(first, last) writes c before each of these steps to `cells`, from the one that was kept."""

        def recompute(first: int, last: int) -> None:
            cells[0] = kept[first // CELL_STEPS]
            backward.cells_from = backward.shape.first = first
            backward.shape.last, backward.shape.threads = last, self.threads(last - first)
            self.library.goru_gated_cells(self.code, self.cell, byref(backward))

        return recompute

    def recomputer(
        self, memory: dict[str, int], output: Tensor, kept: Tensor, gates: Tensor, cells: Tensor, backward: Any
    ) -> Callable[[int, int], None]:
        """recompute(first, last) takes the steps after a checkpoint once more and writes what their backward pass reads
        to `gates` and `cells`. The states in the output get the same bits again. `kept`: c at the checkpoints."""
        cell = None if self.c0 is None else torch.empty_like(self.c0)
        places = gates.data_ptr(), cell, None if cell is None else cells.data_ptr()
        forward = self.forward_call(memory, output, *places, stream=streams(gates))

        def recompute(first: int, last: int) -> None:
            forward.shape.saved_from = backward.shape.saved_from = self.lowest_time(first, last) * self.B
            forward.cells_from = backward.cells_from = first
            if cell is not None:
                cell.copy_(kept[first // len(gates)])
            self.take_steps(forward, between=(first, last))

        return recompute


def forward(inputs: GruInputs | LstmInputs, options: GatedOptions, save: bool) -> tuple[Tensor, ...]:
    g = GatedCall(inputs, options)
    T, B, H = g.T, g.B, g.H
    output = pooled_empty((T, B, H), g.dtype)
    saves = pooled_empty(saved(inputs, options) if save else (0, B, H), g.dtype)
    cell = None if g.c0 is None else g.c0.clone()
    if B > 0:
        gates = saves.data_ptr() if save and options.checkpoint is None else None
        cells = saves[g.gate_lines(options) :].data_ptr() if save and cell is not None else None
        with scratch(g.forward_elements(), g.dtype.itemsize) as memory:
            interval = options.checkpoint or CELL_STEPS
            g.take_steps(g.forward_call(memory, output, gates, cell, cells, interval, streams(saves)))
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
    steps = g.layout(s.chunk_row, s.groups).steps
    # Parts of the sequence whose gates, or whose c, are recomputed at a time.
    interval = options.checkpoint or (T if g.c0 is None else max(1, steps // CELL_STEPS) * CELL_STEPS)
    interval = T if steps >= T and options.checkpoint is None else min(interval, T)
    layout = g.layout(s.chunk_row, s.groups, interval)
    elements = {
        "packed": s.packed_backward if g.packs_backward else 0,
        "packed_input": s.packed_input if needs_x else 0,
        "through": s.through * g.blocks,
        "chunk": s.chunk_row * layout.rows,
    }
    gates, kept = saves, saves[g.gate_lines(options) :]
    if options.checkpoint is not None:
        elements |= {f"forward {name}": size for name, size in g.forward_elements().items()}
        gates = pooled_empty((interval, B, s.saved), dtype)
    cells = pooled_empty((0 if g.c0 is None else interval, B, H), dtype)
    weight_ih, weight_hh = torch.empty_like(g.weight_ih), pooled_empty(tuple(g.weight_hh.shape), dtype)
    bias_ih, bias_hh = (None if bias is None else torch.empty_like(bias) for bias in (g.bias_ih, g.bias_hh))
    zeros = {"wide": layout.groups * s.wide, "bias_sums": g.blocks * s.bias_sums}
    if in_place := layout.groups == 1 and s.padded == H:
        weight_hh.zero_()
    else:
        zeros["square"] = layout.groups * GATES[g.cell] * s.padded**2
    with scratch(elements, dtype.itemsize, zeros) as memory:
        square = weight_hh.data_ptr() if in_place else memory["square"]
        if B > 0:
            if g.packs_backward:
                g.library.goru_gated_pack_backward(g.code, g.cell, g.weight_hh.data_ptr(), H, memory["packed"])
            if needs_x:
                g.library.goru_gated_pack_input(g.code, g.cell, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GatedBackward(
                g.shape, grad_step, grad_row, layout, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(),
                output.data_ptr(), gates.data_ptr(), memory["packed_input"],
                memory["packed"] if g.packs_backward else None, g.weight_hh.data_ptr(), carries[0].data_ptr(),
                carries[-1].data_ptr(), memory["chunk"], memory["through"], memory["wide"], square,
                memory["bias_sums"], pointer(dx), cells.data_ptr(), 0,
            )  # fmt: skip
            recompute = None
            if options.checkpoint is not None:
                names = {name: memory[f"forward {name}"] for name in ("packed", "bias")}
                recompute = g.recomputer(names, output, kept, gates, cells, call)
            elif g.c0 is not None:
                recompute = g.cells_recomputer(kept, cells, call)
            parts = g.whole_chunks(layout.steps)
            g.backward(g.library.goru_gated_backward, call, parts, g.cell, checkpoint=interval, recompute=recompute)
        finish = GatedFinish(
            I, H, g.blocks, layout.groups, memory["wide"], square, memory["bias_sums"], weight_ih.data_ptr(),
            weight_hh.data_ptr(), pointer(bias_ih), pointer(bias_hh),
        )  # fmt: skip
        g.library.goru_gated_finish(g.code, g.cell, byref(finish))
    return dx, *carries, weight_ih, weight_hh, bias_ih, bias_hh
