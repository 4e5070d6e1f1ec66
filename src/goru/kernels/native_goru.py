"""GORU on the native kernels. Arguments as in operators.py."""

from __future__ import annotations

from ctypes import byref
from functools import cache

import torch
from torch import Tensor

from ..rotations import Mesh
from . import library
from .library import DTYPES, GoruBackward, GoruFinish, GoruForward, GoruMesh, GoruSizes, Shape, pooled_empty, scratch
from .native_arguments import CALL_FLOPS, Ragged, check, chunks, last_state, pointer, rows, worth_threads

CHUNK_BYTES = 4 << 20  # what a chunk of the backward pass keeps in the cache
UNPACKED_ROWS = 8  # up to so many rows (t, b) the forward pass takes the weights as they are
MATRIX, FFT, TUNABLE = 0, 1, 2  # how U acts, as in arguments.h


def saved_blocks(reset_gate: bool, update_gate: bool, matrix: bool) -> int:
    """Blocks of H that a GORU step saves: r, z with both gates; r or z, c with one; and v = U h where U is a matrix."""
    if reset_gate:
        return 1 + update_gate + matrix
    return 2 if update_gate else 0


def goru_prefers_rotations(mesh: Mesh) -> bool:
    """Whether turning the state layer by layer is cheaper than the product with U.

    Measured on one AVX2 core (forward and backward at T 40, B 32, tunable meshes): both cost the same at about 16
    layers of 32 units, 28 of 128, 60 of 512.
    """
    return mesh.num_layers**2 <= 7 * mesh.size


@cache
def _sizes(code: int, gates: int, kind: int, layers: int, inputs: int, hidden: int) -> GoruSizes:
    sizes = GoruSizes()
    library.get().goru_goru_sizes(code, gates, byref(GoruMesh(kind, layers, None)), inputs, hidden, byref(sizes))
    return sizes


