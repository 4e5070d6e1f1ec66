"""The shortest-path task: tensors, scores, reference levels, learning."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from goru.lab.data.readers.paths import Example
from goru.lab.problems.shortest_path import ShortestPathProblem, encode, load
from goru.lab.tasks.shortest_path import ShortestPath
from tests.lab.real_data import needs
from tests.lab.tasks.learning import fit


def example(*path: int) -> Example:
    tokens = np.tile([path[0], 9, path[1], 10], 18)
    return Example(np.concatenate([tokens, [11, path[0], path[-1], 12]]), path)


def test_encoding_by_hand() -> None:
    batch = encode([example(0, 1, 2), example(3, 4, 5, 6)])
    assert batch.inputs.shape == (80, 2)
    assert batch.inputs[72:, 0].tolist() == [11, 0, 2, 12, 12, 12, 12, 12]
    assert batch.targets.t().tolist() == [[0, 1, 2, 9, -100], [3, 4, 5, 6, 9]]


def test_the_path_can_be_fed_back() -> None:
    """After each output the next input is that node of the true path; what is asked stays the same."""
    examples = [example(0, 1, 2), example(3, 4, 5, 6)]
    plain, fed = encode(examples), encode(examples, feed_path=True)
    assert torch.equal(fed.targets, plain.targets)
    assert torch.equal(fed.inputs[:76], plain.inputs[:76])
    assert fed.inputs[76:].t().tolist() == [[0, 1, 2, 12], [3, 4, 5, 6]]
    assert ShortestPath(data="generated", feed="path").problem(0, 50).batch(0).inputs[76:].ne(12).any()


def test_answers_can_be_padded() -> None:
    """The end symbol again and again, to the longest answer of any set; what is read stays the same."""
    examples = [example(0, 1, 2), example(3, 4, 5, 6)]
    plain, padded = encode(examples), encode(examples, padded_to=4)
    assert torch.equal(padded.inputs, plain.inputs)
    assert padded.targets.t().tolist() == [[0, 1, 2, 9, 9], [3, 4, 5, 6, 9]]
    problem = ShortestPathProblem({"train": examples, "valid": examples[:1], "test": examples[:1]}, 0, 2, padded=True)
    scores = problem.evaluate(Answers([[0, 1, 8, 9, 9]]), "test")
    assert scores["accuracy"] == pytest.approx(4 / 5)
    assert problem.evaluate(Answers([[0, 1, 2, 9, 7]]), "valid")["sequence_accuracy"] == 0
    assert problem.weight(problem.batch(0)) == 10
    about = ShortestPathProblem(dict.fromkeys(("train", "valid", "test"), examples), 0, 2, padded=True).about()
    # A guess has the source, both ends of a path of three and its padding; one of four nodes gets source and end.
    assert about["any_node_accuracy"] == pytest.approx((1 / 7 + 3 + 1 + 1 / 7 + 2) / 10)
    generated = ShortestPath(data="generated", padded=True).problem(0, 50)
    assert torch.equal(generated.batch(3).inputs, ShortestPath(data="generated").problem(0, 50).batch(3).inputs)


class Answers(nn.Module):
    """Says the given classes from the 76th step on, whatever it reads."""

    def __init__(self, classes: list[list[int]]) -> None:
        super().__init__()
        self.logits = nn.functional.one_hot(torch.tensor(classes).t(), 10).float() * 50

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros(75, *self.logits.shape[1:]), self.logits])


def test_scores_by_hand() -> None:
    """One path right, of the other the middle wrong: what comes after the end does not count."""
    examples = [example(0, 1, 2), example(3, 4, 5, 6)]
    problem = ShortestPathProblem(dict.fromkeys(("train", "valid", "test"), examples), 0, 2)
    scores = problem.evaluate(Answers([[0, 1, 2, 9, 7], [3, 4, 8, 6, 9]]), "test")
    assert scores["accuracy"] == pytest.approx(8 / 9)
    assert scores["sequence_accuracy"] == 0.5
    assert scores["loss"] == pytest.approx(50 / 9, rel=1e-3)


@pytest.fixture(scope="module")
def generated() -> ShortestPathProblem:
    made = ShortestPath(data="generated").problem(0, 50)
    assert isinstance(made, ShortestPathProblem)
    return made


def test_generated_sizes(generated: ShortestPathProblem) -> None:
    about: dict[str, Any] = generated.about()
    assert about["examples"] == {"train": 950, "valid": 50, "test": 1000}
    assert generated.steps_per_epoch == 19
    assert generated.batch(5).inputs.shape == (80, 50)
    assert torch.equal(generated.batch(5).inputs, generated.batch(5).inputs)
    seen = torch.cat([generated.batch(step).inputs for step in range(19)], 1)
    assert len({tuple(column) for column in seen.t().tolist()}) > 940  # every graph once in an epoch


def test_folds_and_seeds_differ() -> None:
    first, second = (load(ShortestPath(data="generated", fold=fold, graphs=38))["test"] for fold in (1, 2))
    assert not all((a.tokens == b.tokens).all() for a, b in zip(first, second, strict=True))
    assert len(first) == 40
    with pytest.raises(ValueError, match="fold should be from 1 to 10"):
        ShortestPath(fold=11)


def test_learns_on_generated_graphs(generated: ShortestPathProblem) -> None:
    assert fit(generated, 60)["loss"] < 0.95 * generated.baseline()


@needs("shortest_path")
class TestReal:
    def test_reference_levels(self) -> None:
        """As computed independently on the ten folds: 11.5 and 70.2 %, with a neighbor 53.7 and 83.5 %."""
        abouts = [ShortestPath(fold=fold).problem(0, 50).about() for fold in range(1, 11)]
        assert all(about["examples"] == {"train": 950, "valid": 50, "test": 1000} for about in abouts)
        means = {name: fmean(about[name] for about in abouts) for name in abouts[0] if "accuracy" in name}
        assert means == pytest.approx(
            {
                "any_node_accuracy": 0.702,
                "any_node_sequence_accuracy": 0.115,
                "neighbour_accuracy": 0.835,
                "neighbour_sequence_accuracy": 0.537,
            },
            abs=6e-4,
        )

    def test_reference_levels_of_padded_answers(self) -> None:
        """In 80.5 % of the graphs one of five outputs is padding, which a guess has right."""
        abouts = [ShortestPath(fold=fold, padded=True).problem(0, 50).about() for fold in range(1, 11)]
        for name, unpadded in (("any_node_accuracy", 0.702), ("neighbour_accuracy", 0.835)):
            expected = (4.195 * unpadded + 0.805) / 5
            assert fmean(about[name] for about in abouts) == pytest.approx(expected, abs=6e-4)

    def test_learns(self) -> None:
        """Below the entropy of the classes at each place of the output."""
        problem = ShortestPath(fold=3).problem(0, 50)
        scores = fit(problem, 80)
        assert scores["loss"] < 0.9 * problem.baseline()
        assert scores["accuracy"] > 0.5
