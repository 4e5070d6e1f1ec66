"""Questions about stories: numbering, splits, the three-RNN reader, learning."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import nn

import goru
from goru.lab.networks import QuestionReader
from goru.lab.problems.babi import BabiProblem, load
from goru.lab.tasks.babi import Babi
from tests.lab.real_data import needs
from tests.lab.tasks.learning import fit, network_of, scores


@pytest.fixture(scope="module")
def generated() -> BabiProblem:
    made = Babi(data="generated", number=6, questions=200).problem(0, 32)
    assert isinstance(made, BabiProblem)
    return made


@pytest.fixture(scope="module")
def sequence() -> BabiProblem:
    made = Babi(data="generated", number=6, questions=200, joined="sequence").problem(0, 32)
    assert isinstance(made, BabiProblem)
    return made


def test_sets(generated: BabiProblem) -> None:
    assert generated.about()["questions"] == {"train": 180, "valid": 20, "test": 200}
    assert generated.answers == {"no": 0, "yes": 1}
    assert generated.baseline() == pytest.approx(math.log(2), abs=0.01)
    assert generated.steps_per_epoch == 6


def test_a_batch_is_the_questions_it_says(generated: BabiProblem) -> None:
    names = list(generated.words)
    batch = generated.batch(3)
    for b in range(len(batch.answers)):
        told = [names[k] for k in batch.statements[: batch.statement_lengths[b], b]]
        asked = [names[k] for k in batch.question[: batch.question_lengths[b], b]]
        assert told[-1] == "."
        assert asked[0] == "is"
        assert asked[-1] == "?"
        person = asked[1]
        last = len(told) - 1 - told[::-1].index(person)
        where = told[told.index(".", last) - 1]
        assert (where == asked[-2]) == bool(batch.answers[b])


def test_every_question_once_in_an_epoch(generated: BabiProblem) -> None:
    sizes = [len(generated.batch(step).answers) for step in range(6)]
    assert sorted(sizes) == [20, 32, 32, 32, 32, 32]
    assert torch.equal(generated.batch(2).statements, generated.batch(2).statements)
    assert not torch.equal(generated.batch(2).answers, generated.batch(8).answers)


@pytest.mark.parametrize("cell", ["goru", "gru", "lstm", "eurnn-real", "eurnn-complex"])
@pytest.mark.parametrize("joined", ["generated", "sequence"])
def test_padding_does_not_matter(joined: str, cell: str, request: pytest.FixtureRequest) -> None:
    """A question gets the same answer alone and in a batch with longer ones."""
    problem: BabiProblem = request.getfixturevalue(joined)
    network = network_of(problem, cell).eval()
    batch = problem.batch(0)
    with torch.no_grad():
        together = network(*batch[:4])
        for b in (0, 5):
            told, asked = batch.statement_lengths[b], batch.question_lengths[b]
            one = slice(b, b + 1)
            alone = network(
                batch.statements[:told, one], batch.statement_lengths[one], batch.question[:asked, one], asked.view(1)
            )
            # float32, about 60 steps: rounding of sums in another order
            torch.testing.assert_close(alone[0], together[b], rtol=1e-4, atol=1e-5)


def test_three_layers_of_one_kind(generated: BabiProblem) -> None:
    network = network_of(generated, "lstm")
    assert isinstance(network, QuestionReader)
    for layer, inputs in ((network.statements, 50), (network.question, 50), (network.joined, 16)):
        assert isinstance(layer, goru.LSTM)
        assert layer.input_size == inputs


def test_the_third_layer_reads_the_story_beside_the_question(sequence: BabiProblem) -> None:
    """One row by hand: every output over the story with the question's last output, step by step."""
    network = network_of(sequence, "gru").eval()
    assert isinstance(network, QuestionReader)
    batch = sequence.batch(1)
    told, asked = batch.statements[: batch.statement_lengths[3], 3], batch.question[: batch.question_lengths[3], 3]
    with torch.no_grad():
        question = network.question(network.embedding(asked))[1][0]
        state = None
        for output in network.statements(network.embedding(told))[0]:
            _, state = network.joined(torch.cat([output, question]).unsqueeze(0), state)
        assert state is not None
        torch.testing.assert_close(network.head(state[0]), network(*batch[:4])[3], rtol=1e-4, atol=1e-5)


