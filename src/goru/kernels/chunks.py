"""Process a sequence in chunks of steps, for passes in torch operations.

What does not depend on the previous state is computed for a whole chunk at once. Apart from the results and what is
saved, only one chunk is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 20  # of the widest buffer of a chunk: a few MB stay in the cache between the passes over them


def chunk_size(steps: int, per_step: int) -> int:
    return max(1, min(steps, CHUNK_ELEMENTS // max(1, per_step)))


def chunks(steps: int, size: int, reverse: bool) -> Iterator[slice]:
    """Slices of the time axis, in the order in which a recurrence processes them."""
    starts = range(0, steps, size)
    for start in reversed(starts) if reverse else starts:
        yield slice(start, min(start + size, steps))


def walk(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def previous_states(
    chunk: slice, states: Callable[[slice], Tensor], h0: Tensor, valid: Tensor | None, T: int, reverse: bool
) -> Tensor:
    """h_{t-1} of each step of a chunk, in the direction of the walk, starting from h0."""
    before = h0.new_empty((chunk.stop - chunk.start, *h0.shape))
    if not reverse:
        first = max(chunk.start, 1)
        before[first - chunk.start :] = states(slice(first - 1, chunk.stop - 1))
        if chunk.start == 0:
            before[0] = h0
        return before
    last = min(chunk.stop, T - 1)
    before[: last - chunk.start] = states(slice(chunk.start + 1, last + 1))
    if chunk.stop == T:
        before[-1] = h0
    if valid is not None:
        # A backward walk starts from h0 at each row's own end, where the state beyond it was not stored.
        started = valid[chunk.start + 1 : last + 1]
        before[: len(started)] = torch.where(started, before[: len(started)], h0)
    return before