class Goru:
    """The checked weights of a GORU, its sizes, and the structure that describes a call."""

    def __init__(
        self,
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
    ) -> None:
        self.library = library.get()
        H = mesh.size
        if x.dim() != 3 or x.shape[0] == 0:
            raise RuntimeError(f"the native backend needs x of shape (T, B, I) with T > 0, got {tuple(x.shape)}")
        self.dtype = dtype = x.dtype
        if dtype not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got {dtype}")
        self.matrix = transition.dim() == 2
        if self.matrix:
            self.u, self.angles = check("u", transition, (H, H), dtype), None
            self.mesh = GoruMesh(MATRIX, 0, None)
        else:
            self.u, self.angles = None, check("angles", transition, (mesh.num_angles,), dtype)
            layers = mesh.num_layers if H > 1 else 0
            self.mesh = GoruMesh(FFT if mesh.kind == "fft" else TUNABLE, layers, None)
        T, B, I = x.shape
        G = 1 + reset_gate + update_gate
        self.T, self.B, self.I, self.H, self.G = T, B, I, H, G
        self.x, x_step, x_row = rows("x", x, (T, B, I), dtype)
        self.h0 = check("h0", h0, (B, H), dtype)
        self.weight_ih = check("weight_ih", weight_ih, (G * H, I), dtype)
        if (weight_hh is None) != (G == 1):
            raise RuntimeError("the native backend needs weight_hh exactly when at least one gate is on")
        self.weight_hh = None if weight_hh is None else check("weight_hh", weight_hh, ((G - 1) * H, H), dtype)
        self.bias = None if bias is None else check("bias", bias, (G * H,), dtype)
        self.ragged = Ragged(lengths, T, B)
        self.code, self.gates = DTYPES[dtype], reset_gate + 2 * update_gate
        self.saved_shape = (T, B, saved_blocks(reset_gate, update_gate, self.matrix) * H)
        self.sizes = _sizes(self.code, self.gates, self.mesh.kind, self.mesh.layers, I, H)
        self.blocks = -(-B // self.sizes.block_rows)
        # What a step costs in floating-point operations: products, rotations, activations.
        self.step_flops = 2.0 * B * H * ((G - 1 + self.matrix) * H + G * I + 3 * self.mesh.layers + 20)
        order, active = self.ragged.pointers()
        self.shape = Shape(
            T, B, I, H, reset_gate, update_gate, reverse, bias is not None, 0, T, 1, order, active, x_step, x_row
        )

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_FLOPS / max(1.0, self.step_flops))))

    def fill_mesh(self, table: int) -> GoruMesh:
        """The mesh with its cosines and sines, written to `table`; for a matrix there are none."""
        if self.angles is not None:
            self.library.goru_goru_mesh(self.code, byref(self.mesh), self.H, self.angles.data_ptr(), table)
        self.mesh.table = table
        return self.mesh


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
    g = Goru(x, h0, weight_ih, weight_hh, bias, transition, lengths, mesh, reset_gate, update_gate, reverse)
    T, B, I, H = g.T, g.B, g.I, g.H
    output = pooled_empty((T, B, H), g.dtype)
    saved = pooled_empty(g.saved_shape, g.dtype) if save else torch.empty(0, dtype=g.dtype, device="cpu")
    if B == 0:
        return output, torch.empty_like(g.h0), saved
    pack = T * B > UNPACKED_ROWS
    elements = {"packed": g.sizes.packed if pack else 0, "turned": g.sizes.line * B, "mesh": g.sizes.mesh}
    with scratch(elements, g.dtype.itemsize) as memory:
        weights = g.weight_ih.data_ptr(), pointer(g.weight_hh), pointer(g.u)
        if pack:
            g.library.goru_goru_pack(g.code, g.gates, *weights, I, H, memory["packed"])
        call = GoruForward(
            g.shape, g.fill_mesh(memory["mesh"]), g.x.data_ptr(), g.h0.data_ptr(), pointer(g.bias),
            memory["packed"] if pack else None, *weights, output.data_ptr(), saved.data_ptr() if save else None,
            memory["turned"],
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
    g = Goru(x, h0, weight_ih, weight_hh, bias, transition, lengths, mesh, reset_gate, update_gate, reverse)
    T, B, I, H, G, dtype, s = g.T, g.B, g.I, g.H, g.G, g.dtype, g.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saved = check("saved", saved, g.saved_shape, dtype)
    carry = check("grad_h_n", grad_h_n, (B, H), dtype).clone(memory_format=torch.contiguous_format)
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=dtype, device="cpu")
    square = torch.zeros((G - 1 + g.matrix, s.bias, s.bias), dtype=dtype, device="cpu")
    sums = torch.zeros(s.wide + g.blocks * (s.bias + s.angles), dtype=dtype, device="cpu")
    wide = sums.data_ptr()
    db = wide + s.wide * dtype.itemsize
    turns = db + g.blocks * s.bias * dtype.itemsize
    steps = max(1, min(CHUNK_BYTES // dtype.itemsize // (s.chunk_row * max(1, B)), g.steps_per_call(), T))
    elements = {
        "packed": s.packed_backward,
        "packed_input": s.packed_input if needs_x else 0,
        "through": s.through_row * B,
        "turned": 0 if g.matrix else 2 * s.line * B,
        "chunk": s.chunk_row * steps * B,
        "mesh": s.mesh,
    }
    if B > 0:
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_goru_pack_backward(g.code, g.gates, pointer(g.weight_hh), pointer(g.u), H, memory["packed"])
            if needs_x:
                g.library.goru_goru_pack_input(g.code, g.gates, g.weight_ih.data_ptr(), I, H, memory["packed_input"])
            call = GoruBackward(
                g.shape, g.fill_mesh(memory["mesh"]), grad_step, grad_row, steps * B, grad.data_ptr(), g.x.data_ptr(),
                g.h0.data_ptr(), output.data_ptr(), saved.data_ptr(), memory["packed"], memory["packed_input"],
                carry.data_ptr(), memory["chunk"], memory["through"], memory["turned"], wide, square.data_ptr(), db,
                turns, dx.data_ptr() if needs_x else None,
            )  # fmt: skip
            for first, last in reversed(list(chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                call.shape.threads = worth_threads(2 * (last - first) * g.step_flops, g.blocks)
                g.library.goru_goru_backward(g.code, byref(call))
    dweight_ih = torch.empty((G * H, I), dtype=dtype, device="cpu")
    dbias = torch.empty(0 if g.bias is None else G * H, dtype=dtype, device="cpu")
    dangles = torch.empty(mesh.num_angles, dtype=dtype, device="cpu")
    finish = GoruFinish(
        I, H, G, g.blocks, g.mesh, wide, db, turns, dweight_ih.data_ptr(),
        None if g.bias is None else dbias.data_ptr(), None if g.matrix else dangles.data_ptr(),
    )  # fmt: skip
    g.library.goru_goru_finish(g.code, byref(finish))
    du = square[-1, :H, :H].clone(memory_format=torch.contiguous_format) if g.matrix else dangles
    dweight_hh = (
        square[: G - 1, :H, :H].reshape((G - 1) * H, H)
        if g.weight_hh is not None
        else torch.empty(0, dtype=dtype, device="cpu")
    )
    if g.matrix and g.weight_hh is not None:
        dweight_hh = dweight_hh.clone()  # not to keep dU's memory as well
    return dx, carry, dweight_ih, dweight_hh, dbias, du
