"""Single steps of one cell without gradients, as a stream takes them.

A step of a small cell is a few microseconds of arithmetic. What does not change from one step to the next (the checked
weights and their addresses, and what is computed from them) is prepared once and reused for as long as it is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .call import UNPACKED_ROWS

SLACK = 16  # elements after a buffer, as library.scratch leaves them

State = tuple[Tensor, ...]


class Prepared:
    """The parameters of a cell as they were when they were checked, and their addresses.

    A subclass prepares its call and takes the step: call(addresses of x and of the states, rows) writes the new states
    to the last addresses; False where something that was computed from the parameters is out of date.
    """

    def __init__(self, parameters: Sequence[Tensor | None], hidden: int) -> None:
        weight = parameters[0]
        assert weight is not None
        self.inputs, self.hidden, self.dtype = weight.shape[1], hidden, weight.dtype
        self.places = [(p, *_place(p)) for p in parameters if p is not None]
        self.missing = [p is None for p in parameters]

    def holds(self, parameters: Sequence[Tensor | None]) -> bool:
        """Whether the parameters are the same tensors in the same places."""
        present = iter(self.places)
        for parameter, missing in zip(parameters, self.missing, strict=True):
            if missing:
                if parameter is not None:
                    return False
                continue
            before, address, dtype, shape, stride = next(present)
            if (
                parameter is not before
                or before.data_ptr() != address
                or before.dtype is not dtype
                or before.stride() != stride
                or before.shape != shape
            ):
                return False
        return True

    def call(self, x: int, states: list[int], new: list[int], rows: int) -> bool:
        raise NotImplementedError


class Steps:
    """Takes the steps of one cell. It holds addresses: see Stepper in recurrence.py."""

    def __init__(self, prepare: Callable[[Sequence[Tensor | None]], Prepared]) -> None:
        self.prepare = prepare
        self.prepared: Prepared | None = None

    def step(self, x: Tensor, state: State, parameters: Sequence[Tensor | None]) -> State | None:
        """The states after these, (B, H) or (H) each, with the input x (B, I) or (I); None where they are not plain
        enough for this, or wrong: the ordinary call takes them, or raises the error."""
        prepared = self.prepared
        if prepared is None or not prepared.holds(parameters):
            if not all(p is None or _is_plain(p) for p in parameters):
                return None
            prepared = self.prepared = self.prepare(parameters)
        shape = state[0].shape
        if len(shape) == 2:
            rows, expected = shape[0], (shape[0], prepared.inputs)
            if not 0 < rows <= UNPACKED_ROWS:
                return None
        elif len(shape) == 1:
            rows, expected = 1, (prepared.inputs,)
        else:
            return None
        dtype = prepared.dtype
        if shape[-1] != prepared.hidden or x.shape != expected or x.dtype is not dtype or not _is_dense(x):
            return None
        addresses = []
        for part in state:
            if part.shape != shape or part.dtype is not dtype or not _is_dense(part):
                return None
            addresses.append(part.data_ptr())
        new = tuple([torch.empty_like(part) for part in state])
        places = [part.data_ptr() for part in new]
        if prepared.call(x.data_ptr(), addresses, places, rows):
            return new
        prepared = self.prepared = self.prepare(parameters)
        return new if prepared.call(x.data_ptr(), addresses, places, rows) else None


def _is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() != 0


def _is_plain(parameter: Tensor) -> bool:
    return (
        type(parameter) in (Tensor, nn.Parameter)
        and parameter.is_contiguous()
        and not parameter.is_neg()
        and (bool(parameter.data_ptr()) or parameter.numel() == 0)
    )


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
