"""Complex EURNN whose U is a matrix, on the native kernels (csrc/eurnn/eurnn_dense.h).

A complex tensor (..., H) goes to the kernels as (..., 2, Hp), real parts and imaginary parts, filled up with zeros.
"""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ..native import library
from ..native.call import Call, check, pointer, rows
from ..native.library import pooled_empty, scratch
from ..native.structures import ChunkLayout, Shape, structure
from .reference import EurnnInputs, EurnnOptions

DenseArguments = structure(
    "DenseArguments", (Shape, "shape"), (c_int64, "saved_step"), (c_void_p, "x packed bias state output saved"),
    (c_int64, "grad_step grad_row"), (ChunkLayout, "layout"),
    (c_void_p, "grad_output h0 packed_input chunk weights sums grad_x"),
)  # fmt: skip
DenseSizes = structure(
    "DenseSizes", (c_int64, "packed packed_backward packed_input state inputs chunk_row block_rows weights groups")
)
library.declare(
    goru_dense_sizes=[c_int, c_int64, c_int64, c_void_p],
    goru_dense_pack=[c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
    goru_dense_pack_input=[c_int, c_void_p, c_int64, c_int64, c_void_p],
    goru_dense_forward=[c_int, c_void_p],
    goru_dense_backward=[c_int, c_void_p],
)


class DenseCall(Call):
    """The checked arguments of a complex EURNN with U as a matrix."""

    def __init__(self, inputs: EurnnInputs, options: EurnnOptions) -> None:
        x, h0, weight_ih, bias, u, _, lengths = inputs
        assert u is not None
        super().__init__(x, options.mesh.size, lengths, options.reverse, bias is not None)
        B, I, H = self.B, self.I, self.H
        self.complex = self.dtype.to_complex()
        self.weight = check("weight_ih", weight_ih, (2 * H, I), self.dtype)
        self.bias = None if bias is None else check("bias", bias, (H,), self.dtype)
        self.u = check("u", u, (H, H), self.complex)
        self.sizes = DenseSizes()
        self.library.goru_dense_sizes(self.code, I, H, byref(self.sizes))
        self.h0 = self.parts("h0", h0)
        self.block_rows = self.sizes.block_rows
        self.step_flops = 4.0 * B * H * (2 * H + I)

    def parts(self, name: str, tensor: Tensor) -> Tensor:
        """(B, H) complex as (B, 2, Hp), in memory of its own."""
        dense = check(name, tensor, (self.B, self.H), self.complex)
        result = torch.zeros((self.B, 2, self.sizes.state), dtype=self.dtype, device="cpu")
        result[..., : self.H] = torch.view_as_real(dense).transpose(1, 2)
        return result

    def joined(self, parts: Tensor) -> Tensor:
        return torch.complex(parts[:, 0, : self.H].contiguous(), parts[:, 1, : self.H].contiguous())

    def pack(self, transposed: bool, to: int) -> None:
        """U as four real blocks, or its conjugate transpose; the forward product also has the weights of the input."""
        u = self.u.mH if transposed else self.u
        blocks = torch.stack([u.real, -u.imag, u.imag, u.real])
        weight, inputs = (None, 0) if transposed else (self.weight.data_ptr(), self.I)
        self.library.goru_dense_pack(self.code, blocks.data_ptr(), weight, inputs, self.H, to)

    def arguments(self, **fields: int | None) -> Any:
        arguments = DenseArguments(self.shape)
        for name, value in {"x": self.x.data_ptr(), "bias": pointer(self.bias), **fields}.items():
            setattr(arguments, name, value)
        return arguments


def forward(inputs: EurnnInputs, options: EurnnOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    d = DenseCall(inputs, options)
    output = pooled_empty((d.T, d.B, d.H), d.dtype)
    saves = pooled_empty((d.T, d.B, d.H), d.complex) if save else torch.empty(0, dtype=d.complex, device="cpu")
    elements = {"packed": d.sizes.packed, "saved": 0 if save else 2 * d.B * d.H}
    state = d.h0
    with scratch(elements, d.dtype.itemsize) as memory:
        d.pack(False, memory["packed"])
        call = d.arguments(
            packed=memory["packed"], state=state.data_ptr(), output=output.data_ptr(),
            saved=saves.data_ptr() if save else memory["saved"], saved_step=2 * d.B * d.H if save else 0,
        )  # fmt: skip
        if d.B:
            d.forward(d.library.goru_dense_forward, call)
    return output, d.joined(state), saves


def backward(
    inputs: EurnnInputs, options: EurnnOptions, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    d = DenseCall(inputs, options)
    grad_output, grad_h_n = grads
    T, B, I, H, dtype, s = d.T, d.B, d.I, d.H, d.dtype, d.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), dtype)
    saves = check("saved", saves, (T, B, H), d.complex)
    state = d.parts("grad_h_n", grad_h_n)
    dx = torch.empty((T, B, I), dtype=dtype, device="cpu") if needs_x else None
    layout = d.layout(s.chunk_row, s.groups)
    weights = torch.zeros((layout.groups, s.weights), dtype=dtype, device="cpu")
    sums = torch.zeros((d.blocks, s.state), dtype=dtype, device="cpu")
    if B > 0:
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "chunk": s.chunk_row * layout.rows,
        }
        with scratch(elements, dtype.itemsize) as memory:
            d.pack(True, memory["packed"])
            if needs_x:
                d.library.goru_dense_pack_input(d.code, d.weight.data_ptr(), I, H, memory["packed_input"])
            call = d.arguments(
                state=state.data_ptr(), saved=saves.data_ptr(), saved_step=2 * B * H, grad_step=grad_step,
                grad_row=grad_row, layout=layout, grad_output=grad.data_ptr(), h0=d.h0.data_ptr(),
                weights=weights.data_ptr(), sums=sums.data_ptr(), grad_x=pointer(dx), **memory,
            )  # fmt: skip
            d.backward(d.library.goru_dense_backward, call, layout.steps)
    weights = reduce(torch.add, weights)  # of the groups, in their order
    # dU = sum of da conj(h)^T, from the four real products of their parts.
    square = weights[: 4 * s.state**2].view(2, s.state, 2, s.state)[:, :H, :, :H]
    du = torch.complex(square[0, :, 0] + square[1, :, 1], square[1, :, 0] - square[0, :, 1])
    dweight = weights[4 * s.state**2 :].view(2, s.state, s.inputs)[:, :H, :I].reshape(2 * H, I).clone()
    dbias = None if d.bias is None else sums.sum(0)[:H].clone()
    return dx, d.joined(state), dweight, dbias, du, None
