"""Sequences of different lengths, concatenated in one tensor, and padded batches taken from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class ConcatenatedSequences:
    """Sequences one after another in a single tensor; a batch of any size is one gather."""

    def __init__(self, sequences: Sequence[np.ndarray]) -> None:
        """Sequences run along their first axis; the other dimensions and the type are the same for all."""
        lengths = np.array([len(one) for one in sequences], dtype=np.int64)
        if not len(lengths) or lengths.min() < 1:
            raise ValueError("needs at least one sequence, and no empty ones")
        self.values = torch.from_numpy(np.concatenate(sequences))
        self.lengths = torch.from_numpy(lengths)
        self._first = torch.from_numpy(np.concatenate([[0], lengths[:-1].cumsum()]))

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The sequences of these rows (B), side by side (T, B, ...), and their lengths (B).

        A shorter sequence is padded with its own last value, which a masked loss does not see.
        """
        lengths = self.lengths[rows]
        steps = torch.arange(int(lengths.max())).unsqueeze(1)
        places = self._first[rows] + torch.minimum(steps, lengths - 1)
        return self.values.index_select(0, places.flatten()).unflatten(0, places.shape), lengths
