"""Single steps of a GORU without gradients, as a stream takes them.

A step of a small cell is a few microseconds of arithmetic. What does not change from one step to the next, the checked
weights, their addresses and the table of rotations, is prepared once and reused for as long as it is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import Any

import torch
from torch import Tensor, nn

from ..mesh import native as mesh_native
from ..native.call import pointer
from .arguments import GoruInputs, GoruOptions
from .native import UNPACKED_ROWS, GoruCall, GoruForward, prefers_rotations

SLACK = 16  # elements after a buffer, as library.scratch leaves them


class GoruSteps:
    """Takes the steps of one cell. It holds addresses: see Stepper in recurrence.py."""

    def __init__(self, options: GoruOptions) -> None:
        self.options = options
        self.prepared: _Prepared | None = None

    def step(self, x: Tensor, h: Tensor, parameters: Sequence[Tensor | None]) -> Tensor | None:
        """The state after h (B, H) or (H) with the input x (B, I) or (I); None where these are not plain enough for
        this, or wrong: the ordinary call takes them, or raises the error.

        `parameters`: weight_ih, weight_hh, bias, angles.
        """
        prepared = self.prepared
        if prepared is None or not prepared.holds(parameters):
            if not all(p is None or _is_plain(p) for p in parameters):
                return None
            prepared = self.prepared = _Prepared(parameters, self.options)
        return prepared.step(x, h)


class _Prepared:
    def __init__(self, parameters: Sequence[Tensor | None], options: GoruOptions) -> None:
        weight_ih, weight_hh, bias, angles = parameters
        assert weight_ih is not None
        assert angles is not None
        self.parameters = parameters
        self.places = [_place(p) for p in parameters]
        self.angles = angles.detach().clone()
        mesh = options.mesh
        self.inputs, self.hidden, self.dtype = weight_ih.shape[1], mesh.size, weight_ih.dtype
        u = None if prefers_rotations(mesh) else mesh_native.matrix(self.angles, mesh)
        x, h = weight_ih.new_empty(1, 1, self.inputs), weight_ih.new_empty(1, self.hidden)
        turns = self.angles if u is None else None
        g = GoruCall(GoruInputs(x, h, weight_ih, weight_hh, bias, u, turns), options)
        self.library, self.code, self.line = g.library, g.code, g.sizes.line
        self.memory = u, torch.empty(g.sizes.mesh + SLACK, dtype=self.dtype, device="cpu")
        table = g.fill(self.memory[1].data_ptr())
        weights = weight_ih.data_ptr(), pointer(weight_hh), pointer(g.u)
        self.call = GoruForward(g.shape, table, None, None, pointer(bias), None, *weights, None, None, None)
        self.call.shape.threads = 1

    def holds(self, parameters: Sequence[Tensor | None]) -> bool:
        """Whether the parameters are where they were, and the angles what they were: values are compared, not version
        counters, which miss a change through `.data`."""
        for before, place, now in zip(self.parameters, self.places, parameters, strict=True):
            if now is not before or place != _place(now):
                return False
        angles = parameters[-1]
        return angles is not None and torch.equal(self.angles, angles)

    def step(self, x: Tensor, h: Tensor) -> Tensor | None:
        shape = h.shape
        batch = shape[0] if len(shape) == 2 else 1
        if not (
            len(shape) in (1, 2)
            and shape[-1] == self.hidden
            and x.shape == (*shape[:-1], self.inputs)
            and 0 < batch <= UNPACKED_ROWS
            and x.dtype == self.dtype == h.dtype
            and x.is_contiguous()
            and h.is_contiguous()
            and not (x.is_neg() or h.is_neg())
            and x.data_ptr()
            and h.data_ptr()
        ):
            return None
        output, turned = torch.empty_like(h), torch.empty(self.line * batch + SLACK, dtype=self.dtype, device="cpu")
        call = GoruForward.from_buffer_copy(self.call)  # another thread may be in a step of this cell
        call.shape.batch = batch
        call.x, call.h0, call.output, call.turned = x.data_ptr(), h.data_ptr(), output.data_ptr(), turned.data_ptr()
        self.library.goru_goru_forward(self.code, byref(call))
        return output


def _is_plain(parameter: Tensor) -> bool:
    return (
        type(parameter) in (Tensor, nn.Parameter)
        and parameter.is_contiguous()
        and not parameter.is_neg()
        and (bool(parameter.data_ptr()) or parameter.numel() == 0)
    )


def _place(tensor: Tensor | None) -> tuple[Any, ...] | None:
    return None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
