"""Single steps of one cell without gradients, as a stream takes them.

A step of a small cell is a few microseconds of arithmetic. What does not change from one step to the next (the checked
weights and their addresses, and what is computed from them) is prepared once and reused for as long as it is valid.
Weights are read in place, so a step never uses old values. What is computed from parameters, such as a table of
rotations, is compared with the values that it came from, in the library: a version counter misses changes through
`.data`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import addressof, c_char_p, c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from ..recurrence import STALE
from . import library
from .call import UNPACKED_ROWS
from .structures import structure

SLACK = 16  # elements after a buffer, as library.scratch leaves them

Step = structure("Step", (c_void_p, "stream x h c new_h new_c"), (c_int64, "rows"))
# A call has its arguments in a `bytes` of its own: converted one by one they would take longer than the arithmetic, and
# in a structure of the cell threads would overwrite each other's.
_pack = struct.Struct("7Q").pack
library.declare(c_int, goru_goru_step=[c_char_p], goru_gated_step=[c_char_p])

_PLAIN = (Tensor, nn.Parameter)


def runner(
    parameters: dict[str, Tensor], buffers: dict[str, Tensor], hidden: int, states: int, function: Any, stream: Any
) -> Callable[..., Any]:
    """run(cell, x, hx) takes one step and returns the new state; None to use the regular path, which may raise an
    error; STALE if the cell's tensors are no longer those that `stream` was made for."""
    weight = parameters["weight_ih"]
    inputs, dtype, address = weight.shape[1], weight.dtype, addressof(stream)
    places = tuple(_place(item) for item in parameters.items())
    others = tuple(_place(item) for item in buffers.items())
    pair = states == 2
    line, x_line = torch.Size([hidden]), torch.Size([inputs])

    def run(cell: Any, x: Tensor, hx: Any) -> Any:
        if not _hold(places, cell._parameters, dtype) or not (others == () or _hold(others, cell._buffers, dtype)):
            return STALE
        if pair:
            if type(hx) is not tuple or len(hx) != 2:
                return None
            h, c = hx
            if not (at_c := _address(c, dtype)):
                return None
        else:
            h = c = hx
            at_c = 0
        if not (at_x := _address(x, dtype)) or not (at_h := _address(h, dtype)):
            return None
        shape = h.shape
        if len(shape) == 2:
            rows, width = shape
            if width != hidden or not 0 < rows <= UNPACKED_ROWS or x.shape != (rows, inputs):
                return None
        elif shape == line and x.shape == x_line:
            rows = 1
        else:
            return None
        new_h = torch.empty_like(h)
        if not pair:
            return new_h if function(_pack(address, at_x, at_h, 0, new_h.data_ptr(), 0, rows)) else STALE
        if c.shape != shape:
            return None
        new_c = torch.empty_like(c)
        done = function(_pack(address, at_x, at_h, at_c, new_h.data_ptr(), new_c.data_ptr(), rows))
        return (new_h, new_c) if done else STALE

    run.memory = stream  # type: ignore[attr-defined]
    return run


def _hold(places: tuple[Any, ...], now: dict[str, Any], dtype: torch.dtype) -> bool:
    """Whether these are the same tensors in the same places."""
    for name, tensor, place, numel, strides in places:
        if (
            now.get(name) is not tensor
            or tensor.data_ptr() != place
            or tensor.dtype is not dtype
            or tensor.numel() != numel
            or tensor.stride() != strides
        ):
            return False
    return True


def plain_parameters(cell: Any) -> dict[str, Tensor] | None:
    """The cell's parameters by name; None if they cannot be read in place, or are computed by a parametrization."""
    own = {}
    for name in cell._names:
        parameter = cell._parameters.get(name)
        if parameter is None or not is_plain(parameter) or parameter.dtype not in library.DTYPES:
            return None
        own[name] = parameter
    return own


def is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and (bool(tensor.data_ptr()) or tensor.numel() == 0)
    )


def _address(tensor: Any, dtype: torch.dtype) -> int:
    """Where the values of a plain tensor are; 0 if it is not plain."""
    if (
        type(tensor) in _PLAIN
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
    ):
        return tensor.data_ptr()
    return 0


def _place(item: tuple[str, Tensor]) -> tuple[Any, ...]:
    name, tensor = item
    return name, tensor, tensor.data_ptr(), tensor.numel(), tensor.stride()