def test_word_vectors_start_within_the_scale() -> None:
    problem = Babi(data="generated", number=6, questions=200, word_scale=0.7).problem(0, 32)
    network = network_of(problem, "gru")
    assert isinstance(network, QuestionReader)
    vectors = network.embedding.weight
    assert vectors.abs().max().item() == pytest.approx(0.7, rel=0.02)
    assert vectors.mean().item() == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("joined", ["last", "sequence"])
def test_dropout(joined: Literal["last", "sequence"]) -> None:
    """A third of the word vectors' elements, and of what the head reads, is zero in training and only there."""
    task = Babi(data="generated", number=6, questions=200, embedding=40, joined=joined, dropout=1 / 3)
    problem = task.problem(0, 32)
    network, batch = network_of(problem, "gru"), problem.batch(1)
    assert isinstance(network, QuestionReader)
    seen: dict[str, torch.Tensor] = {}

    def watch(name: str) -> None:
        def remember(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            seen[name] = inputs[0].detach()

        network.get_submodule(name).register_forward_pre_hook(remember)

    for name in ("statements", "question", "head"):
        watch(name)
    torch.manual_seed(0)
    trained = network(*batch[:4])
    # Standard deviations of the shares: 0.002, 0.006 and 0.03 (32 rows of 8 units).
    for name, close in (("statements", 0.01), ("question", 0.03), ("head", 0.12)):
        assert (seen[name] == 0).double().mean().item() == pytest.approx(1 / 3, abs=close)
    words = network.embedding(batch.statements)
    kept = seen["statements"] != 0
    torch.testing.assert_close(seen["statements"][kept], (1.5 * words)[kept])
    assert not torch.equal(network(*batch[:4]), trained)
    network.eval()
    plain = network_of(
        Babi(data="generated", number=6, questions=200, embedding=40, joined=joined).problem(0, 32), "gru"
    )
    plain.load_state_dict(network.state_dict())
    assert torch.equal(network(*batch[:4]), plain(*batch[:4]))


def test_settings() -> None:
    with pytest.raises(ValueError, match="dropout should be from 0 to below 1, got 1"):
        Babi(dropout=1.0)
    with pytest.raises(ValueError, match="word-scale should be a positive number, got 0"):
        Babi(word_scale=0.0)
    with pytest.raises(ValueError, match="word-scale should be a positive number, got inf"):
        Babi(word_scale=math.inf)
    with pytest.raises(ValueError, match="the small world has tasks"):
        Babi(data="generated", number=2)
    with pytest.raises(ValueError, match="number should be from 1 to 20"):
        Babi(number=21)
    assert "bAbI" not in Babi(data="generated", number=17).data_title
    assert "bAbI" in Babi().data_title


def test_learns_the_small_world() -> None:
    problem = Babi(data="generated", number=5).problem(0, 32)
    after = fit(problem, 120)
    assert after["loss"] < 0.85 * problem.baseline()
    assert after["accuracy"] > 1.5 * problem.about()["majority_accuracy"]


@needs("babi")
class TestReal:
    @pytest.mark.parametrize(("number", "words", "answers"), [(1, 21, 6), (19, 21, 12), (20, 37, 7)])
    def test_counts(self, number: int, words: int, answers: int) -> None:
        problem = Babi(number=number).problem(0, 32)
        about = problem.about()
        valid = 91 if number == 20 else 100
        assert about["questions"] == {"train": 1000 - valid, "valid": valid, "test": 1000}
        assert (about["words"], about["answers"]) == (words, answers)

    def test_no_story_is_cut_between_training_and_validation(self) -> None:
        """In tasks 17, 18 and 20 the 900th question is not the last of its story."""
        for number in range(1, 21):
            questions, _ = load(Babi(number=number))
            about = Babi(number=number).problem(0, 32).about()["questions"]
            first, last = questions[about["train"]], questions[about["train"] - 1]
            assert first.story == last.story + 1
            assert 91 <= about["valid"] <= 100

    def test_learns(self) -> None:
        """Task 20 (motivations): far below the entropy of its answers, far above its commonest answer."""
        problem = Babi(number=20).problem(0, 32)
        before = scores(problem, network_of(problem))
        after = fit(problem, 90)
        assert after["loss"] < 0.3 * problem.baseline()
        assert after["accuracy"] > 0.8 > 0.3 > problem.about()["majority_accuracy"]
        assert before["loss"] > 0.9 * problem.baseline()
