"""EURNN on the native kernels. Arguments as in operators.py."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from ..rotations import Mesh
from . import library, native_dense
from .library import EurnnArguments, Shape, pooled_empty, scratch
from .native_arguments import Ragged, check, chunks, pointer, rows, worth_threads
from .native_goru import CHUNK_BYTES, goru_backward, goru_forward
from .native_mesh import Coefficients

CALL_SECONDS = 0.2


def eurnn_saved_shape(steps, batch, mesh: Mesh, rotations: bool, dtype: torch.dtype) -> tuple:
    """Shape of what the forward pass saves: by rotations it comes in whole blocks of lanes."""
    if not mesh.complex:
        return (0,)
    if not rotations:
        return (steps, batch, mesh.size)
    lanes = _lanes(dtype)
    return (steps, (batch + lanes - 1) // lanes * lanes, mesh.size)


def _lanes(dtype: torch.dtype) -> int:
    sizes = library.RotationSizes()
    library.get().goru_rotation_sizes(library.DTYPES[dtype], 0, 0, 1, 0, byref(sizes))
    return sizes.lanes


class _Eurnn:
    """The checked arguments of an EURNN by rotations, and the structure that describes a call."""

    def __init__(
        self,
        x: Tensor,
        h0: Tensor,
        weight_ih: Tensor,
        bias: Tensor | None,
        angles: Tensor,
        lengths: Tensor | None,
        mesh: Mesh,
        reverse: bool,
    ) -> None:
        if x.dim() != 3 or x.shape[0] == 0:
            raise RuntimeError(f"the native backend needs x of shape (T, B, I) with T > 0, got {tuple(x.shape)}")
        T, B, I = x.shape
        H, self.real = mesh.size, x.dtype
        self.coefficients = Coefficients(angles, mesh)
        self.dtype = self.real.to_complex() if mesh.complex else self.real
        self.T, self.B, self.I, self.H, self.mesh = T, B, I, H, mesh
        self.x, x_step, x_row = rows("x", x, (T, B, I), angles.dtype)
        self.h0 = check("h0", h0, (B, H), self.dtype)
        self.weight = check("weight_ih", weight_ih, ((1 + mesh.complex) * H, I), self.real)
        self.bias = None if bias is None else check("bias", bias, (H,), self.real)
        self.ragged = Ragged(lengths, T, B)
        self.sizes = self.coefficients.sizes(I)
        self.blocks = -(-B // self.sizes.lanes)
        parts = 1 + mesh.complex
        # What a row costs in a step, in floating-point operations: rotations, x W, activation.
        self.step_flops = B * (self.coefficients.rotations * 6.0 * parts**2 + 2.0 * parts * H * (I + 8))
        order, active = self.ragged.pointers()
        self.shape = Shape(T, B, I, H, 0, 0, reverse, bias is not None, 0, T, 1, order, active, x_step, x_row)

    def call(self, threads: int, **fields: int | None) -> Any:
        call = EurnnArguments(
            self.shape, self.coefficients.arguments, self.x.data_ptr(), self.weight.data_ptr(), pointer(self.bias)
        )
        call.shape.threads = threads
        for name, value in fields.items():
            setattr(call, name, value)
        return call

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_SECONDS * 2e9 / max(1.0, self.step_flops))))


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
    if transition.dim() == 2:
        if mesh.complex:
            return native_dense.forward(x, h0, weight_ih, bias, transition, lengths, reverse, save)
        # A GORU without gates is a real EURNN.
        output, h_n, _ = goru_forward(
            x, h0, weight_ih, None, bias, transition, lengths, mesh, False, False, reverse, False
        )
        return output, h_n, x.new_empty(0)
    e = _Eurnn(x, h0, weight_ih, bias, transition, lengths, mesh, reverse)
    output = torch.empty((e.T, e.B, e.H), dtype=e.real, device="cpu")
    shape = eurnn_saved_shape(e.T, e.B, mesh, True, e.real) if save else (0,)
    saved = pooled_empty(shape, e.dtype)
    state = e.h0.clone()
    if e.B == 0:
        return output, state, saved
    steps = e.steps_per_call()
    threads = worth_threads(steps * e.step_flops, e.blocks)
    with scratch({"scratch": e.sizes.eurnn_scratch * threads}, e.real.itemsize) as memory:
        call = e.call(
            threads,
            state=state.data_ptr(),
            output=output.data_ptr(),
            saved=saved.data_ptr() if saved.numel() else None,
            scratch=memory["scratch"],
        )
        for first, last in chunks(e.T, steps):
            call.shape.first, call.shape.last = first, last
            library.get().goru_eurnn_forward(e.coefficients.code, mesh.complex, byref(call))
    return output, state, saved


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
    if transition.dim() == 2:
        if mesh.complex:
            return native_dense.backward(
                grad_output, grad_h_n, x, h0, weight_ih, bias, transition, lengths, saved, reverse, needs_x
            )
        nothing = x.new_empty((*x.shape[:2], 0))
        dx, dh0, dweight, _, dbias, du = goru_backward(
            grad_output, grad_h_n, x, h0, weight_ih, None, bias, transition, lengths, output, nothing, mesh, False,
            False, reverse, needs_x,
        )  # fmt: skip
        return dx, dh0, dweight, dbias, du
    e = _Eurnn(x, h0, weight_ih, bias, transition, lengths, mesh, reverse)
    T, B, I, H, real = e.T, e.B, e.I, e.H, e.real
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), real)
    output = check("output", output, (T, B, H), real)
    saved = check("saved", saved, eurnn_saved_shape(T, B, mesh, True, real), e.dtype)
    state = check("grad_h_n", grad_h_n, (B, H), e.dtype).clone()
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=real, device="cpu")
    dweight = torch.zeros_like(e.weight)
    # One unit has no angles, but the kernel still counts its phase.
    angles = (2 * e.coefficients.rotations + H) if mesh.complex else e.coefficients.rotations
    sums = torch.zeros((e.blocks, angles + H), dtype=real, device="cpu")
    if B > 0:
        lanes, units = e.sizes.lanes, (1 + mesh.complex) * H
        block_size = (-(-units // 4) * 4 + -(-I // 3) * 3) * lanes
        steps = max(1, min(CHUNK_BYTES // real.itemsize // (block_size * e.blocks), e.steps_per_call(), T))
        threads = worth_threads(2 * steps * e.step_flops, e.blocks)
        elements = {
            "scratch": e.sizes.eurnn_scratch * threads,
            "gradients": -(-units // 4) * 4 * lanes * steps * e.blocks,
            "inputs": -(-I // 3) * 3 * lanes * steps * e.blocks,
        }
        with scratch(elements, real.itemsize) as memory:
            call = e.call(
                threads,
                state=state.data_ptr(), output=output.data_ptr(), saved=saved.data_ptr(),
                grad_output=grad.data_ptr(), h0=e.h0.data_ptr(), grad_step=grad_step, grad_row=grad_row,
                depth=steps * e.blocks, sums=sums.data_ptr(), weights=dweight.data_ptr(),
                grad_x=dx.data_ptr() if needs_x else None, **memory,
            )  # fmt: skip
            # Rows beyond the units, in the last group of four, are read by the product and dropped; they must be
            # numbers all the same.
            for first, last in reversed(list(chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                library.get().goru_eurnn_backward(e.coefficients.code, mesh.complex, byref(call))
    total = sums.sum(0)
    dbias = x.new_empty(0) if bias is None else total[angles:].clone()
    return dx, state, dweight, dbias, e.coefficients.in_order(total[: transition.numel()])


def prefers_rotations(mesh: Mesh, steps: int, batch: int) -> bool:
    """Whether rotating the state layer by layer is cheaper than the product with U.

    The figures are nanoseconds of a training step for each row and time step on one AVX2 core in float32, from
    `python -m benchmarks.rotations` at H = 32 ... 1024: what a rotation costs, what a unit costs more by rotations than
    by the product, and what one of the H^2 elements of U costs. Where they choose the slower way, it was slower by 9 %
    at most. Steps and batch multiply both sides alike (and a compiled graph must not depend on them).
    """
    rotation, unit, element = (2.5, 5.0, 0.385) if mesh.complex else (1.35, 4.5, 0.085)
    return mesh.num_rotations * rotation + mesh.size * unit < mesh.size**2 * element
