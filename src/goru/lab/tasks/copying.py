"""Copying: ten symbols, a long silence, a marker; then say the ten symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from goru.lab.tasks.recall import RecallTask


@dataclass(frozen=True)
class Copying(RecallTask):
    """The copying task."""

    placement: Literal["start", "random"] = "start"
    """Where the block of symbols stands: at the start, or anywhere before the marker."""

    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        block = np.arange(self.recall)[:, None]
        if self.placement == "start":
            return np.broadcast_to(block, (self.recall, batch_size))
        return block + rng.integers(0, self.delay, batch_size)
