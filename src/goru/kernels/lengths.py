"""Rows of different length in one padded batch. Legend: T steps, B batch."""

from __future__ import annotations

import torch
from torch import Tensor


def check(lengths: Tensor | None, steps: int) -> None:
    """Refuse lengths outside 1 ... T. Called inside the operators, where values exist even under torch.compile."""
    if lengths is None or lengths.numel() == 0:
        return
    low, high = (int(v) for v in torch.aminmax(lengths))
    if low < 1 or high > steps:
        raise RuntimeError(
            f"lengths must lie between 1 and the {steps} steps of the input, got values from {low} to {high}"
        )


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """(T, B) mask: True where a row still has a step."""
    return torch.arange(steps, device=lengths.device)[:, None] < lengths
