"""Step through a sequence in plain torch: what the references of all recurrences share.

Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .chunks import walk
from .lengths import valid_steps

Shapes = list[tuple[tuple[int, ...], torch.dtype]]


def results(x: Tensor, hidden: int, *states: torch.dtype) -> Shapes:
    """Shapes and dtypes of the output (T, B, H) and of each last state (B, H)."""
    T, B, _ = x.shape
    return [((T, B, hidden), x.dtype), *(((B, hidden), dtype) for dtype in states)]


def masked(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The input with zeros after the end of each row, and the mask (T, B, 1) of its steps."""
    if lengths is None:
        return x, None
    valid = valid_steps(lengths, x.shape[0])[..., None]
    return torch.where(valid, x, torch.zeros_like(x)), valid


def over_time(
    from_x: Tensor,
    states: tuple[Tensor, ...],
    step: Callable[..., tuple[Tensor, ...]],
    valid: Tensor | None,
    reverse: bool,
) -> tuple[list[tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """step(from_x[t], *states) -> (*new states, *signals), for every t: all that it returns, by t, and the last states.

    A row that has ended keeps its state, even a NaN, and all its signals are 0.
    """
    arrivals, steps = from_x.unbind(0), []
    for t in walk(len(arrivals), reverse):
        if valid is None:
            signals = step(arrivals[t], *states)
            states = signals[: len(states)]
        else:
            signals = step(arrivals[t], *(torch.where(valid[t], s, torch.zeros_like(s)) for s in states))
            new = zip(signals[: len(states)], states, strict=True)
            signals = tuple(torch.where(valid[t], s, torch.zeros_like(s)) for s in signals)
            states = tuple(torch.where(valid[t], n, s) for n, s in new)
        steps.append(signals)
    return steps[::-1] if reverse else steps, states


def stacked(steps: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Each signal over time."""
    return [torch.stack(signal) for signal in zip(*steps, strict=True)]
