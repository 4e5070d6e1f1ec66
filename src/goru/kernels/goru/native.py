"""GORU on the native kernels (csrc/goru)."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...rotations import Mesh
from ..native import library
from ..native.call import Call, check, dtype_code, last_state, pointer, rows, streams
from ..native.library import pooled_empty, scratch
from ..native.structures import ChunkLayout, Shape, structure
from .reference import GoruInputs, GoruOptions

MATRIX, FFT, TUNABLE = 0, 1, 2  # how U acts on a row, as in csrc/mesh/structures.h

Transition = structure("Transition", (c_int64, "kind layers"), (c_void_p, "table"))
GoruForward = structure(
    "GoruForward", (Shape, "shape"), (Transition, "transition"),
    (c_void_p, "x h0 bias packed weight_ih weight_hh u output saved turned"), (c_int64, "stream"),
)  # fmt: skip
GoruBackward = structure(
    "GoruBackward", (Shape, "shape"), (Transition, "transition"), (c_int64, "grad_step grad_row"),
    (ChunkLayout, "layout"),
    (c_void_p, "grad_output x h0 output saved packed packed_input carry chunk through turned wide square bias angles"),
    (c_void_p, "grad_x"),
)  # fmt: skip
GoruFinish = structure(
    "GoruFinish", (c_int64, "inputs hidden gates blocks groups"), (Transition, "transition"),
    (c_void_p, "wide square bias angles grad_weight_ih grad_weight_hh grad_u grad_bias grad_angles"),
)  # fmt: skip
GoruSizes = structure(
    "GoruSizes",
    (c_int64, "packed packed_backward packed_input chunk_row through turned wide square groups bias"),
    (c_int64, "block_rows saved mesh angles"),
)  # fmt: skip
library.declare(
    goru_goru_sizes=[c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
    goru_goru_pack=[c_int, c_int, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
    goru_goru_pack_backward=[c_int, c_int, c_void_p, c_void_p, c_int64, c_void_p],
    goru_goru_pack_input=[c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
    goru_goru_mesh=[c_int, c_void_p, c_int64, c_void_p, c_void_p],
    goru_goru_finish=[c_int, c_void_p],
    goru_goru_forward=[c_int, c_void_p],
    goru_goru_backward=[c_int, c_void_p],
)


def prefers_rotations(mesh: Mesh) -> bool:
    """Whether rotating the state layer by layer is cheaper than the product with U.

    Measured on one AVX2 core (forward and backward at T 40, B 32, tunable meshes): both cost the same at about 16
    layers of 32 units, 28 of 128, 60 of 512.
    """
    return mesh.num_layers**2 <= 7 * mesh.size


def saved(inputs: GoruInputs, options: GoruOptions) -> tuple[Any, ...]:
    """Shape of what the forward pass saves; csrc/goru/goru_forward.h says what it is."""
    if options.checkpoint is not None:
        return (0,)  # the output has all states
    x, mesh = inputs.x, options.mesh
    transition = (MATRIX, 0) if inputs.u is not None else _kind(mesh)
    sizes = _sizes(dtype_code(x.dtype), _gates(options), *transition, 1, mesh.size)
    return (x.shape[0], x.shape[1], sizes.saved)


def _gates(options: GoruOptions) -> int:
    """The number that the library gives to this set of gates."""
    return options.reset_gate + 2 * options.update_gate


def _kind(mesh: Mesh) -> tuple[int, int]:
    return FFT if mesh.kind == "fft" else TUNABLE, mesh.num_layers if mesh.size > 1 else 0


@cache
def _sizes(code: int, gates: int, kind: int, layers: int, inputs: int, hidden: int) -> Any:
    sizes = GoruSizes()
    library.get().goru_goru_sizes(code, gates, byref(Transition(kind, layers, None)), inputs, hidden, byref(sizes))
    return sizes


class GoruCall(Call):
    """The checked arguments of a GORU."""

    shares_rows = True

    def __init__(self, inputs: GoruInputs, options: GoruOptions) -> None:
        x, h0, weight_ih, weight_hh, bias, u, angles, lengths = inputs
        mesh, reset, update = options.mesh, options.reset_gate, options.update_gate
        super().__init__(x, mesh.size, lengths, options.reverse, bias is not None, reset=reset, update=update)
        dtype, B, I, H = self.dtype, self.B, self.I, self.H
        if (u is None) == (angles is None):
            raise RuntimeError("the native backend needs either u or angles, got " + ("none" if u is None else "both"))
        self.u = None if u is None else check("u", u, (H, H), dtype)
        self.angles = None if angles is None else check("angles", angles, (mesh.num_angles,), dtype)
        self.matrix = u is not None
        self.transition = Transition(*((MATRIX, 0) if self.matrix else _kind(mesh)), None)
        self.G = G = 1 + reset + update
        self.h0 = check("h0", h0, (B, H), dtype)
        self.weight_ih = check("weight_ih", weight_ih, (G * H, I), dtype)
        if (weight_hh is None) != (G == 1):
            raise RuntimeError("the native backend needs weight_hh exactly when at least one gate is on")
        self.weight_hh = None if weight_hh is None else check("weight_hh", weight_hh, ((G - 1) * H, H), dtype)
        self.bias = None if bias is None else check("bias", bias, (G * H,), dtype)
        self.gates = _gates(options)
        self.sizes = _sizes(self.code, self.gates, self.transition.kind, self.transition.layers, I, H)
        self.block_rows = self.sizes.block_rows
        # Products, rotations, activations.
        self.step_flops = 2.0 * B * H * ((G - 1 + self.matrix) * H + G * I + 3 * self.transition.layers + 20)

    def forward_elements(self) -> dict[str, int]:
        """The sizes of the buffers of a forward pass."""
        packed = self.sizes.packed if self.packs else 0
        return {"packed": packed, "turned": self.sizes.turned * self.blocks, "mesh": self.sizes.mesh}

    def forward_call(self, memory: dict[str, int], output: Tensor, saves: Tensor | None) -> Any:
        """The arguments of a forward pass, with the weights packed; the transition must be filled."""
        weights = self.weight_ih.data_ptr(), pointer(self.weight_hh), pointer(self.u)
        if self.packs:
            self.library.goru_goru_pack(self.code, self.gates, *weights, self.I, self.H, memory["packed"])
        return GoruForward(
            self.shape, self.transition, self.x.data_ptr(), self.h0.data_ptr(), pointer(self.bias),
            memory["packed"] if self.packs else None, *weights, output.data_ptr(), pointer(saves), memory["turned"],
            saves is not None and streams(saves),
        )  # fmt: skip

    def recomputer(self, memory: dict[str, int], output: Tensor, saves: Tensor, backward: Any) -> Any:
        """recompute(first, last) takes these steps once more and writes what their backward pass reads to `saves`.
        The states in the output get the same bits again."""
        forward = self.forward_call(memory, output, saves)

        def recompute(first: int, last: int) -> None:
            forward.shape.saved_from = backward.shape.saved_from = self.lowest_time(first, last) * self.B
            self.forward(self.library.goru_goru_forward, forward, between=(first, last))

        return recompute

    def fill(self, table: int) -> Any:
        """The transition with its cosines and sines, written to `table`; a matrix has none."""
        if self.angles is not None:
            self.library.goru_goru_mesh(self.code, byref(self.transition), self.H, self.angles.data_ptr(), table)
        self.transition.table = table
        return self.transition


def forward(inputs: GoruInputs, options: GoruOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    g = GoruCall(inputs, options)
    T, B, H = g.T, g.B, g.H
    output = pooled_empty((T, B, H), g.dtype)
    save = save and options.checkpoint is None
    saves = pooled_empty((T, B, g.sizes.saved), g.dtype) if save else torch.empty(0, dtype=g.dtype, device="cpu")
    if B == 0:
        return output, torch.empty_like(g.h0), saves
    with scratch(g.forward_elements(), g.dtype.itemsize) as memory:
        g.fill(memory["mesh"])
        call = g.forward_call(memory, output, saves if save else None)
        g.forward(g.library.goru_goru_forward, call)
    return output, last_state(output, inputs.lengths, options.reverse), saves


def backward(
    inputs: GoruInputs, options: GoruOptions, output: Tensor, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    g = GoruCall(inputs, options)
    grad_output, grad_h_n = grads
    T, B, I, H, G, dtype, s = g.T, g.B, g.I, g.H, g.G, g.dtype, g.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saves = check("saved", saves, saved(inputs, options), dtype)
    carry = check("grad_h_n", grad_h_n, (B, H), dtype).clone(memory_format=torch.contiguous_format)
    dx = torch.empty((T, B, I), dtype=dtype, device="cpu") if needs_x else None
    layout = g.layout(s.chunk_row, s.groups)
    elements = {
        "packed": s.packed_backward,
        "packed_input": s.packed_input if needs_x else 0,
        "through": s.through * g.blocks,
        "turned": 0 if g.matrix else 2 * s.turned * g.blocks,
        "chunk": s.chunk_row * layout.rows,
        "mesh": s.mesh,
    }
    checkpoint = None if options.checkpoint is None else min(options.checkpoint, T)
    if checkpoint is not None:
        elements |= {f"forward {name}": size for name, size in g.forward_elements().items() if name != "mesh"}
        saves = pooled_empty((checkpoint, B, s.saved), dtype)
    dweight_ih = torch.empty_like(g.weight_ih)
    dweight_hh = None if g.weight_hh is None else pooled_empty(tuple(g.weight_hh.shape), dtype)
    dbias, du, dangles = (None if t is None else torch.empty_like(t) for t in (g.bias, g.u, g.angles))
    zeros = {"wide": layout.groups * s.wide, "bias": g.blocks * s.bias, "angles": g.blocks * s.angles}
    in_place = dweight_hh is not None and not g.matrix and layout.groups == 1 and s.square == H * H
    if dweight_hh is not None and in_place:
        dweight_hh.zero_()
    else:
        zeros["square"] = layout.groups * (G - 1 + g.matrix) * s.square
    with scratch(elements, dtype.itemsize, zeros) as memory:
        square = pointer(dweight_hh) if in_place else memory["square"]
        if B > 0:
            g.library.goru_goru_pack_backward(g.code, g.gates, pointer(g.weight_hh), pointer(g.u), H, memory["packed"])
            if needs_x:
                g.library.goru_goru_pack_input(g.code, g.gates, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GoruBackward(
                g.shape, g.fill(memory["mesh"]), grad_step, grad_row, layout, grad.data_ptr(), g.x.data_ptr(),
                g.h0.data_ptr(), output.data_ptr(), saves.data_ptr(), memory["packed"], memory["packed_input"],
                carry.data_ptr(), memory["chunk"], memory["through"], memory["turned"], memory["wide"],
                square, memory["bias"], memory["angles"], pointer(dx),
            )  # fmt: skip
            recompute = None
            if checkpoint is not None:
                recompute = g.recomputer({n: memory[f"forward {n}"] for n in ("packed", "turned")}, output, saves, call)
            parts = g.whole_chunks(layout.steps)
            g.backward(g.library.goru_goru_backward, call, parts, checkpoint=checkpoint, recompute=recompute)
        finish = GoruFinish(
            I, H, G, g.blocks, layout.groups, g.transition, memory["wide"], square, memory["bias"], memory["angles"],
            dweight_ih.data_ptr(), pointer(dweight_hh), pointer(du), pointer(dbias), pointer(dangles),
        )  # fmt: skip
        g.library.goru_goru_finish(g.code, byref(finish))
    return dx, carry, dweight_ih, dweight_hh, dbias, du, dangles
