"""bfloat16 and float16 on the native kernels: float32 arithmetic from the first step to the last.

Tensors are converted where a call begins and where it ends, so results are rounded once. The backward pass reads the
states and everything else that was saved in float32: in `saved`, back to back, as pairs of half-precision numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..backends import Kernel

HALF = (torch.bfloat16, torch.float16)


def with_half_precision(kernel: Kernel) -> Kernel:
    """The kernel of a recurrence with inputs x (T, B, I) and h0 (B, H), extended to half precision."""

    def saved(inputs: Any, options: Any) -> tuple[Any, ...]:
        if inputs.x.dtype not in HALF:
            return kernel.saved(inputs, options)
        (T, B, _), H = inputs.x.shape, inputs.h0.shape[1]
        return (2 * (T * B * H + math.prod(kernel.saved(_single(inputs), options))),)

    def forward(inputs: Any, options: Any, save: bool) -> tuple[Tensor, ...]:
        dtype = inputs.x.dtype
        if dtype not in HALF:
            return kernel.forward(inputs, options, save)
        *results, saves = kernel.forward(_single(inputs), options, save)
        if save:
            saves = torch.cat([results[0].reshape(-1), saves.reshape(-1)])
        return *(result.to(dtype) for result in results), saves.view(dtype)

    def backward(
        inputs: Any, options: Any, output: Tensor, saves: Tensor, grads: tuple[Tensor, ...], needs_x: bool
    ) -> tuple[Tensor | None, ...]:
        dtype = inputs.x.dtype
        if dtype not in HALF:
            return kernel.backward(inputs, options, output, saves, grads, needs_x)
        single = _single(inputs)
        numbers = saves.view(torch.float32)
        states = numbers[: output.numel()].view(output.shape)
        rest = numbers[output.numel() :].view(kernel.saved(single, options))
        wide = tuple(_wide(grad) for grad in grads)  # the kernel refuses gradients of other types
        gradients = kernel.backward(single, options, states, rest, wide, needs_x)
        return tuple(None if gradient is None else gradient.to(dtype) for gradient in gradients)

    return replace(kernel, forward=forward, backward=backward, saved=saved)


def _single(inputs: Any) -> Any:
    for name, tensor in zip(inputs._fields, inputs, strict=True):
        if tensor is not None and tensor.is_complex():
            raise RuntimeError(
                f"{name} is complex, x has {inputs.x.dtype}: complex states need x in float32 or float64"
            )
    return type(inputs)(*(t if t is None else _wide(t) for t in inputs))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor
