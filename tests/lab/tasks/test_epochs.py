"""Batches of a finite set: by (seed, step) alone, everything once an epoch, little padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goru.lab.problems.concatenated import ConcatenatedSequences
from goru.lab.problems.epochs import Epochs, in_order


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 5), st.booleans())
def test_every_row_once_an_epoch(count: int, batch: int, seed: int, sort: bool) -> None:
    lengths = torch.arange(count) % 7 + 1 if sort else None
    epochs = Epochs(count, batch, seed, lengths)
    for epoch in range(2):
        rows = [epochs.rows(epoch * epochs.steps + k) for k in range(epochs.steps)]
        assert sorted(torch.cat(rows).tolist()) == list(range(count))
        assert max(map(len, rows)) <= batch


def test_a_step_does_not_depend_on_those_before() -> None:
    lengths = torch.arange(100) % 13 + 1
    forward = Epochs(100, 8, 1, lengths)
    expected = [forward.rows(step).tolist() for step in range(40)]
    backward = Epochs(100, 8, 1, lengths)
    assert [backward.rows(step).tolist() for step in reversed(range(40))][::-1] == expected
    assert expected[:13] != expected[13:26]
    assert Epochs(100, 8, 2, lengths).rows(0).tolist() != expected[0]


def test_like_lengths_come_together() -> None:
    lengths = torch.from_numpy(np.random.default_rng(0).integers(100, 311, 2400))
    epochs = Epochs(2400, 32, 0, lengths)
    batches = [lengths[epochs.rows(step)] for step in range(epochs.steps)]
    padding = 1 - sum(int(b.sum()) for b in batches) / sum(int(b.max()) * len(b) for b in batches)
    # Eight sorted batches over 210 lengths: half of 26 in about 206 on average; without sorting 0.31.
    assert padding < 0.07
    assert [len(rows) for rows in in_order(lengths, 1000)] == [1000, 1000, 400]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.data())
def test_concatenated(lengths: list[int], data: st.DataObject) -> None:
    sequences = [np.arange(10 * k, 10 * k + n, dtype=np.float32)[:, None] * [1.0, -1.0] for k, n in enumerate(lengths)]
    sequences_ = ConcatenatedSequences(sequences)
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=5))
    padded, got = sequences_.padded(torch.tensor(rows))
    assert got.tolist() == [lengths[row] for row in rows]
    assert padded.shape == (max(got.tolist()), len(rows), 2)
    for b, row in enumerate(rows):
        assert padded[: lengths[row], b].numpy().tolist() == sequences[row].tolist()


def test_concatenated_refuses_nothing_and_emptiness() -> None:
    for sequences in ([], [np.zeros(0)]):
        with pytest.raises(ValueError, match="at least one sequence"):
            ConcatenatedSequences(sequences)
