"""What users get wrong: each mistake raises one sentence that names what was given and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import goru

X = torch.zeros(4, 7, 3)
MASK = torch.ones(4, 7, dtype=torch.bool)

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "memory beside init": (
        lambda: goru.GORU(3, 5, memory=10, init="june2017"),
        ValueError,
        "init chooses the initialization without memory: pass one of them, got memory=10 and init='june2017'",
    ),
    "memory of lengths.max()": (
        lambda: goru.GORU(3, 5, memory=torch.tensor(20)),  # pyright: ignore[reportArgumentType]
        TypeError,
        "memory should be a number of steps, or one per layer, got tensor(20); use .tolist()",
    ),
    "capacity where the mesh is fft by default": (
        lambda: goru.GORU(3, 50, memory=1000, capacity=4),
        ValueError,
        "capacity needs mesh='tunable', which is the default only for a memory of at most 500 steps; "
        "got capacity=4 without mesh",
    ),
    "memories of a cell": (
        lambda: goru.GORUCell(3, 5, memory=(3, 4)),  # pyright: ignore[reportArgumentType]
        TypeError,
        "a cell takes one memory, got (3, 4)",
    ),
    "lengths as the second argument": (
        lambda: goru.GORU(3, 5)(X, [4] * 7),
        TypeError,
        "GORU: hx must be a tensor, got a list; pass lengths by keyword, and a tuple of states only to an LSTM",
    ),
    "the states of an LSTM": (
        lambda: goru.EURNN(3, 5)(X, (X, X)),
        TypeError,
        "EURNN: hx must be a tensor, got a tuple; pass lengths by keyword, and a tuple of states only to an LSTM",
    ),
    "too many states": (
        lambda: goru.LSTM(3, 5)(X, (X, X, X)),
        RuntimeError,
        "LSTM: hx must be a tuple of 2 tensors, got a tuple of 3",
    ),
    "batch and time exchanged": (
        lambda: goru.GORU(3, 5)(X, lengths=[1, 2, 3, 4]),
        RuntimeError,
        "lengths must have one number for each of the 7 rows of a batch (batch_first=False), got shape [4]",
    ),
    "a mask": (
        lambda: goru.GORU(3, 5)(X, lengths=MASK),
        TypeError,
        "lengths must be whole numbers, got torch.bool; from a mask, pass its sum over the steps",
    ),
    "a real state for a complex layer": (
        lambda: goru.EURNN(3, 5)(X, torch.zeros(1, 7, 5)),
        RuntimeError,
        "EURNN: hx must have dtype torch.complex64, got torch.float32; a real state needs complex=False",
    ),
    "an array": (
        lambda: goru.GORU(3, 5)(X.numpy()),  # pyright: ignore[reportArgumentType]
        TypeError,
        "GORU: input must be a Tensor or a PackedSequence, got ndarray",
    ),
    "a packed sequence for a cell": (
        lambda: goru.GRUCell(3, 5)(nn.utils.rnn.pack_sequence([X[:, 0]])),
        TypeError,
        "GRUCell: input must be a Tensor, got PackedSequence",
    ),
    "init beside the weights of a GRU": (
        lambda: goru.GORU.from_gru(nn.GRU(3, 5), init="june2017"),
        ValueError,
        "from_gru starts from the weights of a GRU: init has no effect",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake: str) -> None:
    make, kind, message = MISTAKES[mistake]
    with pytest.raises(kind) as error:
        make()
    assert type(error.value) is kind
    assert str(error.value) == message


def test_memory_may_be_a_number_of_numpy() -> None:
    assert goru.GORU(3, 5, memory=np.int64(20)).memory == (20.0,)  # pyright: ignore[reportArgumentType]
    layer = goru.GORU(3, 5, 2, memory=[np.float32(20), 3])  # pyright: ignore[reportArgumentType]
    assert layer.memory == (20.0, 3.0)
