"""GRU and LSTM in plain torch: the specification that the other implementations are compared with.

Defines the inputs and outputs first, then the equations; letters as in recurrence.py. Autograd differentiates
them, twice if needed, and they run under torch.func transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from .. import equations
from ..goru.reference import Trace


class GruInputs(NamedTuple):
    """Rows of the weights as in torch.nn.GRU: r, z, n. Both biases or none."""

    x: Tensor  # (T, B, I)
    h0: Tensor  # (B, H)
    weight_ih: Tensor  # (3H, I)
    weight_hh: Tensor  # (3H, H)
    bias_ih: Tensor | None  # (3H)
    bias_hh: Tensor | None
    lengths: Tensor | None = None


class LstmInputs(NamedTuple):
    """Rows of the weights as in torch.nn.LSTM: i, f, g, o. Both biases or none."""

    x: Tensor  # (T, B, I)
    h0: Tensor  # (B, H)
    c0: Tensor  # (B, H)
    weight_ih: Tensor  # (4H, I)
    weight_hh: Tensor  # (4H, H)
    bias_ih: Tensor | None  # (4H)
    bias_hh: Tensor | None
    lengths: Tensor | None = None


@dataclass(frozen=True)
class GatedOptions:
    reverse: bool = False
    checkpoint: int | None = None  # native: states are saved every so many steps, the rest is recomputed


def gru_results(inputs: GruInputs, options: GatedOptions) -> equations.Shapes:
    return equations.results(inputs.x, inputs.h0.shape[1], inputs.x.dtype)


def lstm_results(inputs: LstmInputs, options: GatedOptions) -> equations.Shapes:
    return equations.results(inputs.x, inputs.h0.shape[1], inputs.x.dtype, inputs.x.dtype)


class LstmTrace(NamedTuple):
    """What an LSTM did: output and the inner signals, each (T, B, H), and the last states (B, H)."""

    output: Tensor
    input_gate: Tensor
    forget_gate: Tensor
    candidate: Tensor
    output_gate: Tensor
    cell: Tensor
    h_n: Tensor
    c_n: Tensor


def gru_trace(inputs: GruInputs, options: GatedOptions) -> Trace:
    """Every signal of a GRU over time; beyond a row's end all of them are 0."""

    def step(from_x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        x_r, x_z, x_n = from_x.chunk(3, -1)
        h_r, h_z, h_n = linear(h, inputs.weight_hh, inputs.bias_hh).chunk(3, -1)
        reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(x_n + reset * h_n)
        return (1 - update) * candidate + update * h, reset, update, candidate

    steps, (h_n,) = _over_time(inputs, options, (inputs.h0,), step)
    return Trace(*equations.stacked(steps), h_n=h_n)


def lstm_trace(inputs: LstmInputs, options: GatedOptions) -> LstmTrace:
    """Every signal of an LSTM over time; beyond a row's end all of them are 0."""

    def step(from_x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, f, g, o = (from_x + linear(h, inputs.weight_hh, inputs.bias_hh)).chunk(4, -1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = f * c + i * g
        return o * torch.tanh(c), c, i, f, g, o

    steps, (h_n, c_n) = _over_time(inputs, options, (inputs.h0, inputs.c0), step)
    output, cell, i, f, g, o = equations.stacked(steps)
    return LstmTrace(output, i, f, g, o, cell, h_n, c_n)


def gru(inputs: GruInputs, options: GatedOptions) -> tuple[Tensor, Tensor]:
    trace = gru_trace(inputs, options)
    return trace.output, trace.h_n


def lstm(inputs: LstmInputs, options: GatedOptions) -> tuple[Tensor, Tensor, Tensor]:
    trace = lstm_trace(inputs, options)
    return trace.output, trace.h_n, trace.c_n


def _over_time(inputs: GruInputs | LstmInputs, options: GatedOptions, states: tuple[Tensor, ...], step: Any) -> Any:
    x, valid = equations.masked(inputs.x, inputs.lengths)
    from_x = linear(x, inputs.weight_ih, inputs.bias_ih)
    return equations.over_time(from_x, states, step, valid, options.reverse)
