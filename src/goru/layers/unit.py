"""The interface of units (GORUUnit, EURNNUnit, GatedUnit), and the functions that all of them share.

Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ..kernels.backends import Choice

Parameters = dict[str, Tensor]
State = tuple[Tensor, ...]  # (h,), or (h, c) for a unit with two states


class Unit(Protocol):
    """One kind of recurrent unit: a description that holds no parameters."""

    @property
    def name(self) -> str: ...

    @property
    def recurrence(self) -> str | None:
        """The recurrence that its backend has to implement; None if it runs in plain torch."""
        ...

    def shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one layer in one direction."""
        ...

    def initialize(self, parameters: Parameters) -> None: ...

    def state_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        """The dtype of each state, for parameters of this dtype. With one state `hx` and `h_n` are tensors, with more
        they are tuples."""
        ...

    def run(
        self, x: Tensor, state: State, parameters: Parameters, lengths: Tensor | None, reverse: bool, backend: Choice
    ) -> tuple[Tensor, State]:
        """output (T, B, H) and the last state, from x (T, B, I) and the initial state, each part (B, H)."""
        ...

    def describe(self) -> str:
        """What repr() prints in addition to the arguments of nn.GRU."""
        ...

    def cell_options(self) -> dict[str, Any]:
        """The keyword arguments of its cell; a layer without a cell needs none."""
        ...


def check_sizes(input_size: Any, hidden_size: Any, bias: Any, least: int = 1) -> None:
    """The checks of nn.GRU that layers and cells share; nn.GRUCell allows sizes of 0."""
    if not isinstance(bias, bool):
        raise TypeError(f"bias should be of type bool, got: {type(bias).__name__}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size < least:
            raise ValueError(f"{name} must be {'greater than' if least else 'at least'} zero, got {size}")


def check_floating(dtype: torch.dtype | None) -> None:
    if dtype is not None and not dtype.is_floating_point:
        raise RuntimeError(f"parameters are real floating point numbers, got dtype={dtype}")


def check_checkpoint(checkpoint: Any) -> None:
    if checkpoint is not None and (isinstance(checkpoint, bool) or not isinstance(checkpoint, int)):
        raise TypeError(f"checkpoint should be a number of steps or None, got: {type(checkpoint).__name__}")
    if checkpoint is not None and checkpoint < 1:
        raise ValueError(f"checkpoint must be at least 1 step, got {checkpoint}")


def listed(options: dict[str, Any], **defaults: Any) -> str:
    """Options as repr() prints them, without those that have their default.

    >>> listed({"mesh": "fft", "capacity": None}, capacity=None)
    "mesh='fft'"
    """
    shown = {name: value for name, value in options.items() if name not in defaults or value != defaults[name]}
    return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def as_state(hx: Any, unit: Unit) -> State | None:
    """A tuple, from a state as users pass it: a tensor, or a tuple of several."""
    if hx is None:
        return None
    count = len(unit.state_dtypes(torch.float32))
    several = isinstance(hx, tuple | list)
    if count == 1 and not several:
        return (hx,)
    if count == 1:
        raise TypeError(
            f"{unit.name}: hx must be a tensor, got a {type(hx).__name__}; pass lengths by keyword, and a tuple of "
            "states only to an LSTM"
        )
    if not several or len(hx) != count:
        given = f"a {type(hx).__name__} of {len(hx)}" if several else type(hx).__name__
        raise RuntimeError(f"{unit.name}: hx must be a tuple of {count} tensors, got {given}")
    return tuple(hx)


def from_state(state: State) -> Any:
    """The inverse of `as_state`."""
    return state[0] if len(state) == 1 else state


def result_dtype(x: Tensor, state: State | None) -> torch.dtype:
    """The dtype of the results: that of the state, else of the input. It differs from that of the weights
    only under autocast, where the recurrence runs in the dtype of the weights and nn.GRU returns this one on a CPU."""
    return x.dtype if state is None or state[0].is_complex() else state[0].dtype


def in_dtype(state: State, dtype: torch.dtype) -> State:
    """A state in another dtype; a complex state is unchanged, since there are no complex half types."""
    return tuple(part if part.is_complex() else part.to(dtype) for part in state)


def wrong_state_dtype(name: str, expected: torch.dtype, given: torch.dtype) -> str:
    """What is wrong with the dtype of `hx`."""
    instead = "; a real state needs complex=False" if expected.is_complex and not given.is_complex else ""
    return f"{name}: hx must have dtype {expected}, got {given}{instead}"
