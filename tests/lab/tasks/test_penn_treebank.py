"""Next characters: lanes, the carried state, evaluation in one pass, learning."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goru.lab.errors import LabError
from goru.lab.problems import penn_treebank
from goru.lab.problems.penn_treebank import PennTreebankProblem, load
from goru.lab.tasks.penn_treebank import PennTreebank
from tests.lab.real_data import needs
from tests.lab.tasks.learning import fit, network_of, scores

TEXT = "abcdefghij" * 8  # 80 characters: three lanes of 26, of which two segments of 10 steps each are used


def problem(length: int = 10, lanes: int = 3) -> PennTreebankProblem:
    return PennTreebankProblem({"train": TEXT, "valid": "abca", "test": "jihg"}, length, lanes)


def test_lanes_by_hand() -> None:
    one = problem()
    assert one.steps_per_epoch == 2
    first, second, again = (one.batch(step) for step in range(3))
    assert first.inputs[:, 0].tolist() == list(range(10))
    assert first.targets[:, 0].tolist() == [*range(1, 10), 0]
    assert first.inputs[0].tolist() == [0, 26 % 10, 52 % 10]
    assert second.inputs[:, 1].tolist() == [(26 + 10 + t) % 10 for t in range(10)]
    assert (first.beginning, second.beginning, again.beginning) == (True, False, True)
    assert torch.equal(again.inputs, first.inputs)


class Counting(nn.Module):
    """Its state counts the steps since the text's beginning; remembers what it was given."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(symbols))
        self.given: list[int] = []

    def forward(self, symbols: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        before = state[0] if state else torch.zeros(1)
        self.given.append(int(before))
        return self.bias.expand(*symbols.shape, -1), [before + len(symbols)]


def test_state_is_carried_and_begins_anew() -> None:
    one, network = problem(), Counting(10)
    carry: list[Tensor] = []
    for step in range(4):
        _, carry = one.loss(network, one.batch(step), carry)
    assert network.given == [0, 10, 0, 10]


def test_evaluation_is_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penn_treebank, "_CHUNK", 7)
    one = PennTreebankProblem({"train": TEXT, "valid": TEXT, "test": TEXT}, 10, 3)
    network = Counting(10)
    assert scores(one, network)["loss"] == pytest.approx(math.log(10))
    assert scores(one, network)["bpc"] == pytest.approx(math.log2(10))
    assert network.given[:12] == [7 * k for k in range(12)]


@pytest.mark.parametrize("cell", ["goru", "gru", "lstm", "eurnn-real", "eurnn-complex"])
def test_chunks_do_not_matter(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = problem()
    network = network_of(one, cell).eval()
    whole = scores(one, network, "valid")["loss"]
    monkeypatch.setattr(penn_treebank, "_CHUNK", 2)
    # float32 over three steps
    assert scores(one, network, "valid")["loss"] == pytest.approx(whole, rel=1e-6)


def test_strange_texts() -> None:
    with pytest.raises(LabError, match="the test text has 'z', which the training text lacks"):
        PennTreebankProblem({"train": TEXT, "valid": "a", "test": "abz"}, 10, 3)
    with pytest.raises(LabError, match="80 characters are too few for 32 lanes of 50 steps"):
        problem(50, 32)


def test_baseline_is_the_unigram_cross_entropy() -> None:
    assert problem().baseline() == pytest.approx(math.log(10))


def test_learns_the_generated_text() -> None:
    one = PennTreebank(data="generated", characters=60_000).problem(0, 32)
    about: dict[str, Any] = one.about()
    assert about["characters"]["train"] >= 60_000
    assert fit(one, 60, lr=0.01)["bpc"] < 0.9 * about["unigram_bpc"]


@needs("ptb")
def test_real() -> None:
    """The files' counts; trained for moments, a GORU is far below the entropy of the characters."""
    texts = load(PennTreebank())
    assert {split: len(text) for split, text in texts.items()} == {
        "train": 5_017_482,
        "valid": 393_042,
        "test": 442_423,
    }
    whole = PennTreebankProblem(texts, 50, 32)
    assert len(whole.alphabet) == 50
    assert whole.steps_per_epoch == 3135
    assert whole.about()["unigram_bpc"] == pytest.approx(4.346, abs=1e-3)
    cut = PennTreebankProblem(texts | {"test": texts["test"][:5000]}, 50, 32)
    assert fit(cut, 100, lr=0.01)["loss"] < 0.85 * cut.baseline()
