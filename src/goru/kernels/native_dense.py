"""Complex EURNN whose U is a matrix, on the native kernels (csrc/eurnn_dense.h). Arguments as in operators.py.

A complex tensor (..., H) goes to the kernels as (..., 2, Hp), real parts and imaginary parts, filled up with zeros.
"""

from __future__ import annotations

from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from . import library
from .library import DTYPES, DenseArguments, DenseSizes, Shape, pooled_empty, scratch
from .native_arguments import CALL_FLOPS, Ragged, check, chunks, pointer, rows, worth_threads
from .native_goru import CHUNK_BYTES


class _Dense:
    """The checked arguments, their sizes, and the structure that describes a call."""

    def __init__(
        self,
        x: Tensor,
        h0: Tensor,
        weight_ih: Tensor,
        bias: Tensor | None,
        u: Tensor,
        lengths: Tensor | None,
        reverse: bool,
    ) -> None:
        if x.dim() != 3 or u.dim() != 2 or x.shape[0] == 0 or u.shape[0] == 0:
            raise RuntimeError(
                f"the native backend needs x of shape (T, B, I) and u of shape (H, H) with T, H > 0, got "
                f"{tuple(x.shape)} and {tuple(u.shape)}"
            )
        self.real = x.dtype
        if self.real not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got {self.real}")
        self.complex = self.real.to_complex()
        self.T, self.B, self.I = T, B, I = tuple(x.shape)
        self.H = H = u.shape[0]
        self.x, x_step, x_row = rows("x", x, (T, B, I), self.real)
        self.weight = check("weight_ih", weight_ih, (2 * H, I), self.real)
        self.bias = None if bias is None else check("bias", bias, (H,), self.real)
        self.u = check("u", u, (H, H), self.complex)
        self.ragged = Ragged(lengths, T, B)
        self.code, self.sizes = DTYPES[self.real], DenseSizes()
        library.get().goru_dense_sizes(self.code, I, H, byref(self.sizes))
        self.h0 = self.parts("h0", h0)
        self.blocks = -(-B // self.sizes.block_rows)
        self.step_flops = 4.0 * B * H * (2 * H + I)
        order, active = self.ragged.pointers()
        self.shape = Shape(T, B, I, H, 0, 0, reverse, bias is not None, 0, T, 1, order, active, x_step, x_row)

    def parts(self, name: str, tensor: Tensor) -> Tensor:
        """(B, H) complex as (B, 2, Hp), in memory of its own."""
        dense = check(name, tensor, (self.B, self.H), self.complex)
        result = torch.zeros((self.B, 2, self.sizes.state), dtype=self.real, device="cpu")
        result[..., : self.H] = torch.view_as_real(dense).transpose(1, 2)
        return result

    def joined(self, parts: Tensor) -> Tensor:
        return torch.complex(parts[:, 0, : self.H].contiguous(), parts[:, 1, : self.H].contiguous())

    def pack(self, transposed: bool, to: int) -> None:
        """U as four real blocks, or its conjugate transpose; the forward product also has the weights of the input."""
        u = self.u.mH if transposed else self.u
        blocks = torch.stack([u.real, -u.imag, u.imag, u.real])
        weight, inputs = (None, 0) if transposed else (self.weight.data_ptr(), self.I)
        library.get().goru_dense_pack(self.code, blocks.data_ptr(), weight, inputs, self.H, to)

    def call(self, **fields: int | None) -> Any:
        call = DenseArguments(self.shape)
        for name, value in {"x": self.x.data_ptr(), "bias": pointer(self.bias), **fields}.items():
            setattr(call, name, value)
        return call

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_FLOPS / max(1.0, self.step_flops))))


def forward(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    d = _Dense(x, h0, weight_ih, bias, u, lengths, reverse)
    output = pooled_empty((d.T, d.B, d.H), d.real)
    saved = pooled_empty((d.T, d.B, d.H), d.complex) if save else torch.empty(0, dtype=d.complex, device="cpu")
    elements = {"packed": d.sizes.packed, "saved": 0 if save else 2 * d.B * d.H}
    state = d.h0
    with scratch(elements, d.real.itemsize) as memory:
        d.pack(False, memory["packed"])
        call = d.call(
            packed=memory["packed"], state=state.data_ptr(), output=output.data_ptr(),
            saved=saved.data_ptr() if save else memory["saved"], saved_step=2 * d.B * d.H if save else 0,
        )  # fmt: skip
        for first, last in chunks(d.T, d.steps_per_call()) if d.B else ():
            call.shape.first, call.shape.last = first, last
            call.shape.threads = worth_threads((last - first) * d.step_flops, d.blocks)
            library.get().goru_dense_forward(d.code, byref(call))
    return output, d.joined(state), saved


def backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    saved: Tensor,
    reverse: bool,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    d = _Dense(x, h0, weight_ih, bias, u, lengths, reverse)
    T, B, I, H, real, s = d.T, d.B, d.I, d.H, d.real, d.sizes
    grad, grad_step, grad_row = rows("grad_output", grad_output, (T, B, H), real)
    saved = check("saved", saved, (T, B, H), d.complex)
    state = d.parts("grad_h_n", grad_h_n)
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=real, device="cpu")
    weights = torch.zeros(2 * s.state * (2 * s.state + s.inputs), dtype=real, device="cpu")
    sums = torch.zeros((d.blocks, s.state), dtype=real, device="cpu")
    if B > 0:
        steps = max(1, min(CHUNK_BYTES // real.itemsize // (s.chunk_row * B), d.steps_per_call(), T))
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "chunk": s.chunk_row * steps * B,
        }
        with scratch(elements, real.itemsize) as memory:
            d.pack(True, memory["packed"])
            if needs_x:
                library.get().goru_dense_pack_input(d.code, d.weight.data_ptr(), I, H, memory["packed_input"])
            call = d.call(
                state=state.data_ptr(), saved=saved.data_ptr(), saved_step=2 * B * H, grad_step=grad_step,
                grad_row=grad_row, rows=steps * B, grad_output=grad.data_ptr(), h0=d.h0.data_ptr(),
                weights=weights.data_ptr(), sums=sums.data_ptr(), grad_x=dx.data_ptr() if needs_x else None, **memory,
            )  # fmt: skip
            for first, last in reversed(list(chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                call.shape.threads = worth_threads(2 * (last - first) * d.step_flops, d.blocks)
                library.get().goru_dense_backward(d.code, byref(call))
    # dU = sum of da conj(h)^T, from the four real products of their parts.
    square = weights[: 4 * s.state**2].view(2, s.state, 2, s.state)[:, :H, :, :H]
    du = torch.complex(square[0, :, 0] + square[1, :, 1], square[1, :, 0] - square[0, :, 1])
    dweight = weights[4 * s.state**2 :].view(2, s.state, s.inputs)[:, :H, :I].reshape(2 * H, I).clone()
    dbias = x.new_empty(0) if bias is None else sums.sum(0)[:H].clone()
    return dx, d.joined(state), dweight, dbias, du
