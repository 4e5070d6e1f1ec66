"""Single steps of a GORU on the native kernels. Its table of rotations, or U, is computed once from the angles."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from ..mesh import native as mesh_native
from ..native import library
from ..native.call import pointer
from ..native.steps import SLACK, Prepared, Steps
from ..native.structures import structure
from .native import GoruCall, GoruForward, prefers_rotations
from .reference import GoruInputs, GoruOptions

GoruStream = structure(
    "GoruStream", (GoruForward, "forward"), (c_int64, "line angle_bytes"), (c_void_p, "angles angles_before")
)
library.declare(c_int, goru_goru_step=[c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int64])


class PreparedGoru(Prepared):
    """`parameters`: weight_ih, weight_hh, bias, angles."""

    def __init__(self, parameters: Sequence[Tensor | None], options: GoruOptions) -> None:
        weight_ih, weight_hh, bias, angles = parameters
        assert weight_ih is not None
        assert angles is not None
        mesh = options.mesh
        super().__init__(parameters, mesh.size)
        before = angles.detach().clone()
        u = None if prefers_rotations(mesh) else mesh_native.matrix(before, mesh)
        x, h = weight_ih.new_empty(1, 1, self.inputs), weight_ih.new_empty(1, self.hidden)
        g = GoruCall(GoruInputs(x, h, weight_ih, weight_hh, bias, u, before if u is None else None), options)
        table = torch.empty(g.sizes.mesh + SLACK, dtype=self.dtype, device="cpu")
        self.memory = before, u, table
        weights = weight_ih.data_ptr(), pointer(weight_hh), pointer(g.u)
        transition = g.fill(table.data_ptr())
        forward = GoruForward(g.shape, transition, None, None, pointer(bias), None, *weights, None, None, None)
        forward.shape.threads = 1
        size = self.dtype.itemsize
        self.arguments = GoruStream(
            forward, g.sizes.line * size, angles.numel() * size, angles.data_ptr(), before.data_ptr()
        )
        self.address, self.code, self.function = byref(self.arguments), g.code, g.library.goru_goru_step

    def call(self, x: int, states: list[int], new: list[int], rows: int) -> bool:
        # The angles are compared by value: a version counter misses a change through `.data`.
        return self.function(self.code, self.address, x, states[0], new[0], rows) != 0


def steps(options: GoruOptions) -> Steps:
    return Steps(lambda parameters: PreparedGoru(parameters, options))
