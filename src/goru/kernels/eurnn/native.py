"""EURNN on the native kernels (csrc/eurnn), with the rotations of U applied directly.

Where U is a matrix, a complex EURNN goes to native_matrix.py, and a real one is a GORU without gates.
"""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from ...rotations import Mesh
from ..goru import native as goru_native
from ..goru.reference import GoruInputs, GoruOptions
from ..mesh.native import Coefficients, MeshArguments
from ..native import library
from ..native.call import Call, check, dtype_code, pointer, rows, streams
from ..native.library import pooled_empty, scratch
from ..native.structures import Shape, structure
from . import native_matrix
from .reference import EurnnInputs, EurnnOptions

EurnnArguments = structure(
    "EurnnArguments", (Shape, "shape"), (MeshArguments, "mesh"),
    (c_void_p, "x weight bias state output saved scratch"), (c_int64, "stream"),
    (c_void_p, "grad_output h0"), (c_int64, "grad_step grad_row depth"),
    (c_void_p, "gradients inputs sums weights grad_x"),
)  # fmt: skip
EurnnSizes = structure("EurnnSizes", (c_int64, "lanes scratch gradients inputs sums angles"))
library.declare(
    goru_eurnn_sizes=[c_int, c_int, c_int64, c_int64, c_int64, c_void_p],
    goru_eurnn_forward=[c_int, c_int, c_void_p],
    goru_eurnn_backward=[c_int, c_int, c_void_p],
)


def prefers_rotations(mesh: Mesh) -> bool:
    """Whether rotating the state layer by layer is cheaper than the product with U.

    The figures are nanoseconds of a training step for each row and time step on one AVX2 core in float32, from
    `python -m benchmarks.rotations` at H = 32 ... 1024: what a rotation costs, what a unit costs more by rotations than
    by the product, and what one of the H^2 elements of U costs. Where they choose the slower way, it was slower by 9 %
    at most. Steps and batch multiply both sides alike, and a compiled graph must not depend on them.
    """
    rotation, unit, element = (2.5, 5.0, 0.385) if mesh.complex else (1.35, 4.5, 0.085)
    return mesh.num_rotations * rotation + mesh.size * unit < mesh.size**2 * element


