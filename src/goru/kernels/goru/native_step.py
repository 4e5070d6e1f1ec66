"""Single steps of a GORU on the native kernels. Its table of rotations, or U, is computed once from the angles."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from ..mesh import native as mesh_native
from ..native.call import pointer
from ..native.steps import SLACK, is_plain, plain_parameters, runner
from ..native.structures import structure
from .native import GoruCall, GoruForward, prefers_rotations
from .reference import GoruInputs, GoruOptions

Compared = structure("Compared", (c_void_p, "now before"), (c_int64, "bytes"))
GoruStream = structure(
    "GoruStream", (GoruForward, "forward"), (c_int64, "dtype turned block_rows"), (Compared, "angles bias memory")
)


def steps(cell: Any, options: GoruOptions) -> Callable[..., Any] | None:
    own = plain_parameters(cell)
    buffers: dict[str, Tensor] = {name: buffer for name, buffer in cell._buffers.items() if buffer is not None}
    if own is None or not all(map(is_plain, buffers.values())):
        return None
    # Copies come first: if another thread changes the values meanwhile, the first step finds the difference.
    before = {name: tensor.detach().clone() for name, tensor in (own | buffers).items() if name in _COMPARED}
    effective = cell._effective({**own, **before})
    weight_ih, weight_hh, angles = own["weight_ih"], own.get("weight_hh"), before["angles"]
    scaled = effective.get("bias") is not before.get("bias")
    bias = effective["bias"] if scaled else own.get("bias")
    mesh = options.mesh
    u = None if prefers_rotations(mesh) else mesh_native.matrix(angles, mesh)
    x, h = weight_ih.new_empty(1, 1, weight_ih.shape[1]), weight_ih.new_empty(1, mesh.size)
    g = GoruCall(GoruInputs(x, h, weight_ih, weight_hh, bias, u, angles if u is None else None), options)
    table = torch.empty(g.sizes.mesh + SLACK, dtype=weight_ih.dtype, device="cpu")
    weights = weight_ih.data_ptr(), pointer(weight_hh), pointer(g.u)
    forward = GoruForward(
        g.shape, g.fill(table.data_ptr()), None, None, pointer(bias), None, *weights, None, None, None, False
    )
    forward.shape.threads = 1
    compared = [Compared(None, None, 0)] * 3
    for place, name in enumerate(_COMPARED if scaled else ("angles",)):
        now = own.get(name, buffers.get(name))
        assert now is not None
        compared[place] = Compared(now.data_ptr(), before[name].data_ptr(), now.numel() * now.itemsize)
    stream = GoruStream(forward, g.code, g.sizes.turned * weight_ih.dtype.itemsize, g.block_rows, *compared)
    stream.tensors = before, bias, g.u, table  # what it has addresses of
    return runner(own, buffers, mesh.size, 1, g.library.goru_goru_step, stream)


_COMPARED = ("angles", "bias", "memory")
