"""What the recurrences GRU and LSTM are given and give back; letters as in recurrence.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

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


def gru_results(inputs: GruInputs, options: GatedOptions) -> Shapes:
    """output (T, B, H), h_n (B, H)."""
    (T, B, _), dtype, H = inputs.x.shape, inputs.x.dtype, inputs.h0.shape[1]
    return [((T, B, H), dtype), ((B, H), dtype)]


def lstm_results(inputs: LstmInputs, options: GatedOptions) -> Shapes:
    """output (T, B, H), h_n (B, H), c_n (B, H)."""
    (T, B, _), dtype, H = inputs.x.shape, inputs.x.dtype, inputs.h0.shape[1]
    return [((T, B, H), dtype), ((B, H), dtype), ((B, H), dtype)]