def saved(inputs: EurnnInputs, options: EurnnOptions) -> tuple[Any, ...]:
    """Shape of what the forward pass saves: the pre-activations of a complex EURNN, by rotations in whole blocks of
    lanes."""
    (T, B, _), mesh = inputs.x.shape, options.mesh
    if not mesh.complex:
        return (0,)
    lanes = 1 if inputs.u is not None else _sizes(dtype_code(inputs.x.dtype), mesh, 0, 0).lanes
    return (T, (B + lanes - 1) // lanes * lanes, mesh.size)


def _sizes(code: int, mesh: Mesh, inputs: int, rotations: int) -> Any:
    sizes = EurnnSizes()
    library.get().goru_eurnn_sizes(code, mesh.complex, inputs, mesh.size, rotations, byref(sizes))
    return sizes


class EurnnCall(Call):
    """The checked arguments of an EURNN by rotations."""

    call_flops = 4e8  # rotations do fewer operations in a second than products

    def __init__(self, inputs: EurnnInputs, options: EurnnOptions) -> None:
        x, h0, weight_ih, bias, _, angles, lengths = inputs
        assert angles is not None
        mesh = self.mesh = options.mesh
        super().__init__(x, mesh.size, lengths, options.reverse, bias is not None)
        B, I, H = self.B, self.I, self.H
        self.coefficients = Coefficients(check("angles", angles, (mesh.num_angles,), self.dtype), mesh)
        self.state_dtype = mesh.state_dtype(self.dtype)
        self.h0 = check("h0", h0, (B, H), self.state_dtype)
        self.weight = check("weight_ih", weight_ih, ((1 + mesh.complex) * H, I), self.dtype)
        self.bias = None if bias is None else check("bias", bias, (H,), self.dtype)
        self.sizes = _sizes(self.code, mesh, I, self.coefficients.rotations)
        self.block_rows = self.sizes.lanes
        parts = 1 + mesh.complex
        # Rotations, x W, activation.
        self.step_flops = B * (self.coefficients.rotations * 6.0 * parts**2 + 2.0 * parts * H * (I + 8))

    def arguments(self, **fields: int | None) -> Any:
        arguments = EurnnArguments(
            self.shape, self.coefficients.arguments, self.x.data_ptr(), self.weight.data_ptr(), pointer(self.bias)
        )
        for name, value in fields.items():
            setattr(arguments, name, value)
        return arguments


def _as_goru(inputs: EurnnInputs, options: EurnnOptions) -> tuple[GoruInputs, GoruOptions]:
    x, h0, weight_ih, bias, u, _, lengths = inputs
    goru = GoruInputs(x, h0, weight_ih, None, bias, u, None, lengths)
    return goru, GoruOptions(options.mesh, reset_gate=False, update_gate=False, reverse=options.reverse)


def forward(inputs: EurnnInputs, options: EurnnOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    mesh = options.mesh
    if inputs.u is not None:
        if mesh.complex:
            return native_matrix.forward(inputs, options, save)
        output, h_n, _ = goru_native.forward(*_as_goru(inputs, options), save=False)
        return output, h_n, output.new_empty(0)
    e = EurnnCall(inputs, options)
    output = pooled_empty((e.T, e.B, e.H), e.dtype)
    saves = pooled_empty(saved(inputs, options) if save else (0,), e.state_dtype)
    state = e.h0.clone()
    if e.B == 0:
        return output, state, saves
    steps = e.steps_per_call()
    with scratch({"scratch": e.sizes.scratch * e.threads(steps)}, e.dtype.itemsize) as memory:
        call = e.arguments(
            state=state.data_ptr(),
            output=output.data_ptr(),
            saved=saves.data_ptr() if saves.numel() else None,
            scratch=memory["scratch"],
            stream=streams(output),
        )
        e.forward(e.library.goru_eurnn_forward, call, mesh.complex)
    return output, state, saves


def backward(
    inputs: EurnnInputs, options: EurnnOptions, output: Tensor, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    mesh = options.mesh
    if inputs.u is not None:
        if mesh.complex:
            return native_matrix.backward(inputs, options, saves, grads, needs_x)
        nothing = inputs.x.new_empty((*inputs.x.shape[:2], 0))
        dx, dh0, dweight, _, dbias, du, _ = goru_native.backward(
            *_as_goru(inputs, options), output, nothing, grads, needs_x
        )
        return dx, dh0, dweight, dbias, du, None
    e = EurnnCall(inputs, options)
    grad_output, grad_h_n = grads
    T, B, I, H, dtype, s = e.T, e.B, e.I, e.H, e.dtype, e.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    output = check("output", output, (T, B, H), dtype)
    saves = check("saved", saves, saved(inputs, options), e.state_dtype)
    state = check("grad_h_n", grad_h_n, (B, H), e.state_dtype).clone()
    dx = torch.empty((T, B, I), dtype=dtype, device="cpu") if needs_x else None
    dweight = torch.zeros_like(e.weight)
    sums = torch.zeros((e.blocks, s.sums), dtype=dtype, device="cpu")
    if B > 0:
        steps = e.steps_per_call((s.gradients + s.inputs) * e.blocks)
        elements = {
            "scratch": s.scratch * e.threads(steps, 2),
            "gradients": s.gradients * steps * e.blocks,
            "inputs": s.inputs * steps * e.blocks,
        }
        with scratch(elements, dtype.itemsize) as memory:
            call = e.arguments(
                state=state.data_ptr(), output=output.data_ptr(), saved=saves.data_ptr(),
                grad_output=grad.data_ptr(), h0=e.h0.data_ptr(), grad_step=grad_step, grad_row=grad_row,
                depth=steps * e.blocks, sums=sums.data_ptr(), weights=dweight.data_ptr(), grad_x=pointer(dx), **memory,
            )  # fmt: skip
            e.backward(e.library.goru_eurnn_backward, call, steps, mesh.complex)
    total = sums.sum(0)
    dbias = None if e.bias is None else total[s.angles :].clone()
    # One unit has no angles, but the kernel still sums the gradient of its phase.
    return dx, state, dweight, dbias, None, e.coefficients.in_order(total[: mesh.num_angles])
