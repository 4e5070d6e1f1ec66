"""GRU and LSTM in plain torch: the specification that the other implementations are compared with.

First what the recurrence is given and gives back; letters as in recurrence.py. Autograd differentiates
the equations, twice if need be, and they run under torch.func transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..chunks import walk
from ..lengths import valid_steps

Shapes = list[tuple[tuple[Any, ...], torch.dtype]]


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


def gru_results(inputs: GruInputs, options: GatedOptions) -> Shapes:
    """output (T, B, H), h_n (B, H)."""
    (T, B, _), dtype, H = inputs.x.shape, inputs.x.dtype, inputs.h0.shape[1]
    return [((T, B, H), dtype), ((B, H), dtype)]


def lstm_results(inputs: LstmInputs, options: GatedOptions) -> Shapes:
    """output (T, B, H), h_n (B, H), c_n (B, H)."""
    (T, B, _), dtype, H = inputs.x.shape, inputs.x.dtype, inputs.h0.shape[1]
    return [((T, B, H), dtype), ((B, H), dtype), ((B, H), dtype)]


class GruTrace(NamedTuple):
    """What a GRU did: output and the inner signals, each (T, B, H), and the last state (B, H)."""

    output: Tensor
    reset: Tensor
    update: Tensor
    candidate: Tensor
    h_n: Tensor


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


def gru_trace(inputs: GruInputs, options: GatedOptions) -> GruTrace:
    """Every signal of a GRU over time; beyond a row's end all of them are 0."""

    def step(from_x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        x_r, x_z, x_n = from_x.chunk(3, -1)
        h_r, h_z, h_n = linear(h, inputs.weight_hh, inputs.bias_hh).chunk(3, -1)
        reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(x_n + reset * h_n)
        return (1 - update) * candidate + update * h, reset, update, candidate

    signals, (h_n,) = _walk(inputs, options, (inputs.h0,), step)
    return GruTrace(*signals, h_n=h_n)


def lstm_trace(inputs: LstmInputs, options: GatedOptions) -> LstmTrace:
    """Every signal of an LSTM over time; beyond a row's end all of them are 0."""

    def step(from_x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, f, g, o = (from_x + linear(h, inputs.weight_hh, inputs.bias_hh)).chunk(4, -1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = f * c + i * g
        return o * torch.tanh(c), c, i, f, g, o

    (output, cell, i, f, g, o), (h_n, c_n) = _walk(inputs, options, (inputs.h0, inputs.c0), step)
    return LstmTrace(output, i, f, g, o, cell, h_n, c_n)


def gru(inputs: GruInputs, options: GatedOptions) -> tuple[Tensor, Tensor]:
    trace = gru_trace(inputs, options)
    return trace.output, trace.h_n


def lstm(inputs: LstmInputs, options: GatedOptions) -> tuple[Tensor, Tensor, Tensor]:
    trace = lstm_trace(inputs, options)
    return trace.output, trace.h_n, trace.c_n


def _walk(
    inputs: GruInputs | LstmInputs,
    options: GatedOptions,
    states: tuple[Tensor, ...],
    step: Callable[..., tuple[Tensor, ...]],
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """All signals over time, each (T, B, H), and the last states. step(from_x, *states) -> (*new states, *signals)."""
    x, T = inputs.x, inputs.x.shape[0]
    valid = None if inputs.lengths is None else valid_steps(inputs.lengths, T)[..., None]
    if valid is not None:
        x = torch.where(valid, x, torch.zeros_like(x))
    arrivals = linear(x, inputs.weight_ih, inputs.bias_ih).unbind(0)
    nothing = torch.zeros_like(states[0])
    steps: list[tuple[Tensor, ...]] = []
    for t in walk(T, options.reverse):
        seen = states if valid is None else tuple(torch.where(valid[t], s, nothing) for s in states)
        signals = step(arrivals[t], *seen)  # without the NaN of a row that has ended
        new = signals[: len(states)]
        if valid is None:
            states = new
        else:
            states = tuple(torch.where(valid[t], n, s) for n, s in zip(new, states, strict=True))
            signals = tuple(torch.where(valid[t], s, nothing) for s in signals)
        steps.append(signals)
    if options.reverse:
        steps.reverse()
    return [torch.stack(signal) for signal in zip(*steps, strict=True)], states
