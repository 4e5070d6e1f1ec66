"""Digits as seven segments, moved and dimmed at random on a noisy ground: stand-ins for handwritten ones."""

from __future__ import annotations

import numpy as np

from goru.lab.data.readers.digits import SIDE

# Rows and columns that the segments cover: top, upper left, upper right, middle, lower left, lower right, bottom.
_SEGMENTS = (
    (slice(4, 7), slice(8, 20)),
    (slice(4, 15), slice(8, 11)),
    (slice(4, 15), slice(17, 20)),
    (slice(12, 15), slice(8, 20)),
    (slice(12, 23), slice(8, 11)),
    (slice(12, 23), slice(17, 20)),
    (slice(20, 23), slice(8, 20)),
)
_LIT = ("012456", "25", "02346", "02356", "1235", "01356", "013456", "025", "0123456", "012356")
_FURTHEST = 3
"""Pixels by which a digit is moved at most."""


def write(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 784) and labels (N), bytes."""
    labels = rng.integers(0, 10, count).astype(np.uint8)
    pictures = rng.integers(0, 40, (count, SIDE, SIDE))
    for picture, label in zip(pictures, labels, strict=True):
        drawn = np.zeros((SIDE, SIDE), dtype=np.int64)
        for segment in _LIT[label]:
            drawn[_SEGMENTS[int(segment)]] = rng.integers(120, 216)
        picture += np.roll(drawn, rng.integers(-_FURTHEST, _FURTHEST + 1, 2), axis=(0, 1))
    return pictures.astype(np.uint8).reshape(count, -1), labels
